//! `node prepare`, `node clean-images` and `node skip-manifests`: what runs on a node for its images and manifests.

use std::{path::PathBuf, sync::Arc};

use api::names;
use clock::Clock;
use kube::Api;
use node::{
    board::NoBoard,
    images::{
        Patience, Prepare, Repository,
        cleanup::{self, CleanImages},
        ctr::Ctr,
        prepare::{self, PlanSource},
    },
    report::Reporter,
    skip_manifests::{self, SkipManifests},
    step,
};

use super::program::{self, ProgramArgs};

/// Where the host is.
#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// Where the root of the host is mounted
    #[arg(long, value_name = "DIR", env = "HOST_DIR", default_value = "/host")]
    host_root: PathBuf,
    /// Socket of containerd; RKE2's on the host by default
    #[arg(long, value_name = "FILE", env = "CONTAINERD_ADDRESS")]
    containerd: Option<PathBuf>,
}

/// What to bring onto the node.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Brings the images of the plan's release onto this node: into containerd, and as archives for \
    the next start of RKE2. Can be repeated; a second run brings nothing.\n\n\
    Example, in a pod of the node:\n  upgrade-toolkit node prepare --plan my-upgrade"
)]
pub(crate) struct PrepareArgs {
    /// Name of the UpgradePlan
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADEPLAN_NAME")]
    plan: String,
    /// The repository; that of the plan by default
    #[arg(long, value_name = "URL")]
    repo_url: Option<String>,
    /// The program `ctr`; RKE2's on the host by default
    #[arg(long, value_name = "FILE", env = "CTR")]
    ctr: Option<PathBuf>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// Which images to remove.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Removes images with these names, from whatever registry they came, and images without a name. \
    Images that are pinned, in use or retained stay. Exit code 0 also when single images could not be removed, or when \
    the host has neither crictl nor ctr; the log says so.\n\n\
    Example, in a pod of the node:\n  upgrade-toolkit node clean-images rancher/harvester:v1.7.1 rancher/harvester-webhook:v1.7.1"
)]
pub(crate) struct CleanImagesArgs {
    /// Names of images; in the environment separated by blanks
    #[arg(value_name = "IMAGE", env = "IMAGES", value_delimiter = ' ')]
    images: Vec<String>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// Which manifests RKE2 shall pass over.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0 also when there is nothing to do: no manifests, or a host that is no server.\n\n\
    Example, in a pod of the node:\n  upgrade-toolkit node skip-manifests apply rke2-multus.yaml"
)]
pub(crate) struct SkipManifestsArgs {
    /// apply: RKE2 passes over the manifests; remove: it applies them again
    #[arg(value_name = "ACTION", env = "SKIP_ACTION")]
    action: String,
    /// File names of manifests; in the environment separated by blanks
    #[arg(value_name = "MANIFEST", env = "MANIFESTS", value_delimiter = ' ')]
    manifests: Vec<String>,
    /// Where the root of the host is mounted
    #[arg(long, value_name = "DIR", env = "HOST_DIR", default_value = "/host")]
    host_root: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// `node prepare`.
pub(crate) async fn prepare(args: PrepareArgs) -> anyhow::Result<()> {
    let client = args.program.client().await?;
    let HostArgs { host_root, containerd } = args.host;
    let ctr = match args.ctr {
        Some(program) => Ctr::new(program, host_root.join(node::images::ctr::SOCKET)),
        None => Ctr::of_host(&host_root)?,
    };
    let report = program::reporter(&client);
    let clock = report.clock.clone();
    let url = args.repo_url.unwrap_or_else(|| names::repo_url(&args.plan));
    let program = Prepare::new(
        Repository::new(&url, clock.clone(), Patience::default()),
        Box::new(ctr.at(containerd)),
        &host_root,
        PlanSource::Cluster {
            plans: Box::new(Api::all(client.clone())),
            name: args.plan,
        },
    );
    Ok(step::run_all(&program, prepare::STEPS, &report).await?)
}

/// `node clean-images`.
pub(crate) async fn clean_images(args: CleanImagesArgs) -> anyhow::Result<()> {
    let images: Vec<String> = args.images.into_iter().filter(|image| !image.is_empty()).collect();
    let HostArgs { host_root, containerd } = args.host;
    let Some(runtime) = cleanup::runtime_of_host(&host_root, containerd) else {
        return Ok(());
    };
    // Cleaning up needs no cluster: without one nothing is shown but the log.
    let report = match args.program.client().await {
        Ok(client) => program::reporter(&client),
        Err(_) => Reporter::new(Clock::system(), Arc::new(NoBoard)),
    };
    Ok(step::run_all(&CleanImages::new(runtime, images), cleanup::STEPS, &report).await?)
}

/// `node skip-manifests`.
pub(crate) async fn skip_manifests(args: SkipManifestsArgs) -> anyhow::Result<()> {
    let program = SkipManifests {
        action: args.action.parse()?,
        manifests: args.manifests.into_iter().filter(|name| !name.is_empty()).collect(),
        root: args.host_root,
    };
    // A file needs no cluster, and nothing is waited for.
    let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
    Ok(step::run_all(&program, skip_manifests::STEPS, &report).await?)
}
