//! What the containers of our Jobs do, as far as others can see it: one file per program.
//!
//! The programs are the real ones: their steps, limits, waits, messages and decisions are those of `node`. What a step does
//! to a host is left out or takes simulated time; what it does to the cluster is done with the world's own watches,
//! since hundreds of nodes would each open theirs.
//!
//! A program may be started again after it was cut off; what it has done already it does not do twice, and its time
//! counts from the start of its pod.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use api::{
    Component, JobType, labels,
    names::{self, RepoScheme},
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use node::vm::detector;
use program::{Error, Result, report::Reporter, step::StepContext};
use release::{
    bundle::{self, Bundle, BundleError},
    manifest::{self, FileSum, Manifest},
    release_file::{self, ReleaseFile},
};

use crate::{
    Facts, RepositoryError,
    actor::kubelet::started,
    context::{Context, after, label, node_of},
};

mod board;
mod clean_images;
mod cluster_upgrade;
mod host;
mod kubevirt;
pub(crate) mod log;
mod post_drain;
mod pre_drain;
mod prepare;
pub(crate) mod repository;
mod restore_vm;
mod single_node;
mod skip_manifests;
mod suspend_agent;
mod walk;

pub use board::ProgramStep;
pub(crate) use log::LogSink;
pub use log::PrintedLine;

/// A pod whose program runs.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) world: Arc<Context>,
    pub(crate) pod: Arc<Pod>,
    /// The cluster, as the program's account.
    pub(crate) client: Client,
    pub(crate) plan: String,
    /// The node that the program works for.
    pub(crate) node: String,
    /// The release of the repository, once it was read.
    release: Arc<OnceLock<(ReleaseFile, Bundle)>>,
}

impl Call {
    async fn new(world: &Arc<Context>, pod: &Arc<Pod>) -> Self {
        let text = |key| label(&pod.metadata, key);
        Self {
            world: world.clone(),
            pod: pod.clone(),
            client: world.client_of(pod).await,
            plan: text(labels::UPGRADE_PLAN).unwrap_or_default().to_owned(),
            node: text(labels::NODE).unwrap_or(node_of(pod)).to_owned(),
            release: Arc::default(),
        }
    }

    /// A label of the pod; empty when it has none.
    fn label(&self, key: &str) -> &str {
        label(&self.pod.metadata, key).unwrap_or_default()
    }

    /// The program, by its most specific label.
    fn program(&self) -> &str {
        match self.label(labels::JOB_TYPE) {
            "" => self.label(labels::UPGRADE_COMPONENT),
            job_type => job_type,
        }
    }

    /// The image that the pod runs.
    fn image(&self) -> String {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut images = containers.filter_map(|container| container.image.clone());
        images.next().unwrap_or_default()
    }

    /// How a pod ends that runs `true` or `false`, whatever its labels say that it is.
    fn trivial(&self) -> Option<Result<()>> {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut commands = containers.filter_map(|container| container.command.as_deref());
        match commands.next() {
            Some([word]) if word == "true" => Some(Ok(())),
            Some([word]) if word == "false" => Some(Err(Error::Permanent("false".to_owned()))),
            _ => None,
        }
    }

    /// A variable of the environment that the pod gives its program.
    fn variable(&self, name: &str) -> Option<&str> {
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers);
        let mut variables = containers.flat_map(|container| container.env.iter().flatten());
        let found = variables.find(|variable| variable.name == name)?;
        found.value.as_deref().filter(|value| !value.is_empty())
    }

    /// Waits until the pod has run that long.
    async fn take(&self, duration: Duration) {
        self.world.clock.sleep_until(after(started(&self.pod), duration)).await;
    }

    /// Where the plan's repository is.
    fn repo_url(&self) -> String {
        let certificate = self.variable(names::CERTIFICATE_VARIABLE);
        names::repo_url(&self.plan, RepoScheme::by(certificate))
    }

    /// A file of the plan's repository, verified as the real programs do.
    fn file(&self, path: &str) -> Result<String> {
        let certificate = self.variable(names::CERTIFICATE_VARIABLE);
        let read = |url: String| {
            let bytes = Facts(self.world.clone()).repository(&url, certificate);
            let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            text.map_err(|error| match error {
                RepositoryError::Untrusted(why) => Error::Refused(why),
                error => Error::Transient(error.to_string()),
            })
        };
        let url = format!("{}/{path}", self.repo_url());
        let text = read(url.clone())?;
        let Some(root) = self.variable(names::MANIFEST_VARIABLE) else {
            return Ok(text);
        };
        let refused = |url: &str, why: &dyn std::fmt::Display| Error::Refused(format!("{url} is refused: {why}"));
        let manifest_url = names::repo_manifest_url(&self.plan, RepoScheme::by(certificate));
        let manifest = read(manifest_url.clone())?;
        let root = root
            .parse()
            .map_err(|error: BundleError| refused(&manifest_url, &error))?;
        let manifest = Manifest::verified(&manifest, &root).map_err(|error| refused(&manifest_url, &error))?;
        let is_it = |sum: &FileSum| sum.sha256 == manifest::sha256(text.as_bytes());
        match manifest.files.get(path) {
            Some(sum) if is_it(sum) => Ok(text),
            _ => Err(refused(&url, &"it is not the recorded one")),
        }
    }

    /// The release of the repository; it is read once.
    fn release(&self) -> Result<&(ReleaseFile, Bundle)> {
        if let Some(known) = self.release.get() {
            return Ok(known);
        }
        let text = |path| self.file(path);
        let file =
            release_file::parse(&text(release_file::PATH)?).map_err(|error| Error::Permanent(error.to_string()))?;
        let bundle = bundle::parse(&text(bundle::PATH)?).map_err(|error| Error::Permanent(error.to_string()))?;
        Ok(self.release.get_or_init(|| (file, bundle)))
    }

    /// Records and stops the VMs that cannot be moved, by the real detector.
    async fn stop_immovable_vms(&self, ctx: StepContext<'_>) -> Result<()> {
        let options = detector::Options {
            node: self.node.clone(),
            upgrade: Some(self.plan.clone()),
            shutdown: true,
        };
        let kubevirt = Arc::new(kubevirt::SimulatedKubeVirt(self.clone()));
        detector::run_on(&self.client, kubevirt, options, ctx.report)
            .await
            .map(drop)
    }
}

/// How a program has ended.
pub(crate) struct Ended {
    pub(crate) succeeded: bool,
    /// Its termination message.
    pub(crate) message: String,
}

/// Runs the program of a pod, chosen by its labels, to its end. A pod that is none of ours just succeeds.
/// With `dies_at` the program is killed when that step has begun.
pub(crate) async fn run(world: &Arc<Context>, pod: &Arc<Pod>, dies_at: Option<&'static str>) -> Ended {
    let call = Call::new(world, pod).await;
    let board = Arc::new(board::SimulatedBoard::new(&call, dies_at));
    let report = Reporter::new(world.clock.clone(), board.clone());
    let ended = tokio::select! {
        biased;
        () = board.death() => Ok(()),
        ended = log::logged(world, pod, program(&call, &report)) => ended,
    };
    if let Some(message) = board.died() {
        world.print(pod, &message);
        return Ended {
            succeeded: false,
            message,
        };
    }
    if let Err(error) = &ended {
        tracing::debug!(pod = pod.metadata.name, %error, "a program failed");
        world.print_error(pod, error);
    }
    Ended {
        succeeded: ended.is_ok(),
        message: board.said_last(),
    }
}

async fn program(call: &Call, report: &Reporter) -> Result<()> {
    if let Some(ended) = call.trivial() {
        return ended;
    }
    let Some(component) = Component::of(&call.pod.metadata) else {
        return Ok(());
    };
    match (component, JobType::of(&call.pod.metadata)) {
        (Component::ImagePreload, _) => prepare::run(call, report).await,
        (Component::ImageCleanup, _) => clean_images::run(call, report).await,
        (Component::SkipManifestsApply | Component::SkipManifestsRemove, _) => skip_manifests::run(call, report).await,
        (Component::SuspendAgent, _) => suspend_agent::run(call, report).await,
        (Component::ClusterUpgrade, _) => cluster_upgrade::run(call, report).await,
        (Component::NodeUpgrade, Some(JobType::PreDrain)) => pre_drain::run(call, report).await,
        (Component::NodeUpgrade, Some(JobType::PostDrain)) => post_drain::run(call, report).await,
        (Component::NodeUpgrade, Some(JobType::SingleNodeUpgrade)) => single_node::run(call, report).await,
        (Component::NodeUpgrade, Some(JobType::RestoreVm)) => restore_vm::run(call, report).await,
        (Component::Iso | Component::Repo | Component::ImageCheck, _) | (Component::NodeUpgrade, None) => Ok(()),
    }
}
