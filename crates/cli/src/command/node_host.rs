//! `node pre-drain`, `node post-drain`, `node single-node-upgrade`: what is done on a node, as root of its host.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use api::names;
use node::{
    host::{Chroot, HostRoot},
    limits::Limits,
    node_run::{CONTAINER, NodeRun, OwnPod},
    post_drain, pre_drain, single_node,
};
use program::report::Reporter;

use super::{
    job_command::{self, PinArgs, ProgramArgs},
    named_duration::{self, NamedDuration},
};

/// Which node, and where its host is.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs in a privileged pod on the node, with the host's root mounted. Can be run again: what is done \
    is not done twice. Exit code: 0 done; 1 it failed, the termination message says at which step and why; 2 wrong usage.\n\n\
    Examples, in a pod of the node:\n  \
    upgrade-toolkit node pre-drain --plan my-upgrade --node node-1 --pod my-pod\n  \
    upgrade-toolkit node post-drain --plan my-upgrade --node node-1 --pod my-pod\n  \
    upgrade-toolkit node single-node-upgrade --plan my-upgrade --node node-1 --pod my-pod"
)]
pub(crate) struct Args {
    /// Name of the UpgradePlan
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADEPLAN_NAME")]
    plan: String,
    /// Name of the node that this runs on
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_NODE_NAME")]
    node: String,
    /// Name of the pod that this runs in; the node reboots once its container has ended
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADE_POD_NAME")]
    pod: Option<String>,
    /// Namespace of that pod
    #[arg(long, value_name = "NAMESPACE", default_value = names::HARVESTER_NAMESPACE)]
    pod_namespace: String,
    /// Container in that pod
    #[arg(long, value_name = "NAME", default_value = CONTAINER)]
    container: String,
    /// Where the root of the host is mounted
    #[arg(long, value_name = "DIR", env = "HOST_DIR", default_value = "/host")]
    host_root: PathBuf,
    /// The repository; that of the plan by default
    #[arg(long, value_name = "URL")]
    repo_url: Option<String>,
    #[command(flatten)]
    pin: PinArgs,
    /// The program elemental of this container; without it the host's own is used
    #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/elemental")]
    elemental: PathBuf,
    /// How long a step may take before the program fails, as NAME=DURATION (vms=24h); may be repeated
    #[arg(long = "deadline", value_name = "NAME=DURATION", value_parser = deadline, value_delimiter = ',')]
    deadlines: Vec<(String, Duration)>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// `NAME=DURATION`, both checked.
fn deadline(text: &str) -> NamedDuration {
    let is_known = |name: &str| Limits::default().set(name, Duration::ZERO);
    let known = Limits::TABLE.iter().map(|row| row.0);
    named_duration::parse(text, "vms=24h", is_known, known)
}

impl Args {
    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for (name, limit) in &self.deadlines {
            // The parser knows the names.
            limits.set(name, *limit);
        }
        limits
    }

    async fn begin(&self) -> anyhow::Result<(NodeRun, Limits, Reporter)> {
        let client = self.program.client().await?;
        let report = job_command::reporter(&client);
        // Its hostname is not its name: it shares that of its node.
        let pod = self.pod.clone().filter(|name| !name.is_empty());
        let pod = pod.context("the name of this pod is not known: set --pod or HARVESTER_UPGRADE_POD_NAME")?;
        let repository = self
            .pin
            .repository(&self.plan, self.repo_url.as_deref(), &report.clock)?;
        let run = NodeRun {
            client,
            plan: self.plan.clone(),
            node: self.node.clone(),
            pod: OwnPod {
                namespace: self.pod_namespace.clone(),
                name: pod,
                container: self.container.clone(),
            },
            root: HostRoot::new(&self.host_root),
            tools: Arc::new(Chroot::new(&self.host_root)),
            repository: Arc::new(repository),
            elemental: self.elemental.clone(),
            release: OnceLock::new(),
        };
        Ok((run, self.limits(), report))
    }
}

/// `node pre-drain`.
pub(crate) async fn pre_drain(args: &Args) -> anyhow::Result<()> {
    let (run, limits, report) = args.begin().await?;
    Ok(pre_drain::run(&run, &limits, &report).await?)
}

/// `node post-drain`.
pub(crate) async fn post_drain(args: &Args) -> anyhow::Result<()> {
    let (run, limits, report) = args.begin().await?;
    Ok(post_drain::run(&run, &limits, &report).await?)
}

/// `node single-node-upgrade`.
pub(crate) async fn single_node(args: &Args) -> anyhow::Result<()> {
    let (run, limits, report) = args.begin().await?;
    Ok(single_node::run(&run, &limits, &report).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_named_and_bad_ones_are_explained() {
        assert_eq!(
            deadline("vms=24h").unwrap(),
            ("vms".to_owned(), Duration::from_hours(24))
        );
        for (text, why) in [
            ("vms", "is not NAME=DURATION"),
            ("lunch=1h", "there is no deadline \"lunch\"; known are host, "),
            ("rke2=soon", "\"soon\" is not a duration"),
            ("rke2=0s", "must be longer than nothing"),
        ] {
            let error = deadline(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
