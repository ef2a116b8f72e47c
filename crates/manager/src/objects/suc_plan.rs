//! The system-upgrade-controller Plans that run once on every node.

use api::{NodePlan, UpgradePlan, foreign::suc, owner};
use kube::ResourceExt;
use plan::{image, observed::Settings};
use rules::{
    deadlines::Deadlines,
    suc_plan::{self, Wanted},
    tries,
};
use serde_json::{Value, json};

use super::repo_environment;

/// The Plan that does something on every node.
///
/// # Errors
/// Never for a plan that the API server accepted.
pub fn build(
    plan: &UpgradePlan,
    settings: &Settings,
    node_plan: NodePlan,
    concurrency: i64,
    images: &[String],
) -> Result<suc::Plan, serde_json::Error> {
    let mut container = container(plan, node_plan, images);
    let image = image::of(plan, settings).to_string();
    let version = version(plan, &image);
    // Whole, so that the version can say what it is for. A security context of ours replaces the controller's own.
    container["image"] = json!(image);
    container["securityContext"] = match node_plan {
        NodePlan::ImageCheck => super::job::unprivileged(),
        _ => json!({"privileged": true, "runAsUser": 0}),
    };
    suc_plan::build(Wanted {
        upgrade_plan: &plan.name_any(),
        owner: owner::controller_reference(&plan.metadata),
        component: node_plan.component(),
        concurrency,
        deadline_seconds: deadline_seconds(node_plan, &settings.deadlines),
        service_account: &settings.accounts.node_plans(),
        version: &version,
        container,
    })
}

/// How long a Job may run on a node: as long as its wait may take.
fn deadline_seconds(node_plan: NodePlan, deadlines: &Deadlines) -> u64 {
    let limit = match node_plan {
        NodePlan::ImagePreload => deadlines.preload,
        NodePlan::ImageCheck => deadlines.toolkit_image,
        NodePlan::ImageCleanup => deadlines.cleanup,
        NodePlan::SkipManifestsApply | NodePlan::SkipManifestsRemove => deadlines.skip_manifests,
    };
    limit.as_secs()
}

/// What distinguishes the Plan from others of its name. A retry and a reboot may undo what was done on a node, and a failure removes
/// the labels; so each try is a version of its own. Where images are there already, loading them takes no time. Another image
/// is another version in any case.
fn version(plan: &UpgradePlan, image: &str) -> String {
    let uid = plan.uid().unwrap_or_default();
    let tries = tries::failed_before(plan.status.as_ref());
    suc_plan::version(&format!("{uid}/{image}/{tries}"))
}

fn container(plan: &UpgradePlan, node_plan: NodePlan, images: &[String]) -> Value {
    let skip_manifests = |action: &str| {
        json!({
            "command": ["upgrade-toolkit", "node", "skip-manifests", action],
            "envs": [{"name": "MANIFESTS", "value": "rke2-multus.yaml"}],
        })
    };
    match node_plan {
        NodePlan::ImagePreload => {
            let mut envs = vec![json!({"name": "HARVESTER_UPGRADEPLAN_NAME", "value": plan.name_any()})];
            envs.extend(repo_environment(plan));
            json!({"command": ["upgrade_node.sh"], "args": ["prepare"], "envs": envs})
        }
        // It has run.
        NodePlan::ImageCheck => json!({"command": ["upgrade-toolkit", "--version"]}),
        NodePlan::ImageCleanup => json!({
            "command": ["upgrade-toolkit", "node", "clean-images"],
            "envs": [{"name": "IMAGES", "value": images.join(" ")}],
        }),
        NodePlan::SkipManifestsApply => skip_manifests("apply"),
        NodePlan::SkipManifestsRemove => skip_manifests("remove"),
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

    fn version_of(plan: &UpgradePlan, node_plan: NodePlan) -> String {
        let built = build(plan, &Settings::default(), node_plan, 1, &[]).unwrap();
        built.spec.version.unwrap()
    }

    const FIRST: [Phase; 1] = [Phase::NodeUpgrading];
    const FAILED: [Phase; 2] = [Phase::NodeUpgrading, Phase::Failed];
    const SECOND: [Phase; 3] = [Phase::NodeUpgrading, Phase::Failed, Phase::ClusterUpgraded];

    #[test]
    fn r08_every_try_and_every_plan_serves_all_nodes_anew() {
        for node_plan in [
            NodePlan::SkipManifestsApply,
            NodePlan::SkipManifestsRemove,
            NodePlan::ImagePreload,
            NodePlan::ImageCleanup,
            NodePlan::ImageCheck,
        ] {
            let of = |uid: &str, history: &[Phase]| version_of(&plan(uid, history), node_plan);
            assert_eq!(of("u", &FIRST), of("u", &FAILED), "{node_plan:?}: the same try");
            assert_ne!(of("u", &FIRST), of("u", &SECOND), "{node_plan:?}");
            assert_ne!(of("u", &FIRST), of("v", &FIRST), "{node_plan:?}");
        }
    }

    #[test]
    fn another_image_is_shown_to_every_node() {
        let mut other = plan("u", &FIRST);
        other.spec.upgrade = Some("dev".to_owned());
        let of = |plan: &UpgradePlan| version_of(plan, NodePlan::ImagePreload);
        assert_ne!(of(&plan("u", &FIRST)), of(&other));
    }

    #[test]
    fn r15_and_w33_a_job_may_take_as_long_as_its_wait_and_never_zero() {
        let mut settings = Settings::default();
        let seconds = |settings: &Settings, node_plan: NodePlan| {
            let built = build(&plan("u", &FIRST), settings, node_plan, 1, &[]).unwrap();
            built.spec.job_active_deadline_secs.unwrap()
        };
        assert_eq!(seconds(&settings, NodePlan::ImagePreload), 3600);
        assert_eq!(seconds(&settings, NodePlan::SkipManifestsApply), 600);
        assert_eq!(seconds(&settings, NodePlan::SkipManifestsRemove), 600);
        assert_eq!(seconds(&settings, NodePlan::ImageCleanup), 600);
        assert_eq!(seconds(&settings, NodePlan::ImageCheck), 600);
        settings.deadlines.set("preload", std::time::Duration::from_millis(1));
        assert_eq!(seconds(&settings, NodePlan::ImagePreload), 1);
    }

    #[test]
    fn r01_programs_of_plans_get_their_environment_by_the_name_that_the_controller_reads() {
        let plan = UpgradePlan::new("up", Default::default());
        for (node_plan, variable, value) in [
            (NodePlan::ImagePreload, "HARVESTER_UPGRADEPLAN_NAME", "up"),
            (NodePlan::ImageCleanup, "IMAGES", "a/b:c d/e:f"),
            (NodePlan::SkipManifestsApply, "MANIFESTS", "rke2-multus.yaml"),
            (NodePlan::SkipManifestsRemove, "MANIFESTS", "rke2-multus.yaml"),
        ] {
            let images = ["a/b:c".to_owned(), "d/e:f".to_owned()];
            let built = build(&plan, &Settings::default(), node_plan, 1, &images).unwrap();
            let upgrade = serde_json::to_value(built).unwrap()["spec"]["upgrade"].take();
            assert_eq!(
                upgrade["envs"],
                json!([{"name": variable, "value": value}]),
                "{node_plan:?}"
            );
            // The API server drops it: nothing may stand there, neither ours nor what is kept of others.
            assert_eq!(upgrade.get("env"), None, "{node_plan:?}");
        }
    }
}
