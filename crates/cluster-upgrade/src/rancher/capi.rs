//! The local cluster as Cluster API sees it: provisioned, and steadily so.

use std::time::Duration;

use api::{ProgramWait, foreign::capi::Cluster, names};
use jiff::Timestamp;
use kube::{ResourceExt, runtime::watcher};

use crate::context::Context;
use program::{
    error::Result,
    report::{Look, Waiting},
    step::StepContext,
};

const TICK: Duration = Duration::from_secs(5);

/// Waits until the local cluster has been provisioned for a while.
pub(super) async fn wait(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let clusters = context.namespaced::<Cluster>(names::FLEET_NAMESPACE);
    let called = clusters.called(names::LOCAL_CLUSTER);
    let one = watcher::Config::default().fields(&format!("metadata.name={}", names::LOCAL_CLUSTER));
    // Rancher's controllers take turns, and the cluster looks settled between them.
    let enough = context.pauses.provisioned;
    let mut since = None;
    clusters
        .watch(ctx, one, Some(TICK), |found| {
            let cluster = found.iter().find(|cluster| cluster.name_any() == names::LOCAL_CLUSTER);
            let lacks = lacks(cluster.map(AsRef::as_ref));
            let message = match steady(&mut since, lacks.is_none(), context.clock.now(), enough) {
                true => return Look::Done,
                false => lacks.map_or_else(
                    || format!("has been provisioned for less than {} seconds", enough.as_secs()),
                    |lacks| format!("is not provisioned: {lacks}"),
                ),
            };
            Look::wait(Waiting {
                what: ProgramWait::CapiCluster,
                object: called.clone(),
                message: format!("{called} {message}"),
            })
        })
        .await
}

/// What the cluster still lacks currently.
#[must_use]
pub(super) fn lacks(cluster: Option<&Cluster>) -> Option<String> {
    let Some(cluster) = cluster else {
        return Some("it does not exist".to_owned());
    };
    let phase = cluster.status.phase.as_deref().unwrap_or("unknown");
    if phase != "Provisioned" {
        return Some(format!("its phase is {phase}"));
    }
    (cluster.status.observed_generation != cluster.metadata.generation)
        .then(|| "its last change has not been observed yet".to_owned())
}

/// Whether something has been so for long enough. Whenever it is not, the time starts again.
fn steady(since: &mut Option<Timestamp>, is_so: bool, now: Timestamp, enough: Duration) -> bool {
    if !is_so {
        *since = None;
        return false;
    }
    let since = *since.get_or_insert(now);
    now.duration_since(since).unsigned_abs() >= enough
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_must_hold_without_a_break() {
        const ENOUGH: Duration = Duration::from_secs(30);
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let mut since = None;
        assert!(!steady(&mut since, true, at(0), ENOUGH));
        assert!(!steady(&mut since, true, at(29), ENOUGH));
        assert!(!steady(&mut since, false, at(30), ENOUGH));
        assert!(!steady(&mut since, true, at(31), ENOUGH));
        assert!(!steady(&mut since, true, at(60), ENOUGH));
        assert!(steady(&mut since, true, at(61), ENOUGH));
    }

    #[test]
    fn the_phase_and_the_generation_count() {
        let mut cluster = Cluster::named("local");
        cluster.metadata.generation = Some(2);
        cluster.status.phase = Some("Provisioned".into());
        cluster.status.observed_generation = Some(1);
        assert!(lacks(Some(&cluster)).unwrap().contains("not been observed"));
        cluster.status.observed_generation = Some(2);
        assert_eq!(lacks(Some(&cluster)), None);
        cluster.status.phase = Some("Provisioning".into());
        assert!(lacks(Some(&cluster)).is_some());
        assert!(lacks(None).is_some());
    }
}
