//! The tiers in which Rancher's planner goes through the machines of a cluster, and how many of one may be unavailable.

use serde_json::Value;

use super::machine_plan::MachinePlan;

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// The member of etcd that the cluster began with.
    Bootstrap,
    /// The other members of etcd: whatever the strategy says, one at a time.
    Etcd,
    /// The rest of the control plane.
    ControlPlane,
    /// What has no other role.
    Worker,
}

impl Tier {
    /// In the order in which they have their turns.
    pub(crate) const ALL: [Self; 4] = [Self::Bootstrap, Self::Etcd, Self::ControlPlane, Self::Worker];

    /// Its name in Rancher's messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::Etcd => "etcd",
            Self::ControlPlane => "control plane",
            Self::Worker => "worker",
        }
    }

    /// The machine is gone through in this tier. A member of etcd that belongs to the control plane too is seen in both,
    /// but has nothing left to do in the second.
    pub(crate) const fn has(self, plan: &MachinePlan) -> bool {
        match self {
            Self::Bootstrap => plan.etcd && plan.init,
            Self::Etcd => plan.etcd && !plan.init,
            Self::ControlPlane => plan.control_plane && !plan.init,
            Self::Worker => plan.worker && !plan.etcd && !plan.control_plane,
        }
    }

    /// How many of it may be unavailable at once, as the strategy says it.
    pub(crate) fn concurrency(self, strategy: &Value) -> &str {
        let field = match self {
            Self::Bootstrap | Self::Etcd => return "1",
            Self::ControlPlane => "controlPlaneConcurrency",
            Self::Worker => "workerConcurrency",
        };
        strategy[field].as_str().unwrap_or_default()
    }

    /// How its machines are drained.
    pub(crate) fn drain_options(self, strategy: &Value) -> &Value {
        match self {
            Self::Worker => &strategy["workerDrainOptions"],
            _ => &strategy["controlPlaneDrainOptions"],
        }
    }
}

/// How many machines of so many may be unavailable; none means any number. An empty value means one, and a part
/// of a machine is a machine.
pub(crate) fn limit(concurrency: &str, machines: usize) -> usize {
    if concurrency.is_empty() {
        return 1;
    }
    if let Ok(number) = concurrency.parse() {
        return number;
    }
    let percent = concurrency.trim_end_matches('%').parse::<usize>();
    // A strategy that cannot be read moves nothing: Rancher reports an error until it is corrected.
    percent.map_or(1, |percent| (machines * percent).div_ceil(100))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn r57_nothing_means_one_zero_means_any_number_and_a_percentage_rounds_up() {
        let cases = [
            ("", 1),
            ("0", 0),
            ("3", 3),
            ("10%", 1),
            ("50%", 3),
            ("51%", 3),
            ("100%", 5),
            ("1%", 1),
        ];
        for (text, expected) in cases {
            assert_eq!(limit(text, 5), expected, "{text:?} of 5");
        }
    }

    #[test]
    fn r57_members_of_etcd_go_one_at_a_time_whatever_the_strategy_says() {
        let strategy = json!({"controlPlaneConcurrency": "0", "workerConcurrency": "20%"});
        let of = |tier: Tier| tier.concurrency(&strategy).to_owned();
        assert_eq!(Tier::ALL.map(of), ["1", "1", "0", "20%"]);
    }

    #[test]
    fn r57_the_first_machine_goes_first_then_etcd_then_the_control_plane_then_workers() {
        let management = MachinePlan {
            etcd: true,
            control_plane: true,
            worker: true,
            ..MachinePlan::default()
        };
        let first = MachinePlan {
            init: true,
            ..management.clone()
        };
        let witness = MachinePlan {
            etcd: true,
            ..MachinePlan::default()
        };
        let worker = MachinePlan {
            worker: true,
            ..MachinePlan::default()
        };
        let earliest = |plan: &MachinePlan| Tier::ALL.into_iter().find(|tier| tier.has(plan));
        assert_eq!(earliest(&first), Some(Tier::Bootstrap));
        assert_eq!(earliest(&management), Some(Tier::Etcd));
        assert_eq!(earliest(&witness), Some(Tier::Etcd));
        assert_eq!(earliest(&worker), Some(Tier::Worker));
        assert!(!Tier::Worker.has(&management));
    }

    #[test]
    fn r57_any_annotation_of_a_drain_makes_a_machine_unavailable_and_lets_it_continue() {
        let calm = MachinePlan {
            plan: "1/v2".into(),
            reached: "1/v2".into(),
            healthy: true,
            was_healthy: true,
            ..MachinePlan::default()
        };
        assert!(!calm.is_unavailable("1/v2") && !calm.is_exempt());
        for mark in 0..4 {
            let mut plan = calm.clone();
            let marks = [
                &mut plan.drain,
                &mut plan.pre_drain,
                &mut plan.post_drain,
                &mut plan.uncordon,
            ];
            "{}".clone_into(marks.into_iter().nth(mark).unwrap());
            assert!(plan.is_unavailable("1/v2") && plan.is_exempt(), "{mark}");
        }
        let applying = MachinePlan {
            reached: "0/v1".into(),
            ..calm.clone()
        };
        assert!(applying.is_unavailable("1/v2") && !applying.is_exempt());
        let ill = MachinePlan {
            healthy: false,
            ..calm.clone()
        };
        assert!(ill.is_unavailable("1/v2") && !ill.is_exempt(), "it was well once");
        assert!(
            !ill.is_unavailable("2/v3"),
            "with another plan to come only the old one counts"
        );
        assert!(MachinePlan { failed: true, ..calm }.is_exempt());
        assert!(
            MachinePlan {
                was_healthy: false,
                ..ill
            }
            .is_exempt()
        );
    }
}
