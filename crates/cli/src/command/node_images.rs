//! `node prepare`, `node clean-images` and `node skip-manifests`: what runs on a node for its images and manifests.

use std::{path::PathBuf, time::Duration};

use kube::Api;
use node::{
    host::HostRoot,
    images::{
        Prepare,
        cleanup::{self, CleanImages},
        ctr::{Ctr, socket_of_host},
        prepare::{self, PlanSource},
    },
    skip_manifests::{self, SkipManifests},
};
use program::step;

use super::{
    job_command::{self, PinArgs, ProgramArgs},
    named_duration::{self, NamedDuration},
};

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

/// Which images to load.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Loads the images of the plan's release on this node: into containerd, and as archives for \
    the next start of RKE2. Can be repeated; a second run loads nothing.\n\n\
    Example, in a pod of the node:\n  upgrade-toolkit node prepare --plan my-upgrade"
)]
pub(crate) struct PrepareArgs {
    /// Name of the UpgradePlan
    #[arg(long, value_name = "NAME", env = "HARVESTER_UPGRADEPLAN_NAME")]
    plan: String,
    /// The repository; that of the plan by default
    #[arg(long, value_name = "URL")]
    repo_url: Option<String>,
    #[command(flatten)]
    pin: PinArgs,
    /// The program `ctr`; RKE2's on the host by default
    #[arg(long, value_name = "FILE", env = "CTR")]
    ctr: Option<PathBuf>,
    /// How long a step may take before the program fails, as NAME=DURATION (import-common=2h); may be repeated
    #[arg(long = "deadline", value_name = "NAME=DURATION", value_parser = prepare_deadline, value_delimiter = ',')]
    deadlines: Vec<(String, Duration)>,
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
    /// How long all of it may take, as NAME=DURATION (clean-images=2h); what is left then is named
    #[arg(long = "deadline", value_name = "NAME=DURATION", value_parser = clean_images_deadline, value_delimiter = ',')]
    deadlines: Vec<(String, Duration)>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// Which manifests RKE2 skips.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0 also when there is nothing to do: no manifests, or a host that is no server.\n\n\
    Example, in a pod of the node:\n  upgrade-toolkit node skip-manifests apply rke2-multus.yaml"
)]
pub(crate) struct SkipManifestsArgs {
    /// apply: RKE2 skips the manifests; remove: it applies them again
    #[arg(value_name = "ACTION", env = "SKIP_ACTION")]
    action: String,
    /// File names of manifests; in the environment separated by blanks
    #[arg(value_name = "MANIFEST", env = "MANIFESTS", value_delimiter = ' ')]
    manifests: Vec<String>,
    /// Where the root of the host is mounted
    #[arg(long, value_name = "DIR", env = "HOST_DIR", default_value = "/host")]
    host_root: PathBuf,
    /// How long it may take before the program gives up, as NAME=DURATION (skip-manifests=20m)
    #[arg(long = "deadline", value_name = "NAME=DURATION", value_parser = skip_manifests_deadline, value_delimiter = ',')]
    deadlines: Vec<(String, Duration)>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

fn prepare_deadline(text: &str) -> NamedDuration {
    named_duration::of_step(text, prepare::STEPS)
}

fn clean_images_deadline(text: &str) -> NamedDuration {
    named_duration::of_step(text, cleanup::STEPS)
}

fn skip_manifests_deadline(text: &str) -> NamedDuration {
    named_duration::of_step(text, skip_manifests::STEPS)
}

/// `node prepare`.
pub(crate) async fn prepare(args: PrepareArgs) -> anyhow::Result<()> {
    let client = args.program.client().await?;
    let HostArgs { host_root, containerd } = args.host;
    let ctr = match args.ctr {
        Some(program) => Ctr::new(program, socket_of_host(&host_root)?),
        None => Ctr::of_host(&host_root)?,
    };
    let report = job_command::reporter(&client);
    let clock = report.clock.clone();
    let repository = args.pin.repository(&args.plan, args.repo_url.as_deref(), &clock)?;
    let program = Prepare::new(
        repository,
        Box::new(ctr.at(containerd)),
        &host_root,
        PlanSource::Cluster {
            plans: Box::new(Api::all(client.clone())),
            name: args.plan,
        },
    );
    let steps = step::with_limits(prepare::STEPS, &args.deadlines);
    Ok(step::run_all(&program, &steps, &report).await?)
}

/// `node clean-images`.
pub(crate) async fn clean_images(args: CleanImagesArgs) -> anyhow::Result<()> {
    let images: Vec<String> = args.images.into_iter().filter(|image| !image.is_empty()).collect();
    let HostArgs { host_root, containerd } = args.host;
    let Some(runtime) = cleanup::runtime_of_host(&host_root, containerd) else {
        return Ok(());
    };
    let report = job_command::reporter_if_any(&args.program).await;
    let steps = step::with_limits(cleanup::STEPS, &args.deadlines);
    Ok(cleanup::run(&CleanImages::new(runtime, images), &steps, &report).await?)
}

/// `node skip-manifests`.
pub(crate) async fn skip_manifests(args: SkipManifestsArgs) -> anyhow::Result<()> {
    let program = SkipManifests {
        action: args.action.parse()?,
        manifests: args.manifests.into_iter().filter(|name| !name.is_empty()).collect(),
        root: HostRoot::new(args.host_root),
    };
    let report = job_command::reporter_if_any(&args.program).await;
    let steps = step::with_limits(skip_manifests::STEPS, &args.deadlines);
    Ok(step::run_all(&program, &steps, &report).await?)
}
