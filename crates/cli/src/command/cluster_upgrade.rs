//! `cluster-upgrade`: what the Job of the ClusterUpgrade phase runs, and what it has nodes run.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use api::names;
use cluster_upgrade::installer::HelmAccount;
use cluster_upgrade::{self, Context, Found, installer::InstallerImage, manifests::Folders, pauses::Pauses};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use node::host::{
    Chroot, HostRoot,
    system_agent::{self, AgentNode},
};
use program::step;

use super::{
    job_command::{self, PinArgs, ProgramArgs},
    named_duration::{self, NamedDuration},
};

/// What to upgrade, and with what.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "Upgrades Rancher, the charts, Longhorn, KubeVirt and the addons of a cluster, from the repository of the \
    plan. Can be repeated: whatever is done already is left alone. Nodes are not touched but for a note to \
    rancher-system-agent.\n\nExit code: 0 done, 1 failed; the termination message says why.\n\n\
    Examples:\n  \
    upgrade-toolkit cluster-upgrade --plan my-upgrade\n  \
    upgrade-toolkit cluster-upgrade suspend-agent           in a pod of a node"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Name of the UpgradePlan
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADEPLAN_NAME", required = true)]
    plan: Option<String>,
    /// The repository; that of the plan by default
    #[arg(long, value_name = "URL")]
    repo_url: Option<String>,
    #[command(flatten)]
    pin: PinArgs,
    /// Folder of the addons' manifests
    #[arg(long, value_name = "DIR", default_value = "/usr/local/share/addons")]
    addons: PathBuf,
    /// Folder of the manifests of CDI
    #[arg(long, value_name = "DIR", default_value = "/usr/local/share/extra_manifests/cdi")]
    cdi: PathBuf,
    /// Folder to unpack Rancher's installer in
    #[arg(long, value_name = "DIR", default_value = "/tmp/upgrade")]
    work_dir: PathBuf,
    /// Image that nodes run, with its tag; that of this pod by default
    #[arg(long, value_name = "IMAGE", env = "HARVESTER_UPGRADE_IMAGE")]
    image: Option<String>,
    /// Account of the Jobs of system-upgrade-controller
    #[arg(
        long,
        value_name = "NAME",
        env = "UPGRADE_PLAN_SERVICE_ACCOUNT",
        default_value = "system-upgrade-controller"
    )]
    plan_service_account: String,
    /// Account that Helm upgrades Rancher as; without it the one of this program
    #[arg(long, value_name = "NAME", env = "UPGRADE_HELM_SERVICE_ACCOUNT")]
    helm_service_account: Option<String>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// On a node: prevent rancher-system-agent from restarting RKE2 until the node itself is upgraded
    #[command(alias = "hold-agent")]
    SuspendAgent {
        /// Where the root of the host is mounted
        #[arg(long, value_name = "DIR", env = "HOST_DIR", default_value = "/host")]
        host_root: PathBuf,
        /// How long the step suspend-agent may take before the program fails, as NAME=DURATION (suspend-agent=20m)
        #[arg(long = "deadline", value_name = "NAME=DURATION", value_parser = deadline, value_delimiter = ',')]
        deadlines: Vec<(String, Duration)>,
    },
}

fn deadline(text: &str) -> NamedDuration {
    // The old name of the step; the command has its alias too.
    let text = text.replacen("hold-agent=", "suspend-agent=", 1);
    named_duration::of_step(&text, system_agent::SUSPEND_STEPS)
}

/// `cluster-upgrade suspend-agent`.
async fn suspend_agent(args: &Args, host_root: &Path, deadlines: &[(String, Duration)]) -> anyhow::Result<()> {
    let node = AgentNode {
        root: HostRoot::new(host_root),
        tools: Arc::new(Chroot::new(host_root)),
    };
    let report = job_command::reporter_if_any(&args.program).await;
    let steps = step::with_limits(system_agent::SUSPEND_STEPS, deadlines);
    Ok(step::run_all(&node, &steps, &report).await?)
}

/// `cluster-upgrade`.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(Part::SuspendAgent { host_root, deadlines }) = &args.part {
        return suspend_agent(&args, host_root, deadlines).await;
    }
    let plan = args.plan.context("--plan is missing")?;
    let client = args.program.client().await?;
    let report = job_command::reporter(&client);
    let image = match args.image {
        Some(image) => image,
        None => own_image(&client).await?,
    };
    let clock = report.clock.clone();
    let repository = Arc::new(args.pin.repository(&plan, args.repo_url.as_deref(), &clock)?);
    let helm = match args.helm_service_account.filter(|name| !name.is_empty()) {
        Some(name) => {
            let config = args.program.config().await?;
            Some(HelmAccount::new(
                client.clone(),
                config,
                names::HARVESTER_NAMESPACE,
                &name,
            ))
        }
        None => None,
    };
    let context = Context {
        client: client.clone(),
        clock: clock.clone(),
        plan,
        image,
        plan_service_account: args.plan_service_account,
        repository: repository.clone(),
        installer: Arc::new(InstallerImage::new(repository, args.work_dir, clock.clone()).as_account(helm)),
        manifests: Arc::new(Folders {
            addons: args.addons,
            cdi: args.cdi,
        }),
        pauses: Pauses::default(),
        found: Found::default(),
    };
    Ok(cluster_upgrade::run(&context, &report).await?)
}

/// The image of the pod this runs in: the nodes have it, since images were preloaded.
async fn own_image(client: &Client) -> anyhow::Result<String> {
    let name = job_command::own_pod().context("this is not a pod: --image is missing")?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
    let pod = pods
        .get(&name)
        .await
        .with_context(|| format!("failed to read Pod {name}"))?;
    let containers = pod.spec.map(|spec| spec.containers).unwrap_or_default();
    let own = containers
        .iter()
        .find(|container| container.name == "apply")
        .or(containers.first());
    own.and_then(|container| container.image.clone())
        .with_context(|| format!("Pod {name} has no image"))
}
