//! The system-upgrade-controller Plans that run once on every node.

use api::{UpgradePlan, foreign::suc, labels, labels::component, names};
use kube::ResourceExt;
use plan::{image, observed::Settings};
use rules::{deadlines::Deadlines, tries};
use serde_json::{Value, json};

use super::{component_labels, everything_tolerated, metadata, repo_environment};

/// Enough to tell versions apart, in hexadecimal digits.
const VERSION_LENGTH: usize = 8;

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
    let mut container = container(plan, component, images);
    let image = image::of(plan, settings).to_string();
    let version = version(plan, &image);
    // Whole, so that the version can say what it is for. A security context of ours replaces the controller's own.
    container["image"] = json!(image);
    container["securityContext"] = match component {
        component::IMAGE_CHECK => super::job::unprivileged(),
        _ => json!({"privileged": true, "runAsUser": 0}),
    };
    serde_json::from_value(json!({
        "apiVersion": "upgrade.cattle.io/v1",
        "kind": "Plan",
        "metadata": metadata(plan, names::CATTLE_NAMESPACE, names::suc_plan(&name, component), labels),
        "spec": {
            "concurrency": concurrency,
            "jobActiveDeadlineSecs": deadline_seconds(component, &settings.deadlines),
            "nodeSelector": {"matchLabels": {labels::MANAGED: "true"}},
            "serviceAccountName": settings.accounts.node_plans(),
            "tolerations": everything_tolerated(),
            "upgrade": container,
            "version": version,
        },
    }))
}

/// How long a Job may run on a node: as long as its wait may take. Never zero, which is "for ever" to the newest controllers
/// and "a quarter of an hour" to older ones, which a cluster still runs while it is upgraded.
fn deadline_seconds(component: &str, deadlines: &Deadlines) -> u64 {
    let limit = match component {
        component::IMAGE_PRELOAD => deadlines.preload,
        component::IMAGE_CHECK => deadlines.toolkit_image,
        component::IMAGE_CLEANUP => deadlines.cleanup,
        _ => deadlines.skip_manifests,
    };
    limit.as_secs().max(1)
}

/// What system-upgrade-controller identifies the Plan by: nodes that carry a label of the same version are not served again.
/// A try and a reboot may undo what was done on a node, and a failure removes the labels; so each try is a version of its own.
/// Where images are there already, loading them takes no time. Another image is another version in any case.
fn version(plan: &UpgradePlan, image: &str) -> String {
    let uid = plan.uid().unwrap_or_default();
    let tries = tries::failed_before(plan.status.as_ref());
    names::digest(&format!("{uid}/{image}/{tries}"))[..VERSION_LENGTH].to_owned()
}

fn container(plan: &UpgradePlan, component: &str, images: &[String]) -> Value {
    match component {
        component::IMAGE_PRELOAD => {
            let mut envs = vec![json!({"name": "HARVESTER_UPGRADEPLAN_NAME", "value": plan.name_any()})];
            envs.extend(repo_environment(plan));
            json!({"command": ["upgrade_node.sh"], "args": ["prepare"], "envs": envs})
        }
        // It has run.
        component::IMAGE_CHECK => json!({"command": ["upgrade-toolkit", "--version"]}),
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
    use api::{Phase, PhaseTransition, UpgradePlanStatus};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn plan(uid: &str, history: &[Phase]) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        plan.metadata.uid = Some(uid.to_owned());
        let changes = history.iter().map(|phase| PhaseTransition {
            phase: phase.to_string(),
            phase_transition_timestamp: Time(jiff::Timestamp::UNIX_EPOCH),
            message: None,
        });
        plan.status = Some(UpgradePlanStatus {
            phase_transition_timestamps: changes.collect(),
            ..Default::default()
        });
        plan
    }

    fn version_of(plan: &UpgradePlan, component: &str) -> String {
        let built = build(plan, &Settings::default(), component, 1, &[]).unwrap();
        built.spec.version.unwrap()
    }

    const FIRST: [Phase; 1] = [Phase::NodeUpgrading];
    const FAILED: [Phase; 2] = [Phase::NodeUpgrading, Phase::Failed];
    const SECOND: [Phase; 3] = [Phase::NodeUpgrading, Phase::Failed, Phase::ClusterUpgraded];

    #[test]
    fn r08_every_try_and_every_plan_serves_all_nodes_anew() {
        for component in [
            component::SKIP_MANIFESTS_APPLY,
            component::SKIP_MANIFESTS_REMOVE,
            component::IMAGE_PRELOAD,
            component::IMAGE_CLEANUP,
            component::IMAGE_CHECK,
        ] {
            let of = |uid: &str, history: &[Phase]| version_of(&plan(uid, history), component);
            assert_eq!(of("u", &FIRST), of("u", &FAILED), "{component}: the same try");
            assert_ne!(of("u", &FIRST), of("u", &SECOND), "{component}");
            assert_ne!(of("u", &FIRST), of("v", &FIRST), "{component}");
        }
    }

    #[test]
    fn another_image_is_shown_to_every_node() {
        let mut other = plan("u", &FIRST);
        other.spec.upgrade = Some("dev".to_owned());
        let of = |plan: &UpgradePlan| version_of(plan, component::IMAGE_PRELOAD);
        assert_ne!(of(&plan("u", &FIRST)), of(&other));
    }

    #[test]
    fn r15_and_w33_a_job_may_take_as_long_as_its_wait_and_never_zero() {
        let mut settings = Settings::default();
        let seconds = |settings: &Settings, component: &str| {
            let built = build(&plan("u", &FIRST), settings, component, 1, &[]).unwrap();
            built.spec.job_active_deadline_secs.unwrap()
        };
        assert_eq!(seconds(&settings, component::IMAGE_PRELOAD), 3600);
        assert_eq!(seconds(&settings, component::SKIP_MANIFESTS_APPLY), 600);
        assert_eq!(seconds(&settings, component::SKIP_MANIFESTS_REMOVE), 600);
        assert_eq!(seconds(&settings, component::IMAGE_CLEANUP), 600);
        assert_eq!(seconds(&settings, component::IMAGE_CHECK), 600);
        settings.deadlines.set("preload", std::time::Duration::from_millis(1));
        assert_eq!(seconds(&settings, component::IMAGE_PRELOAD), 1);
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
