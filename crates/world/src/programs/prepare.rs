//! Preloading images on a node: what the repository says is checked as the real program does, the archives take their
//! time, and how far they are shows on the pod.

use std::time::Duration;

use api::UpgradePlan;
use futures::FutureExt;
use kube::Api;
use node::images::{
    eligibility::{self, PlanFacts},
    prepare::{self, PROBE_INTERVAL},
    progress,
};
use program::{Error, Result, report::Reporter, step::StepContext};
use release::{
    bundle::{COMMON, RKE2},
    release_file,
};

use crate::Facts;

use super::{
    Call,
    walk::{Line, UNSEEN, walk},
};

pub(super) const LINES: &[Line] = &[
    ("wait-for-repository", |call, ctx| {
        wait_for_repository(call, ctx).boxed()
    }),
    ("read-release", |call, _| {
        async { prepare::has_archives(&call.release()?.1) }.boxed()
    }),
    ("check-version", |call, _| check_version(call).boxed()),
    ("read-image-lists", |call, _| async { read_lists(call) }.boxed()),
    ("import-common", |call, ctx| {
        bring(call, ctx, "importing", COMMON, 0).boxed()
    }),
    ("import-rke2", |call, ctx| {
        bring(call, ctx, "importing", RKE2, 1).boxed()
    }),
    ("save-rke2", |call, ctx| bring(call, ctx, "saving", RKE2, 2).boxed()),
    // It is small.
    ("save-agent", UNSEEN),
    // What was imported is there: simulated images are not lost.
    ("verify-images", UNSEEN),
];

/// How many steps share the time that a preload takes.
const SHARES: u32 = 3;

/// The real program's message comes from its command line.
const NO_PLAN: &str = "error: the following required arguments were not provided: --plan <NAME>";

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    if call.variable("HARVESTER_UPGRADEPLAN_NAME") != Some(&call.plan) {
        return Err(Error::Permanent(NO_PLAN.to_owned()));
    }
    walk(call, prepare::STEPS, &[LINES], report).await
}

async fn wait_for_repository(call: &Call, ctx: StepContext<'_>) -> Result<()> {
    while let Err(error) = call.file(release_file::PATH) {
        if matches!(error, Error::Refused(_)) {
            return Err(error);
        }
        let url = format!("{}/", call.repo_url());
        let waiting = prepare::silent(url, error.to_string());
        ctx.report.waiting(&[waiting], Some(ctx.deadline));
        call.world.clock.sleep(PROBE_INTERVAL).await;
    }
    Ok(())
}

async fn check_version(call: &Call) -> Result<()> {
    let plans: Api<UpgradePlan> = Api::all(call.client.clone());
    let plan = plans.get(&call.plan).await;
    let plan = plan.map_err(|error| Error::api(format!("read UpgradePlan {}", call.plan), error))?;
    eligibility::check(&PlanFacts::of(&plan), &call.release()?.0).map_err(|why| Error::Permanent(why.to_string()))
}

fn read_lists(call: &Call) -> Result<()> {
    for (_, archive) in call.release()?.1.archives() {
        let path = archive.list.as_str();
        let text = call.file(path)?;
        prepare::listed(path, &text)?;
    }
    Ok(())
}

/// Brings the archives of a group, one after another, in the time that the step has of the whole. A program that was
/// started again does not bring again what it brought before: its time is over.
async fn bring(call: &Call, ctx: StepContext<'_>, doing: &str, group: &str, step: u32) -> Result<()> {
    let bundle = &call.release()?.1;
    let archives = bundle.group(group);
    let groups = if doing == "saving" {
        progress::SAVED
    } else {
        progress::IMPORTED
    };
    let share = call.world.durations.preload / SHARES;
    let count = u32::try_from(archives.len()).unwrap_or(u32::MAX).max(1);
    for (index, archive) in archives.iter().enumerate() {
        let name = archive.archive.as_str();
        let size = Facts(call.world.clone()).size(name).unwrap_or_default();
        let begins = share * step + share / count * u32::try_from(index).unwrap_or(u32::MAX);
        let which = progress::place(bundle, &groups, group, index);
        // The first one is the largest, and shows progress. More messages would not be read.
        let parts = if step == 0 { 2 } else { 1 };
        for part in 0..parts {
            let ends = begins + share / count / parts * (part + 1);
            if call.has_run(ends) {
                continue;
            }
            let at = size / u64::from(parts) * u64::from(part);
            let waiting = progress::waiting(name, progress::sentence(doing, name, which, at, size));
            ctx.report.waiting(&[waiting], Some(ctx.deadline));
            call.take(ends).await;
        }
    }
    call.take(share * (step + 1)).await;
    Ok(())
}

impl Call {
    /// The pod has run that long.
    fn has_run(&self, duration: Duration) -> bool {
        crate::context::after(crate::actor::kubelet::started(&self.pod), duration) <= self.world.clock.now()
    }
}
