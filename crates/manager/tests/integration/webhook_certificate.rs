//! The certificate that managers make, share and renew by themselves, on the embedded API with the shipped roles.

use crate::support;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use api::names;
use apiserver::{ApiServer, Fault, FaultPlan, ReadFault};
use clock::Clock;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use manager::tls::{
    Certificate, Pem, Presented,
    managed::{Keeper, SECRET},
    mint::{LIFE, Minted, mint},
};
use tokio::runtime::Handle;

use crate::support::{beginning, cluster, days_on, managed, manager_client};

fn secrets(server: &ApiServer) -> Api<Secret> {
    Api::namespaced(server.client(), names::HARVESTER_NAMESPACE)
}

fn keeper(server: &ApiServer, clock: Clock) -> (Keeper, Presented) {
    let presented = Presented::default();
    let keeper = Keeper::new(manager_client(server), clock, managed(), presented.clone());
    (keeper, presented)
}

/// A field of the Secret.
async fn stored(server: &ApiServer, key: &str) -> String {
    let secret = secrets(server).get(SECRET).await.unwrap();
    String::from_utf8(secret.data.unwrap()[key].0.clone()).unwrap()
}

/// What both configurations trust.
fn bundles(server: &ApiServer) -> Vec<String> {
    let of = |kind: &str| {
        let name = format!("t-{kind}-webhook-configuration");
        let plural = format!("{kind}webhookconfigurations");
        let found = server.store().get("admissionregistration.k8s.io", &plural, "", &name);
        let bundle = found.unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
        let bytes: ByteString = serde_json::from_value(bundle).unwrap();
        String::from_utf8(bytes.0).unwrap()
    };
    vec![of("mutating"), of("validating")]
}

fn writes(server: &ApiServer) -> usize {
    server.store().history().len()
}

async fn store(server: &ApiServer, minted: &Minted) {
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(BTreeMap::from([
            ("tls.crt".to_owned(), text(&minted.pem.chain)),
            ("tls.key".to_owned(), text(&minted.pem.key)),
            ("ca.crt".to_owned(), text(&minted.authority)),
        ])),
        ..Secret::default()
    };
    secrets(server).create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn where_there_is_none_it_is_made_stored_trusted_and_presented() {
    let server = cluster().await;
    let (keeper, presented) = keeper(&server, days_on(0));
    let due = keeper.look().await.unwrap();
    let secret = secrets(&server).get(SECRET).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    let pem = Pem {
        chain: stored(&server, "tls.crt").await,
        key: stored(&server, "tls.key").await,
    };
    let certificate = Certificate::read(&pem).unwrap();
    let authority = stored(&server, "ca.crt").await;
    for name in managed().names {
        certificate.verify(&authority, &name, beginning()).unwrap();
    }
    assert_eq!(certificate.due(), due);
    assert_eq!(bundles(&server), [authority.clone(), authority]);
    assert_eq!(presented.current().unwrap().cert, certificate.key.cert);
}

#[tokio::test]
async fn a_look_at_what_is_good_writes_nothing() {
    let server = cluster().await;
    let (keeper, _) = keeper(&server, days_on(0));
    keeper.look().await.unwrap();
    let before = writes(&server);
    keeper.look().await.unwrap();
    assert_eq!(writes(&server), before);
}

#[tokio::test]
async fn another_replica_adopts_the_one_that_is_there() {
    let server = cluster().await;
    let ((one, presented_by_one), (other, presented_by_other)) =
        (keeper(&server, days_on(0)), keeper(&server, days_on(1)));
    one.look().await.unwrap();
    other.look().await.unwrap();
    assert_eq!(
        presented_by_one.current().unwrap().cert,
        presented_by_other.current().unwrap().cert
    );
}

#[tokio::test]
async fn one_that_a_chart_made_is_adopted() {
    let server = cluster().await;
    let minted = mint(&managed().names, beginning(), LIFE * 4).unwrap();
    store(&server, &minted).await;
    let (keeper, presented) = keeper(&server, days_on(0));
    keeper.look().await.unwrap();
    assert_eq!(stored(&server, "tls.crt").await, minted.pem.chain);
    assert_eq!(bundles(&server)[1], minted.authority);
    assert!(presented.current().is_some());
}

#[tokio::test]
async fn one_that_ended_or_is_for_another_name_or_cannot_be_read_is_replaced() {
    let others = vec!["other.default.svc".to_owned()];
    let mut garbled = mint(&managed().names, beginning(), LIFE).unwrap();
    garbled.pem.key = "no key".to_owned();
    let mut unsigned = mint(&managed().names, beginning(), LIFE).unwrap();
    unsigned.authority = String::new();
    for bad in [
        mint(&managed().names, beginning(), LIFE / 90).unwrap(),
        mint(&others, beginning(), LIFE).unwrap(),
        garbled,
        unsigned,
    ] {
        let server = cluster().await;
        store(&server, &bad).await;
        let (keeper, _) = keeper(&server, days_on(2));
        keeper.look().await.unwrap();
        assert_ne!(stored(&server, "tls.crt").await, bad.pem.chain);
        let authority = stored(&server, "ca.crt").await;
        assert_eq!(
            authority.matches("BEGIN CERTIFICATE").count(),
            1,
            "what was bad is not trusted"
        );
        assert_eq!(bundles(&server)[0], authority);
    }
}

#[tokio::test]
async fn it_is_renewed_with_a_third_of_its_life_left_and_only_the_authority_before_stays_trusted() {
    let server = cluster().await;
    let mut authorities = Vec::new();
    for days in [0, 61, 122, 183] {
        let (keeper, _) = keeper(&server, days_on(days));
        keeper.look().await.unwrap();
        let authority = stored(&server, "ca.crt").await;
        assert_eq!(bundles(&server), [authority.clone(), authority.clone()]);
        authorities.push(authority);
    }
    let count = |authority: &String| authority.matches("BEGIN CERTIFICATE").count();
    assert_eq!(authorities.iter().map(count).collect::<Vec<_>>(), [1, 2, 2, 2]);
    assert!(authorities[1].contains(authorities[0].trim()));
    assert!(!authorities[2].contains(authorities[0].trim()));
}

#[tokio::test]
async fn a_replica_that_has_not_looked_since_a_renewal_is_still_trusted() {
    let server = cluster().await;
    let (slow, presented) = keeper(&server, days_on(0));
    slow.look().await.unwrap();
    keeper(&server, days_on(61)).0.look().await.unwrap();
    let pem = Pem {
        chain: stored(&server, "tls.crt").await,
        key: stored(&server, "tls.key").await,
    };
    let renewed = Certificate::read(&pem).unwrap();
    assert_ne!(presented.current().unwrap().cert, renewed.key.cert);
    let old = Certificate {
        key: presented.current().unwrap(),
        ..renewed
    };
    let later = days_on(61).now();
    old.verify(&bundles(&server)[1], &managed().names[0], later).unwrap();
}

#[tokio::test]
async fn of_two_replicas_that_make_one_at_once_both_end_with_the_one_that_is_stored() {
    let server = cluster().await;
    let ((one, presented_by_one), (other, presented_by_other)) =
        (keeper(&server, days_on(0)), keeper(&server, days_on(0)));
    let (first, second) = tokio::join!(one.look(), other.look());
    assert!(first.is_ok() || second.is_ok());
    one.look().await.unwrap();
    other.look().await.unwrap();
    assert_settled(&server, &presented_by_one).await;
    assert_settled(&server, &presented_by_other).await;
}

/// What is stored is what is trusted and presented.
async fn assert_settled(server: &ApiServer, presented: &Presented) {
    let pem = Pem {
        chain: stored(server, "tls.crt").await,
        key: stored(server, "tls.key").await,
    };
    let certificate = Certificate::read(&pem).unwrap();
    assert_eq!(presented.current().unwrap().cert, certificate.key.cert);
    let authority = stored(server, "ca.crt").await;
    assert_eq!(bundles(server), [authority.clone(), authority]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_reads_while_another_renews_never_puts_the_old_authority_back() {
    let minutes = |minutes: u64| {
        let moment = beginning().saturating_add(Duration::from_mins(minutes)).unwrap();
        Clock::simulated(moment, 1.0)
    };
    // The clock of one says that it is due, that of the other not yet.
    const DUE: u64 = 59 * 24 * 60 + 23 * 60 + 40;
    for read in 1..=3 {
        let server = cluster().await;
        let (slow, presented) = keeper(&server, minutes(DUE - 10));
        keeper(&server, days_on(0)).0.look().await.unwrap();
        let before = stored(&server, "tls.crt").await;
        let rival = Keeper::new(server.client(), minutes(DUE + 10), managed(), Presented::default());
        let reads = AtomicUsize::new(0);
        server.set_faults(FaultPlan::none().with_reads(move |attempt| {
            let is_slow = attempt.who.user.starts_with("system:serviceaccount:");
            if is_slow && reads.fetch_add(1, Ordering::SeqCst) + 1 == read {
                tokio::task::block_in_place(|| Handle::current().block_on(rival.look())).unwrap();
            }
            ReadFault::None
        }));
        if slow.look().await.is_err() {
            slow.look().await.unwrap();
        }
        assert_ne!(stored(&server, "tls.crt").await, before, "the rival came in between");
        assert_settled(&server, &presented).await;
    }
}

#[tokio::test]
async fn whichever_write_fails_or_loses_its_reply_the_next_look_settles_it() {
    let user = format!(
        "system:serviceaccount:{}:{}",
        names::HARVESTER_NAMESPACE,
        support::ACCOUNT
    );
    // Three writes make it, three renew it.
    for number in 1..=6 {
        for fault in [Fault::ConflictBefore, Fault::LoseReply, Fault::Reject(500)] {
            let server = cluster().await;
            server.set_faults(FaultPlan::at_write_of(&user, number, fault.clone()));
            let mut presented = Presented::default();
            let mut failures = 0;
            for day in [0, 61] {
                let keeper = Keeper::new(manager_client(&server), days_on(day), managed(), presented.clone());
                if keeper.look().await.is_err() {
                    failures += 1;
                    keeper.look().await.unwrap();
                }
                assert_settled(&server, &presented).await;
                // The manager that renews it may be another.
                presented = Presented::default();
            }
            assert_eq!(failures, 1, "write {number}, {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_caught_up_configuration_is_repaired_when_a_user_resets_it() {
    let server = cluster().await;
    let (keeper, _) = keeper(&server, days_on(0));
    keeper.look().await.unwrap();
    let trusted = bundles(&server);
    let client = server.client();
    for object in manager::webhook::configurations(
        support::PREFIX,
        names::HARVESTER_NAMESPACE,
        support::ACCOUNT,
        Some("reset"),
    ) {
        let object: kube::api::DynamicObject = serde_json::from_value(object).unwrap();
        let kind = kube::api::GroupVersionKind::try_from(object.types.as_ref().unwrap()).unwrap();
        let api: Api<kube::api::DynamicObject> =
            Api::all_with(client.clone(), &kube::api::ApiResource::from_gvk(&kind));
        let name = object.metadata.name.clone().unwrap();
        api.delete(&name, &DeleteParams::default()).await.unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    assert_eq!(bundles(&server), ["reset", "reset"]);
    keeper.look().await.unwrap();
    assert_eq!(bundles(&server), trusted);
}

#[tokio::test]
async fn without_configurations_it_is_made_and_presented_all_the_same() {
    let server = cluster().await;
    let configurations: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(server.client());
    let deleted = configurations
        .delete(&managed().validating, &DeleteParams::default())
        .await;
    deleted.unwrap();
    let presented = Presented::default();
    let keeper = Keeper::new(manager_client(&server), days_on(0), managed(), presented.clone());
    keeper.look().await.unwrap();
    assert!(presented.current().is_some());
}
