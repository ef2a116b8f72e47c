//! ImagePreload: container images are loaded onto all nodes before anything is changed.
//!
//! The Plan that loads them runs the toolkit's image on every node, so it also shows that every node has that image or
//! can pull it. Where the user skips the preload, a Plan that does nothing else shows it.

use api::{Component, NodePlan, NodeState, Wait, names};

use super::{
    node_upgrade, release_digests, repo_create,
    suc_plan::{self, Wanted},
};
use crate::{
    decision::{Action, ChildKind, Need},
    draft::{Draft, Outcome},
    observed::{JobOutcome, ObservedJob},
    preflight,
};
use rules::eligibility;

/// The new release must be one that the running one may be upgraded to, and its images must fit onto the disks.
pub fn enter(draft: &mut Draft<'_>) -> Outcome {
    match eligible(draft) {
        Outcome::Done => {}
        other => return other,
    }
    if let Some(why) = node_upgrade::is_gated_for_another(draft) {
        return Outcome::Fail(why);
    }
    // A retry begins here, and the failure before it has removed the repository: it must be the same one again.
    repo_create::keep(draft);
    match release_digests::record(draft) {
        // Images that are not loaded take no space.
        Outcome::Done if concurrency(draft).is_none() => Outcome::Done,
        Outcome::Done => images_fit(draft),
        other => other,
    }
}

/// How many nodes load images at once, 0 for all; nothing when the user skips the preload.
fn concurrency(draft: &Draft<'_>) -> Option<i64> {
    let option = draft.observed.plan.spec.image_preload_option.as_ref();
    let asked = option.and_then(|option| option.concurrency).unwrap_or(0);
    (asked >= 0).then_some(asked)
}

/// The user may skip this, and skips nothing else.
fn eligible(draft: &Draft<'_>) -> Outcome {
    let skipped = draft.observed.plan.skips_version_check();
    match eligibility::of_plan(draft.status(), skipped, true, None) {
        Ok(_) => Outcome::Done,
        Err(why) => Outcome::Fail(why.to_string()),
    }
}

/// Before the ISO was there, the size of the images could only be estimated.
fn images_fit(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    match preflight::skips_disk_space(&observed.plan) {
        // What does not count is not probed.
        Ok(true) => return Outcome::Done,
        Ok(false) => {}
        Err(error) => return Outcome::Fail(error.to_string()),
    }
    let url = draft.repo_url();
    let waiting = (
        Wait::NewImages,
        url,
        "the size of the new images and the disks are being checked",
    );
    let found = match draft.ask(Need::NewImages, &observed.facts.new_images, waiting) {
        Ok(found) => found,
        Err(noted) => return noted.into(),
    };
    // What an earlier try has loaded is part of what the disk holds already.
    let is_to_load = |node: &str| draft.progress(node).state() != Some(NodeState::ImagePreloaded);
    match preflight::new_images_fit(found, is_to_load) {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Fail(error.to_string()),
    }
}

/// Runs the preload Plan on all nodes.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let nodes = suc_plan::managed_nodes(draft);
    let all = suc_plan::all_at_once(&nodes);
    let Some(asked) = concurrency(draft) else {
        return skip(draft, all);
    };
    let wanted = Wanted {
        plan: NodePlan::ImagePreload,
        concurrency: if asked == 0 { all } else { asked.min(all) },
        images: Vec::new(),
        states: Some((
            NodeState::ImagePreloading,
            NodeState::ImagePreloaded,
            NodeState::ImagePreloadFailed,
        )),
        what: Wait::ImagePreload,
        message: "images are being loaded onto the nodes",
    };
    let outcome = suc_plan::complete(draft, wanted);
    if outcome == Outcome::Done {
        // A complete Plan has served every node, also those whose Job came and went unseen.
        all_are_through(draft, nodes);
    }
    outcome
}

/// The preload is skipped, perhaps while it runs: what runs goes away first. Then every node must show that it can run the
/// toolkit's image, since nothing else has shown it yet.
fn skip(draft: &mut Draft<'_>, all: i64) -> Outcome {
    let component = Component::ImagePreload;
    let observed = draft.observed;
    let limit = observed.settings.deadlines.setting;
    let object = Some(format!(
        "Plan cattle-system/{}",
        names::suc_plan(draft.plan_name(), component)
    ));
    if observed.suc_plans.contains_key(&component) {
        draft.act(Action::Delete {
            kind: ChildKind::SucPlan,
            component,
            job_type: None,
        });
        let message = "the preload is skipped: its Plan is being removed";
        return draft.wait_within(Wait::ImagePreload, object, message, limit).into();
    }
    let is_left = |job: &ObservedJob| job.component == component && job.outcome == JobOutcome::Running;
    if observed.jobs.values().any(is_left) {
        let message = "the preload is skipped: its Jobs are being removed";
        return draft.wait_within(Wait::ImagePreload, object, message, limit).into();
    }
    let wanted = Wanted {
        plan: NodePlan::ImageCheck,
        concurrency: all,
        images: Vec::new(),
        states: None,
        what: Wait::ToolkitImage,
        message: "nodes are being checked for the toolkit's image",
    };
    let outcome = suc_plan::complete(draft, wanted);
    if outcome == Outcome::Done {
        let nodes = suc_plan::managed_nodes(draft);
        all_are_through(draft, nodes);
    }
    outcome
}

fn all_are_through(draft: &mut Draft<'_>, nodes: Vec<String>) {
    for node in nodes {
        draft.reach(&node, NodeState::ImagePreloaded, None, None);
    }
}
