//! Who may do what with plans, asked of the authorizer of a cluster whose roles are the shipped ones.

use crate::support;
use api::{UpgradePlan, annotations, overrides::Override};
use apiserver::{ApiServer, Identity};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// A user with one of the roles for users.
async fn user_with_role(server: &ApiServer, name: &str, role: &str) -> Api<UpgradePlan> {
    let role = format!("t-upgradeplan-{role}-role");
    for object in manager::rbac::people(support::PREFIX) {
        if object["metadata"]["name"] == role {
            support::create(&server.client(), object).await;
        }
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    support::create(&server.client(), binding).await;
    let identity = Identity {
        user: name.to_owned(),
        groups: vec!["system:authenticated".to_owned()],
    };
    Api::all(server.client_as(identity))
}

fn plan(annotations: &Value, spec: &Value) -> UpgradePlan {
    let metadata = json!({"name": "up", "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

async fn refused(plans: &Api<UpgradePlan>, plan: &UpgradePlan) -> String {
    match plans.create(&PostParams::default(), plan).await {
        Err(kube::Error::Api(status)) => status.message,
        other => panic!("was not refused: {other:?}"),
    }
}

#[tokio::test]
async fn s02_who_may_create_plans_may_not_choose_what_runs_as_root() {
    let server = support::asking_cluster().await;
    let editor = user_with_role(&server, "eve", "editor").await;
    let version = json!({"version": "v1.8.0"});
    let evil = plan(&json!({annotations::UPGRADE_TOOLKIT_IMAGE: "evil.test/pwn"}), &version);
    let why = refused(&editor, &evil).await;
    assert!(why.contains("user eve") && why.contains("upgradeplans/image"), "{why}");
    assert!(why.contains("repositories that the manager allows"), "{why}");
    let tagged = plan(&json!({}), &json!({"version": "v1.8.0", "upgrade": "pwned"}));
    let why = refused(&editor, &tagged).await;
    assert!(
        why.contains("spec.upgrade") && why.contains("upgradeplans/image"),
        "{why}"
    );
    let admin = user_with_role(&server, "ada", "admin").await;
    let why = refused(&admin, &evil).await;
    assert!(
        !why.contains("user ada") && why.contains("repositories that the manager allows"),
        "{why}"
    );
    let created = admin.create(&PostParams::default(), &tagged).await.unwrap();
    let used = Override::of(&created).unwrap();
    assert_eq!(
        (used.by.as_str(), used.what),
        ("ada", vec![r#"spec.upgrade="pwned""#.to_owned()])
    );
    let later = json!({"metadata": {"annotations": {annotations::UPGRADE_TOOLKIT_IMAGE: "rancher/other"}}});
    let changed = admin.patch("up", &PatchParams::default(), &Patch::Merge(later)).await;
    assert!(changed.unwrap_err().to_string().contains("immutable"));
}

#[tokio::test]
async fn s11_who_may_create_plans_may_not_leave_checks_out_and_who_may_is_recorded() {
    let server = support::asking_cluster().await;
    let editor = user_with_role(&server, "eve", "editor").await;
    let version = json!({"version": "v9.9.9"});
    let blame = json!({"by": "bob", "what": [], "at": "2026-03-13T03:57:09Z"}).to_string();
    let skips = plan(
        &json!({annotations::SKIP_WEBHOOK: "true", annotations::OVERRIDES: blame}),
        &version,
    );
    let why = refused(&editor, &skips).await;
    assert!(
        why.contains("user eve") && why.contains("upgradeplans/skip-checks"),
        "{why}"
    );
    let admin = user_with_role(&server, "ada", "admin").await;
    let created = admin.create(&PostParams::default(), &skips).await.unwrap();
    assert_eq!(Override::of(&created).unwrap().by, "ada");
    // Neither the record nor what it is about can be rewritten, and what needs no power needs none.
    let later = json!({"metadata": {"annotations": {annotations::OVERRIDES: blame, annotations::RETRY: "1"}}});
    let changed = editor
        .patch("up", &PatchParams::default(), &Patch::Merge(later))
        .await
        .unwrap();
    assert_eq!(Override::of(&changed), Override::of(&created));
    let later = json!({"metadata": {"annotations": {annotations::SKIP_VOLUMES: "pvc-1"}}});
    let changed = editor
        .patch("up", &PatchParams::default(), &Patch::Merge(later.clone()))
        .await;
    assert!(changed.unwrap_err().to_string().contains("upgradeplans/skip-checks"));
    admin
        .patch("up", &PatchParams::default(), &Patch::Merge(later))
        .await
        .unwrap();
}

#[tokio::test]
async fn s03_notes_of_the_manager_are_refused_from_users_who_may_change_plans() {
    let server = support::asking_cluster().await;
    let admin = user_with_role(&server, "ada", "admin").await;
    let version = json!({"version": "v1.8.0"});
    let forged = plan(&json!({annotations::SAVED_REPLENISHMENT_INTERVAL: "999999"}), &version);
    let why = refused(&admin, &forged).await;
    assert!(why.contains(annotations::SAVED_REPLENISHMENT_INTERVAL), "{why}");
    admin
        .create(&PostParams::default(), &plan(&json!({}), &version))
        .await
        .unwrap();
    let later = json!({"metadata": {"annotations": {annotations::SAVED_UPGRADE_STRATEGY: "{}"}}});
    let changed = admin.patch("up", &PatchParams::default(), &Patch::Merge(later)).await;
    assert!(changed.unwrap_err().to_string().contains("only the manager"));
}

#[tokio::test]
async fn s03_the_status_of_a_plan_is_refused_from_users_who_may_do_everything_but_are_not_the_manager() {
    let server = support::asking_cluster().await;
    let all = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"},
        "rules": [{"apiGroups": [api::GROUP], "resources": ["*"], "verbs": ["*"]}],
    });
    support::create(&server.client(), all).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}],
    });
    support::create(&server.client(), binding).await;
    let ada: Api<UpgradePlan> = Api::all(server.client_as(Identity {
        user: "ada".to_owned(),
        groups: vec!["system:authenticated".to_owned()],
    }));
    let version = json!({"version": "v1.8.0"});
    let created = ada
        .create(&PostParams::default(), &plan(&json!({}), &version))
        .await
        .unwrap();
    let forged = json!({"status": {"currentPhase": "NodeUpgrading", "previousVersion": "v0.0.1"}});
    let patched = ada
        .patch_status("up", &PatchParams::default(), &Patch::Merge(&forged))
        .await;
    let why = patched.unwrap_err().to_string();
    assert!(
        why.contains("only the manager writes the status") && why.contains("create another plan"),
        "{why}"
    );
    let mut replaced = created.clone();
    replaced.status = serde_json::from_value(forged["status"].clone()).unwrap();
    let replaced = ada.replace_status("up", &PostParams::default(), &replaced).await;
    assert!(replaced.unwrap_err().to_string().contains("only the manager"));
    assert_eq!(ada.get("up").await.unwrap().status, None);
    // What changes nothing is nothing, and the manager goes through.
    let nothing = json!({"metadata": {"resourceVersion": created.metadata.resource_version}});
    ada.patch_status("up", &PatchParams::default(), &Patch::Merge(nothing))
        .await
        .unwrap();
    let manager: Api<UpgradePlan> = Api::all(support::manager_client(&server));
    let mut own = created;
    own.status = serde_json::from_value(forged["status"].clone()).unwrap();
    manager
        .replace_status("up", &PostParams::default(), &own)
        .await
        .unwrap();
    let phase = ada.get("up").await.unwrap().status.unwrap().current_phase;
    assert_eq!(phase.as_deref(), Some("NodeUpgrading"));
}
