//! The system-upgrade-controller Plans that run once on every node.

use api::{UpgradePlan, foreign::suc, labels, labels::component, names};
use kube::ResourceExt;
use plan::{image, observed::Settings};
use serde_json::{Value, json};

use super::{component_labels, metadata, tolerations};

/// How long a Job may run on a node. Zero would be "for ever" to the newest controllers and "a quarter of an hour" to
/// older ones, which a cluster still runs while it is upgraded.
const JOB_DEADLINE_SECONDS: u32 = 24 * 60 * 60;

/// The Plan of a component.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn build(
    plan: &UpgradePlan,
    settings: &Settings,
    component: &str,
    concurrency: i64,
    images: &[String],
) -> Result<suc::Plan, serde_json::Error> {
    let name = plan.name_any();
    let labels = component_labels(plan, component);
    let mut container = container(&name, component, images);
    // system-upgrade-controller adds the tag, and a security context of ours replaces its own.
    container["image"] = json!(image::repository(plan));
    container["securityContext"] = json!({"privileged": true, "runAsUser": 0});
    serde_json::from_value(json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": metadata(plan, names::CATTLE_NAMESPACE, names::suc_plan(&name, component), labels),
        "spec": {
            "concurrency": concurrency,
            "jobActiveDeadlineSecs": JOB_DEADLINE_SECONDS,
            "nodeSelector": {"matchLabels": {labels::MANAGED: "true"}},
            "serviceAccountName": settings.plan_service_account,
            "tolerations": tolerations(),
            "upgrade": container,
            "version": image::tag(plan, &settings.own_tag),
        },
    }))
}

fn container(plan: &str, component: &str, images: &[String]) -> Value {
    match component {
        component::IMAGE_PRELOAD => json!({
            "command": ["upgrade_node.sh"],
            "args": ["prepare"],
            "envs": [{"name": "HARVESTER_UPGRADEPLAN_NAME", "value": plan}],
        }),
        component::IMAGE_CLEANUP => json!({
            "command": ["upgrade-toolkit", "node", "clean-images"],
            "envs": [{"name": "IMAGES", "value": images.join(" ")}],
        }),
        skip_manifests => {
            let action = if skip_manifests == component::SKIP_MANIFESTS_APPLY {
                "apply"
            } else {
                "remove"
            };
            json!({
                "command": ["upgrade-toolkit", "node", "skip-manifests", action],
                "envs": [{"name": "MANIFESTS", "value": "rke2-multus.yaml"}],
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w33_the_deadline_of_jobs_means_the_same_to_old_and_new_controllers() {
        let plan = UpgradePlan::new("up", Default::default());
        let built = build(&plan, &Settings::default(), component::IMAGE_PRELOAD, 1, &[]).unwrap();
        let built = serde_json::to_value(built).unwrap();
        assert_eq!(built["spec"]["jobActiveDeadlineSecs"], 86_400);
    }

    #[test]
    fn r01_programs_of_plans_get_their_environment_by_the_name_that_the_controller_reads() {
        let plan = UpgradePlan::new("up", Default::default());
        for (component, variable, value) in [
            (component::IMAGE_PRELOAD, "HARVESTER_UPGRADEPLAN_NAME", "up"),
            (component::IMAGE_CLEANUP, "IMAGES", "a/b:c d/e:f"),
            (component::SKIP_MANIFESTS_APPLY, "MANIFESTS", "rke2-multus.yaml"),
            (component::SKIP_MANIFESTS_REMOVE, "MANIFESTS", "rke2-multus.yaml"),
        ] {
            let images = ["a/b:c".to_owned(), "d/e:f".to_owned()];
            let built = build(&plan, &Settings::default(), component, 1, &images).unwrap();
            let upgrade = serde_json::to_value(built).unwrap()["spec"]["upgrade"].take();
            assert_eq!(
                upgrade["envs"],
                json!([{"name": variable, "value": value}]),
                "{component}"
            );
            // The API server drops it: nothing may stand there, neither ours nor what is kept of others.
            assert_eq!(upgrade.get("env"), None, "{component}");
        }
    }
}
