//! S-07: the key of a repository is stored before anything mounts it, and a Secret that this manager has not made is not
//! trusted to contain it.

use crate::support;
use std::collections::BTreeMap;

use api::{RepositoryAccess, UpgradePlan, UpgradePlanSpec, names};
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
    core::v1::Secret,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use manager::{
    act::{ActError, Actor, Versions},
    keyring::Keyring,
    lease::Leadership,
    watched::Watched,
};
use plan::{Action, Child, Decision, observed::Settings};
use release::tls::Identity;

const SECRET: &str = "up-repo-x";

fn decision(plan: &UpgradePlan) -> Decision {
    let secret = SECRET.to_owned();
    Decision {
        annotations: BTreeMap::new(),
        finalizer: false,
        status: plan.status.clone().unwrap_or_default(),
        events: Vec::new(),
        actions: vec![
            Action::Create(Child::RepoSecret { name: secret.clone() }),
            Action::Create(Child::RepoDeployment {
                replicas: 2,
                claim: "claim".to_owned(),
                checksum: None,
                secret,
            }),
        ],
        needs: Vec::new(),
        wake_at: None,
    }
}

fn hold(keyring: &Keyring, uid: &str) {
    let access = RepositoryAccess {
        certificate: "PUBLIC".to_owned(),
        secret: SECRET.to_owned(),
        in_use: false,
    };
    let identity = Identity {
        certificate: "PUBLIC".to_owned(),
        key: "KEY".to_owned(),
    };
    keyring.add(uid, access, identity);
}

#[tokio::test]
async fn s07_only_a_secret_that_this_manager_has_made_is_mounted() {
    let server = support::cluster().await;
    let client = server.client();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    // They are not served here.
    for found in mutating.list(&Default::default()).await.unwrap() {
        mutating
            .delete(&found.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
    for found in validating.list(&Default::default()).await.unwrap() {
        validating
            .delete(&found.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    let spec = UpgradePlanSpec {
        version: Some("v1.8.0".to_owned()),
        ..Default::default()
    };
    let plan = plans
        .create(&PostParams::default(), &UpgradePlan::new("up", spec))
        .await
        .unwrap();
    let plan = {
        let mut plan = plan;
        plan.status = Some(api::UpgradePlanStatus::default());
        plans.replace_status("up", &PostParams::default(), &plan).await.unwrap()
    };
    let uid = plan.uid().unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
    let keyring = Keyring::default();
    let leadership = Leadership::unconditional(support::days_on(0));
    let actor = Actor::new(support::manager_client(&server), Settings::default(), leadership, None);
    let actor = actor.with_keys(keyring.clone());
    let act = async || {
        actor
            .carry_out(&plan, &Watched::default(), &decision(&plan), &mut Versions::new())
            .await
    };
    let deployed = async || deployments.get_opt(&names::repo("up")).await.unwrap();

    // A manager without the key makes neither.
    assert!(matches!(act().await, Err(ActError::LostKey { .. })));
    assert!(secrets.get_opt(SECRET).await.unwrap().is_none() && deployed().await.is_none());

    // Another client was faster: its Secret is not mounted, and the key is replaced by another one.
    let mut theirs = Secret::default();
    theirs.metadata.name = Some(SECRET.to_owned());
    secrets.create(&PostParams::default(), &theirs).await.unwrap();
    hold(&keyring, &uid);
    let error = act().await.unwrap_err();
    assert!(error.to_string().contains("harvester-system/up-repo-x"), "{error}");
    assert!(deployed().await.is_none() && keyring.certificate(&uid).is_none());

    // Its own is there for its pods, and a second try finds it.
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    hold(&keyring, &uid);
    act().await.unwrap();
    act().await.unwrap();
    let stored = secrets.get(SECRET).await.unwrap();
    assert_eq!(stored.owner_references()[0].uid, uid);
    assert_eq!(stored.data.unwrap()["tls.key"].0, b"KEY");
    let pod = deployed().await.unwrap().spec.unwrap().template.spec.unwrap();
    let mounted = pod.volumes.unwrap().into_iter().find_map(|volume| volume.secret);
    assert_eq!(mounted.unwrap().secret_name.as_deref(), Some(SECRET));
}
