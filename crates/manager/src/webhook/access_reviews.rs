//! The user, and which permissions the cluster's authorizer grants: a SubjectAccessReview per permission that a plan needs.

use std::{collections::BTreeSet, time::Duration};

use checks::{
    NoAnswer,
    admission::powers::{Asker, Power, VERB},
};
use clock::Clock;
use k8s_openapi::api::{
    authentication::v1::UserInfo,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

/// How long an answer may take. The API server waits 10 seconds for ours.
const PATIENCE: Duration = Duration::from_secs(4);

/// Which of the permissions that a plan needs its user has.
pub async fn ask(client: &Client, clock: &Clock, user: &UserInfo, plan: &str, wanted: &BTreeSet<Power>) -> Asker {
    let name = user.username.clone().unwrap_or_default();
    let mut powers = BTreeSet::new();
    for power in wanted {
        let answer = tokio::select! {
            biased;
            answer = may(client, user, plan, *power) => answer,
            () = clock.sleep(PATIENCE) => Err(format!("no answer within {} seconds", PATIENCE.as_secs()).into()),
        };
        match answer {
            Ok(true) => {
                powers.insert(*power);
            }
            Ok(false) => {}
            Err(why) => return Asker { name, powers: Err(why) },
        }
    }
    Asker {
        name,
        powers: Ok(powers),
    }
}

async fn may(client: &Client, user: &UserInfo, plan: &str, power: Power) -> Result<bool, NoAnswer> {
    let review = SubjectAccessReview {
        metadata: ObjectMeta::default(),
        spec: SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some(api::GROUP.to_owned()),
                resource: Some("upgradeplans".to_owned()),
                subresource: Some(power.subresource().to_owned()),
                verb: Some(VERB.to_owned()),
                name: Some(plan.to_owned()).filter(|name| !name.is_empty()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        status: None,
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| super::facts::no_answer(&error))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
