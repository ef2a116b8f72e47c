//! Verbs for people: what an administrator would else do with kubectl and JSON patches. Each sends one change, and prints it in
//! one line. What the API server refuses is shown in its words.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, bail};
use api::UpgradePlan;
use kube::{Api, Client, ResourceExt, api::ListParams};

pub(super) mod delete;
pub(super) mod pause;
pub(super) mod retry;
pub(super) mod snapshot;
pub(super) mod upgrade;
pub(super) mod wait;

/// The plan of this name; without a name the one that runs, else the newest.
pub(super) async fn plan(client: &Client, name: Option<&str>) -> anyhow::Result<UpgradePlan> {
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    if let Some(name) = name {
        return plans
            .get(name)
            .await
            .map_err(|error| refused("read the UpgradePlan", error));
    }
    let all = plans.list(&ListParams::default()).await;
    let all = all.map_err(|error| refused("list UpgradePlans", error))?.items;
    choose(all).context("there is no UpgradePlan; create one with `upgrade-toolkit upgrade`")
}

/// The oldest plan that has not ended, since younger ones wait for it; else the newest.
fn choose(mut plans: Vec<UpgradePlan>) -> Option<UpgradePlan> {
    plans.sort_by_cached_key(|plan| {
        let created = plan.creation_timestamp().map(|time| time.0);
        (created, plan.name_any())
    });
    let running = plans.iter().position(|plan| !has_ended(plan));
    match running {
        Some(index) => Some(plans.swap_remove(index)),
        None => plans.pop(),
    }
}

fn has_ended(plan: &UpgradePlan) -> bool {
    plan.phase().is_some_and(api::Phase::is_terminal)
}

/// The phase as it is in the status, to be shown.
fn phase_of(plan: &UpgradePlan) -> String {
    let phase = plan.status.as_ref().and_then(|status| status.current_phase.as_deref());
    phase.map_or_else(|| "not started".to_owned(), |phase| api::quoted::plain(phase, 64))
}

/// The error of a request: the API server's own words, where it had some.
fn refused(doing: &str, error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => {
            let message = api::quoted::printable(&status.message, 20 * api::quoted::LONGEST_MESSAGE);
            anyhow::anyhow!("failed to {doing}: {message}")
        }
        error => anyhow::Error::from(error).context(format!("failed to {doing}")),
    }
}

/// Prints a line on standard output.
pub(super) fn say(line: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Asks on a terminal; without one, `--yes` must be given.
fn confirm(question: &str, yes: bool) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        bail!("{question} Standard input is not a terminal, so nothing was asked: add --yes");
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(name: &str, created: &str, phase: Option<&str>) -> UpgradePlan {
        serde_json::from_value(json!({
            "apiVersion": "management.harvesterhci.io/v1beta1", "kind": "UpgradePlan",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": {}, "status": {"currentPhase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn the_plan_that_runs_is_meant_and_else_the_newest() {
        let old = plan("a-old", "2026-01-01T00:00:00Z", Some("Failed"));
        let new = plan("b-new", "2026-02-01T00:00:00Z", Some("Succeeded"));
        let running = plan("c-running", "2026-01-15T00:00:00Z", Some("NodeUpgrading"));
        let waiting = plan("d-waiting", "2026-03-01T00:00:00Z", None);
        let chosen = |plans: &[&UpgradePlan]| {
            choose(plans.iter().map(|plan| (*plan).clone()).collect()).map(|plan| plan.name_any())
        };
        assert_eq!(chosen(&[&new, &old]).as_deref(), Some("b-new"));
        assert_eq!(chosen(&[&waiting, &new, &running, &old]).as_deref(), Some("c-running"));
        assert_eq!(chosen(&[&waiting, &old]).as_deref(), Some("d-waiting"));
        assert_eq!(chosen(&[]), None);
    }
}
