//! Many VMs on few nodes: an upgrade takes the time that KubeVirt's limits and the memory of the VMs give.

/// These take long: they run in the profile of the sweep, `make sweep`.
mod sweep {
    use std::time::{Duration, Instant};

    use api::{Phase, UpgradePlan};
    use cli::rehearsal::beginning;
    use clock::Clock;
    use kube::ResourceExt;

    use crate::run::{Case, in_paused_time};
    use crate::watched::Watched;

    const VMS: usize = 800;

    #[test]
    fn r33_eight_hundred_vms_on_three_nodes_take_hours_not_ninety_minutes() {
        #[allow(
            clippy::disallowed_methods,
            reason = "how long the simulation itself takes is part of what is shown"
        )]
        let real = Instant::now();
        let (took, plan, requests) = in_paused_time(async {
            let mut scenario = Case::three_nodes().scenario;
            scenario.shape.vms = VMS;
            let rehearsal = Watched::start(scenario, Clock::simulated(beginning(), 1.0)).await;
            let _manager = rehearsal.start_only_manager();
            let name = rehearsal.create(&rehearsal.plan(true, &[])).await.unwrap().name_any();
            let mut shown = String::new();
            let ended = |plan: &UpgradePlan| {
                let nodes = plan.status.iter().flat_map(|status| &status.node_upgrade_statuses);
                let nodes: Vec<String> = nodes
                    .map(|(name, node)| format!("{name} {}", node.state().unwrap_or("–")))
                    .collect();
                let now = format!("{}: {}", plan.phase().map_or("–", Phase::as_str), nodes.join(", "));
                if now != shown {
                    let at = rehearsal.clock.now().duration_since(beginning());
                    println!("{:>6} min, {:>4} s real: {now}", at.as_mins(), real.elapsed().as_secs());
                    shown = now;
                }
                plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty()
            };
            let limit = Duration::from_secs(48 * 3600);
            let plan = rehearsal.follow(&name, Some(limit), ended).await;
            let took = rehearsal.clock.now().duration_since(beginning());
            (took, plan, rehearsal.server.store().counters())
        });
        println!(
            "{VMS} VMs: {} min of cluster time, {:?} of real time",
            took.as_mins(),
            real.elapsed()
        );
        println!("{requests:?}");
        assert_eq!(plan.unwrap().phase(), Some(Phase::Succeeded));
        assert!(took.as_hours() >= 4, "{took}");
    }
}
