//! What the roles that ship do not allow, by the real API server's own judgement.

use api::names;
use cli::rehearsal::{PREFIX, SERVICE_ACCOUNT};
use k8s_openapi::api::{batch::v1::Job, core::v1::Secret, rbac::v1::ClusterRole};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use world::{Durations, Shape};

use crate::harvester::{MANAGER, on_cluster};

fn code<T: std::fmt::Debug>(outcome: kube::Result<T>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_managers_token_reads_secrets_in_fleet_local_and_nowhere_else() {
    let shape = Shape {
        nodes: 1,
        vms: 0,
        ..Shape::default()
    };
    on_cluster(shape, Durations::instant(), async |harvester| {
        let namespace = names::HARVESTER_NAMESPACE;
        let client = harvester.control_plane.client_of(namespace, SERVICE_ACCOUNT, MANAGER);
        let client = client.await.unwrap();
        let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
        let all = ListParams::default();
        let here = secrets(names::FLEET_NAMESPACE).list(&all).await.unwrap();
        assert!(!here.items.is_empty(), "Rancher's plans are there");
        for elsewhere in [
            namespace,
            names::CATTLE_NAMESPACE,
            names::KUBE_SYSTEM_NAMESPACE,
            "default",
        ] {
            assert_eq!(code(secrets(elsewhere).list(&all).await), 403, "{elsewhere}");
            assert_eq!(code(secrets(elsewhere).get("any").await), 403, "{elsewhere}");
        }
        assert_eq!(code(Api::<Secret>::all(client.clone()).list(&all).await), 403);
        // But for the one with the webhook's certificate, which it makes itself.
        assert_eq!(code(secrets(namespace).get("webhook-server-cert").await), 404);

        // Where the API server insists on it, an owner that blocks deletion may only be named by who may touch the
        // owner's finalizers.
        harvester.create_plan("up", Default::default()).await;
        let plan = harvester.plans().get("up").await.unwrap();
        let owned = |name: &str| -> Job {
            let owner = manager::objects::owner(&plan);
            let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]});
            let job =
                json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"template": {"spec": pod}}});
            serde_json::from_value(job).unwrap()
        };
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let create = PostParams::default();
        assert_eq!(code(jobs.create(&create, &owned("with-rule")).await), 200);
        let roles: Api<ClusterRole> = Api::all(harvester.client.clone());
        let name = format!("{PREFIX}manager-role");
        let mut rules = roles.get(&name).await.unwrap().rules.unwrap();
        let finalizers = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
            let resources = rule.resources.iter().flatten();
            resources
                .into_iter()
                .any(|resource| resource == "upgradeplans/finalizers")
        };
        rules.retain(|rule| !finalizers(rule));
        let patch = Patch::Merge(json!({"rules": rules}));
        roles.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        // The API server judges by a cache of its own.
        let mut refused = false;
        for attempt in 0..200 {
            refused = code(jobs.create(&create, &owned(&format!("without-rule-{attempt}"))).await) == 403;
            if refused {
                break;
            }
        }
        assert!(refused, "the rule for finalizers is not needed");
    });
}
