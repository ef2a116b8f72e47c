//! The forecast from what was seen in a rehearsal. Pure.

use std::collections::BTreeSet;

use api::{Phase, UpgradePlan};
use checks::{
    finding::{Finding, Report, Severity},
    preflight::{self, Question},
};
use jiff::Timestamp;
use plan::pipeline::PIPELINE;
use rules::migration;
use view::forecast::{BlockerKind, ClusterSize, Forecast, NodeTime, PhaseTime, Verdict, VmMove, VmOff, changes};
use world::Shape;

use super::{Asked, Course, recorder::Record};
use crate::rehearsal::from_snapshot::Seen;

/// The Version is created together with the plan: that it is not there yet is no obstacle.
const VERSION_EXISTS: &str = "P01";
/// What these find, a rehearsal finds too, with the same objects.
const PLAYED: [(&str, BlockerKind); 2] = [("P48", BlockerKind::Disk), ("P65", BlockerKind::Room)];

pub(super) fn forecast(
    asked: &Asked,
    shape: &Shape,
    seen: &Seen,
    record: &Record,
    course: &Course,
    (question, report): (&Question<'_>, &Report),
) -> Forecast {
    let mut assumed = seen.assumed.clone();
    let (refusals, errors) = findings((question, report), course, &mut assumed, shape);
    let times = Times::of(course);
    let blockers = course.blockers.clone();
    let mut found = Forecast {
        verdict: Verdict::Succeeds,
        from: shape.from.clone(),
        to: shape.to.clone(),
        taken_at: asked.snapshot.taken_at,
        cluster: ClusterSize {
            nodes: seen.layout.nodes.len(),
            vms: seen.layout.vms.len(),
            volumes: seen.layout.volumes.len(),
        },
        change_first: changes(&refusals, &blockers, &errors),
        refusals,
        blockers,
        errors,
        warnings: report.count(Severity::Warning),
        completed: course.plan.phase() == Some(Phase::Succeeded),
        seconds: times.total(),
        phases: times.phases(&course.plan),
        nodes: times.nodes(&course.plan),
        moves: times.moves(record),
        shutdowns: times.shutdowns(asked, course, record),
        unknown: unknown(seen, report),
        assumptions: assumptions(assumed, shape),
    };
    found.verdict = found.judged();
    found
}

/// What admission would refuse, and what else is an error.
fn findings(
    (question, report): (&Question<'_>, &Report),
    course: &Course,
    assumed: &mut Vec<String>,
    shape: &Shape,
) -> (Vec<Finding>, Vec<Finding>) {
    let (mut refusals, mut errors) = (Vec::new(), Vec::new());
    for finding in report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
    {
        if finding.id == VERSION_EXISTS {
            assumed.push(format!(
                "Version {} is created before the plan. In the snapshot it does not exist.",
                shape.to
            ));
            continue;
        }
        if preflight::is_refused(&finding.id, question) {
            refusals.push(finding.clone());
            continue;
        }
        let is_played = PLAYED
            .iter()
            .any(|(id, kind)| finding.id == *id && course.blockers.iter().any(|blocker| blocker.kind == *kind));
        if !is_played {
            errors.push(finding.clone());
        }
    }
    // The webhooks of the rehearsal know the same rules; what they alone refuse must not be lost.
    if let Some(why) = course.refused.as_ref().filter(|_| refusals.is_empty()) {
        refusals.push(Finding {
            id: "admission".to_owned(),
            severity: Severity::Error,
            objects: Vec::new(),
            since: None,
            message: why.clone(),
            remedy: "Resolve what the message names.".to_owned(),
            commands: Vec::new(),
            link: "docs/preflight.md".to_owned(),
            overridden_by: None,
        });
    }
    (refusals, errors)
}

fn unknown(seen: &Seen, report: &Report) -> Vec<String> {
    let mut unknown = seen.unknown.clone();
    if !report.not_checked.is_empty() {
        let ids: BTreeSet<&str> = report.not_checked.iter().map(|check| check.id.as_str()).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        unknown.push(format!("Checks of preflight that could not look: {}.", ids.join(", ")));
    }
    unknown
}

fn assumptions(assumed: Vec<String>, shape: &Shape) -> Vec<String> {
    let mut all = assumed;
    all.extend([
        "Durations are those of the simulated cluster: a link of 1 Gbit/s for live migrations, usual times for images, \
         drains, reboots and the operating system. The time that blockers take is not counted."
            .to_owned(),
        format!(
            "Components of {} and {} are the simulated ones; VMs that are stopped stay stopped.",
            shape.from, shape.to
        ),
        "Pods that are evicted do not take room from VMs on other nodes.".to_owned(),
    ]);
    all
}

/// Times of a rehearsal, without those in which it stood still.
struct Times<'a> {
    begin: Timestamp,
    end: Timestamp,
    stills: &'a [(Timestamp, Timestamp)],
}

impl<'a> Times<'a> {
    fn of(course: &'a Course) -> Self {
        let history = course
            .plan
            .status
            .as_ref()
            .map(|status| &status.phase_transition_timestamps);
        let moment = |change: Option<&api::PhaseTransition>| {
            change.map_or(Timestamp::UNIX_EPOCH, |change| change.phase_transition_timestamp.0)
        };
        Self {
            begin: moment(history.and_then(|history| history.first())),
            end: moment(history.and_then(|history| history.last())),
            stills: &course.stills,
        }
    }

    /// Seconds from one moment to the other.
    fn between(&self, begin: Timestamp, end: Timestamp) -> i64 {
        let length = |begin: Timestamp, end: Timestamp| end.duration_since(begin).as_secs().max(0);
        let still: i64 = self
            .stills
            .iter()
            .map(|(from, to)| length(begin.max(*from), end.min(*to)))
            .sum();
        (length(begin, end) - still).max(0)
    }

    /// Seconds after the beginning.
    fn after(&self, moment: Timestamp) -> i64 {
        self.between(self.begin, moment)
    }

    fn total(&self) -> i64 {
        self.after(self.end)
    }

    fn phases(&self, plan: &UpgradePlan) -> Vec<PhaseTime> {
        let history = plan
            .status
            .as_ref()
            .map(|status| status.phase_transition_timestamps.as_slice());
        let history = history.unwrap_or_default();
        let at = |phase: Phase| {
            let mut changes = history.iter();
            let change = changes.find(|change| change.phase == phase.as_str())?;
            Some(change.phase_transition_timestamp.0)
        };
        let entries = PIPELINE.iter().filter_map(|entry| Some((entry, at(entry.active)?)));
        entries
            .map(|(entry, begin)| PhaseTime {
                name: entry.name.to_owned(),
                seconds: at(entry.completed).map(|end| self.between(begin, end)),
            })
            .collect()
    }

    fn nodes(&self, plan: &UpgradePlan) -> Vec<NodeTime> {
        let statuses = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
        let mut nodes: Vec<(Option<Timestamp>, NodeTime)> = statuses
            .map(|(name, entry)| {
                let begin = entry.started_at.as_ref().map(|time| time.0);
                let end = entry.finished_at.as_ref().map(|time| time.0);
                let time = NodeTime {
                    name: name.clone(),
                    begins: begin.map(|begin| self.after(begin)),
                    seconds: begin.zip(end).map(|(begin, end)| self.between(begin, end)),
                };
                (begin, time)
            })
            .collect();
        nodes.sort_by(|a, b| (a.0.is_none(), a.0, &a.1.name).cmp(&(b.0.is_none(), b.0, &b.1.name)));
        nodes.into_iter().map(|(_, time)| time).collect()
    }

    fn moves(&self, record: &Record) -> Vec<VmMove> {
        let moves = record.moves.iter();
        moves
            .map(|moved| VmMove {
                vm: format!("{}/{}", moved.vm.0, moved.vm.1),
                from: moved.from.clone(),
                to: moved.to.clone(),
                begins: self.after(moved.began),
                seconds: self.between(moved.began, moved.ended),
            })
            .collect()
    }

    fn shutdowns(&self, asked: &Asked, course: &Course, record: &Record) -> Vec<VmOff> {
        let nodes = asked.snapshot.nodes.as_deref().unwrap_or_default();
        let hosts = migration::hosts(nodes);
        let vmis = asked.snapshot.vmis.as_deref().unwrap_or_default();
        let why = |vm: &(String, String)| {
            if course.stopped.contains(vm) {
                return "in the rehearsal, because it blocks its node".to_owned();
            }
            let mut own = vmis.iter().filter(|vmi| {
                vmi.metadata.namespace.as_ref() == Some(&vm.0) && vmi.metadata.name.as_ref() == Some(&vm.1)
            });
            let stuck = own.next().and_then(|vmi| migration::why_stuck(vmi, &hosts));
            stuck.map_or_else(|| "the upgrade shuts it down".to_owned(), |stuck| stuck.to_string())
        };
        let offs = record.offs.iter();
        offs.map(|off| VmOff {
            vm: format!("{}/{}", off.vm.0, off.vm.1),
            node: off.node.clone(),
            why: why(&off.vm),
            begins: self.after(off.began),
            seconds: off.ended.map(|ended| self.between(off.began, ended)),
            restored: off.ended.is_some(),
        })
        .collect()
    }
}
