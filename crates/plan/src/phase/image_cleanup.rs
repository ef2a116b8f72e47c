//! ImageCleanup: images that only the previous release used are removed from the nodes.

use api::{Component, NodePlan, NodeState, Wait, reasons};

use super::suc_plan::{self, Wanted};
use crate::{
    decision::Need,
    draft::{Draft, Outcome},
};
use rules::{PlanEvent, stale_images};

/// Runs the clean-up Plan, one node after another, if there is anything to remove.
pub fn run(draft: &mut Draft<'_>) -> Outcome {
    let observed = draft.observed;
    let images = if observed.suc_plans.contains_key(&Component::ImageCleanup) {
        Vec::new()
    } else {
        if draft.status().previous_version.is_none() {
            return Outcome::Done;
        }
        let url = format!("{}/bundle/harvester/images-lists-archive", draft.repo_url());
        let waiting = (Wait::ImageLists, url, "image lists are being read");
        let lists = match draft.ask(Need::ImageLists, &observed.facts.image_lists, waiting) {
            Ok(lists) => lists,
            Err(noted) => return noted.into(),
        };
        let (Some(previous), Some(current)) = (&lists.previous, &lists.current) else {
            let text = "Image list not available in upgrade repository; skipping stale image cleanup";
            draft.event(PlanEvent::warning(reasons::IMAGE_CLEANUP_SKIPPED, text));
            return Outcome::Done;
        };
        let stale = stale_images::stale(previous, current);
        if stale.is_empty() {
            return Outcome::Done;
        }
        stale
    };
    let wanted = Wanted {
        plan: NodePlan::ImageCleanup,
        concurrency: 1,
        images,
        states: Some((
            NodeState::ImageCleaning,
            NodeState::ImageCleaned,
            NodeState::ImageCleanFailed,
        )),
        what: Wait::ImageCleanup,
        message: "stale images are being removed from the nodes",
    };
    let outcome = suc_plan::complete(draft, wanted);
    if outcome == Outcome::Done {
        for node in suc_plan::managed_nodes(draft) {
            draft.reach(&node, NodeState::ImageCleaned, None, None);
        }
    }
    outcome
}
