//! Upgrades that go well, looked at every minute: nothing in them calls for an administrator.

use std::{collections::BTreeSet, time::Duration};

use api::{Phase, UpgradePlan};
use checks::{doctor::examine, finding::Severity};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::play::{EVERY, follow, plan, start};
use crate::run::{Case, in_paused_time};

/// How an upgrade went: how often it was looked at, and what was found.
struct Looked {
    moments: usize,
    infos: BTreeSet<String>,
    false_findings: Vec<String>,
    ended: Option<Phase>,
}

/// Runs an upgrade; a paused node is resumed after an hour.
fn look(case: &Case) -> Looked {
    let mut looked = Looked {
        moments: 0,
        infos: BTreeSet::new(),
        false_findings: Vec::new(),
        ended: None,
    };
    in_paused_time(async {
        let (rehearsal, name, _manager) = start(case).await;
        if !case.pause.is_empty() {
            let plans: Api<UpgradePlan> = Api::all(rehearsal.server.client());
            let (clock, name) = (rehearsal.clock.clone(), name.clone());
            tokio::spawn(async move {
                clock.sleep(Duration::from_hours(3)).await;
                let patch = json!({"spec": {"nodeUpgradeOption": {"pauseNodes": []}}});
                plans
                    .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                    .await
                    .unwrap();
            });
        }
        follow(&rehearsal, EVERY, |snapshot| {
            looked.moments += 1;
            looked.ended = plan(snapshot).and_then(UpgradePlan::phase);
            for finding in examine(snapshot).findings {
                let text = format!("{} {}: {}", finding.id, finding.objects[0], finding.message);
                if finding.severity == Severity::Info {
                    looked.infos.insert(finding.id);
                } else if looked.false_findings.len() < 20 {
                    looked
                        .false_findings
                        .push(format!("{:?} {} {text}", snapshot.taken_at, finding.severity));
                }
            }
            false
        })
        .await;
    });
    looked
}

fn of(nodes: usize, vms: usize) -> Case {
    let mut case = Case::three_nodes();
    case.scenario.shape.nodes = nodes;
    case.scenario.shape.vms = vms;
    case.restore_vm = true;
    case
}

#[test]
fn an_upgrade_that_goes_well_has_no_finding_that_calls_for_an_administrator() {
    let mut paused = of(3, 3);
    paused.pause = vec!["node-2".to_owned()];
    let mut without_restore = of(3, 3);
    without_restore.restore_vm = false;
    let mut large_volumes = of(3, 9);
    large_volumes.scenario.durations.rebuild = Duration::from_mins(25);
    let mut large_vms = of(3, 12);
    large_vms.scenario.durations.migration_per_gib = Duration::from_secs(60);
    let cases = [
        ("1 node", of(1, 3)),
        ("3 nodes", without_restore),
        ("3 nodes, restoreVM", of(3, 6)),
        ("3 nodes, one paused for hours", paused),
        ("3 nodes, large volumes", large_volumes),
        ("3 nodes, slow migrations", large_vms),
        ("8 nodes", of(8, 16)),
    ];
    let mut faults = Vec::new();
    println!("{:<30} {:>7} {:>5}  infos", "upgrade", "looked", "false");
    for (name, case) in &cases {
        let looked = look(case);
        let infos: Vec<&str> = looked.infos.iter().map(String::as_str).collect();
        println!(
            "{name:<30} {:>7} {:>5}  {}",
            looked.moments,
            looked.false_findings.len(),
            infos.join(" ")
        );
        assert_eq!(looked.ended, Some(Phase::Succeeded), "{name}");
        assert!(looked.moments > 20, "{name}: looked at {} times", looked.moments);
        faults.extend(
            looked
                .false_findings
                .into_iter()
                .map(|fault| format!("{name}: {fault}")),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
