//! What the commands have in common that run in a Job: log, cluster, board, and an end on SIGTERM.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context, bail};
use api::names::{self, RepoScheme};
use clock::Clock;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use manager::{client::for_product, external_probes::absolute, field_validation::Mode};
use node::images::{Patience, Repository};
use program::{
    board::{Board, NoBoard, PodBoard},
    report::Reporter,
};
use release::{bundle::Sha256Sum, tls::Trust};

use super::manager::{start_log_at, terminated};

/// The file whose content the kubelet reports when a container ends.
const TERMINATION_LOG: &str = "/dev/termination-log";
const FAILED: &str = "failed to find a cluster: set --kubeconfig or KUBECONFIG";

/// How to reach the cluster, and what to log.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProgramArgs {
    /// Kubeconfig of the cluster; KUBECONFIG or the pod's own account by default
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", env = "KUBECONTEXT", hide = true, global = true)]
    kubecontext: Option<String>,
    /// How much is logged: 0 what is done, 1 more, 2 everything
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        global = true
    )]
    log_level: i64,
    /// Format of the log: json or console
    #[arg(long, default_value = "json", global = true)]
    log_format: String,
    /// Older form of --log-level 1
    #[arg(long, hide = true, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, value_parser = go_bool, action = clap::ArgAction::Set)]
    debug: bool,
    /// Older form of --log-level 2
    #[arg(long, hide = true, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, value_parser = go_bool, action = clap::ArgAction::Set)]
    trace: bool,
}

/// What the repository must be.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PinArgs {
    /// SHA-256 of the repository's manifest; files that do not match are refused. Without it nothing is verified
    #[arg(long, value_name = "DIGEST", env = names::MANIFEST_VARIABLE)]
    pub(super) manifest_sha256: Option<Sha256Sum>,
    /// Certificate of the repository, in PEM; a server with another one is refused. Without it every server is trusted that
    /// answers for the repository's name
    #[arg(long, value_name = "PEM", env = names::CERTIFICATE_VARIABLE, hide_env_values = true)]
    repo_certificate: Option<String>,
}

impl PinArgs {
    /// The repository of a plan, at a URL if one is given.
    pub(super) fn repository(&self, plan: &str, url: Option<&str>, clock: &Clock) -> anyhow::Result<Repository> {
        let certificate = self.repo_certificate.as_ref().filter(|text| !text.trim().is_empty());
        let trust = certificate.map(|certificate| Trust {
            certificate: certificate.clone(),
            server_name: names::repo_server_name(plan),
        });
        let url = match url {
            Some(url) => url.to_owned(),
            None => absolute::here(&names::repo_url(plan, RepoScheme::by(trust.as_ref()))),
        };
        let repository = Repository::new(&url, trust.as_ref(), clock.clone(), Patience::default())
            .with_context(|| format!("failed to use what is in {}", names::CERTIFICATE_VARIABLE))?;
        Ok(repository.pinned_to(self.manifest_sha256.clone()))
    }
}

impl ProgramArgs {
    /// A client of the cluster.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let client = Client::try_from(self.config().await?).context(FAILED)?;
        Ok(for_product(client, field_validation()).0)
    }

    /// How the cluster is reached.
    pub(super) async fn config(&self) -> anyhow::Result<Config> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) if !path.as_os_str().is_empty() => Some(Kubeconfig::read_from(path).context(FAILED)?),
            _ if self.kubecontext.is_some() => Some(Kubeconfig::read().context(FAILED)?),
            _ => None,
        };
        match kubeconfig {
            None => Config::infer().await.context(FAILED),
            Some(kubeconfig) => {
                let options = KubeConfigOptions {
                    context: self.kubecontext.clone(),
                    ..KubeConfigOptions::default()
                };
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .context(FAILED)
            }
        }
    }

    fn level(&self) -> i64 {
        let older = match (self.trace, self.debug) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        self.log_level.max(older)
    }
}

/// Runs a program until it ends or gets a signal.
pub(super) fn run(args: &ProgramArgs, program: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    start_log_at(&args.log_format, args.level());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            ended = program => ended.map(|()| ExitCode::SUCCESS),
            // The first process of a container is not ended by a signal without a handler.
            () = terminated() => bail!("ended by a signal; it can be run again"),
        }
    });
    ended.inspect_err(|error| leave_termination_message(&format!("{error:#}")))
}

/// Reports what a program waits for, in the log and on the pod that it runs in.
pub(super) fn reporter(client: &Client) -> Reporter {
    Reporter::new(Clock::system(), board(client.clone()))
}

/// The same for programs that need no cluster: without one nothing is shown but the log.
pub(super) async fn reporter_if_any(args: &ProgramArgs) -> Reporter {
    match args.client().await {
        Ok(client) => reporter(&client),
        Err(_) => Reporter::new(Clock::system(), Arc::new(NoBoard)),
    }
}

/// What the API server does about fields that it does not know: our tests have it refuse them.
pub(super) fn field_validation() -> Mode {
    Mode::of(variable("UPGRADE_TOOLKIT_FIELD_VALIDATION").as_deref())
}

/// The pod this runs in, if it runs in one.
fn board(client: Client) -> Arc<dyn Board> {
    // Pods of system-upgrade-controller are in another namespace than ours.
    let namespace = match variable("SYSTEM_UPGRADE_POD_NAME") {
        Some(_) => names::CATTLE_NAMESPACE,
        None => names::HARVESTER_NAMESPACE,
    };
    match own_pod() {
        Some(pod) => Arc::new(PodBoard::new(client, namespace, &pod, termination_log())),
        None => Arc::new(NoBoard),
    }
}

/// A pod with another `terminationMessagePath` says so in its environment.
fn termination_log() -> PathBuf {
    variable("TERMINATION_LOG").map_or_else(|| PathBuf::from(TERMINATION_LOG), PathBuf::from)
}

/// Writes a termination message unless a step has: an error before the first step, or a signal, would otherwise be only in the log.
pub(super) fn leave_termination_message(message: &str) {
    let log = termination_log();
    // The kubelet makes the file, empty. Without it nothing reads it.
    let is_unsaid = std::fs::metadata(&log).is_ok_and(|found| found.is_file() && found.len() == 0);
    if own_pod().is_some()
        && is_unsaid
        && let Err(error) = std::fs::write(&log, message)
    {
        tracing::debug!(%error, path = %log.display(), "failed to leave a termination message");
    }
}

/// The name of the pod this runs in, if it runs in one.
pub(super) fn own_pod() -> Option<String> {
    // Every shell has a HOSTNAME; only in a cluster is it that of a pod, and there only of one that does not share the
    // network of its node.
    let is_node = |host: &String| {
        let nodes = ["HARVESTER_UPGRADE_NODE_NAME", "SYSTEM_UPGRADE_NODE_NAME"];
        nodes.into_iter().filter_map(variable).any(|node| node == *host)
    };
    let host = variable("KUBERNETES_SERVICE_HOST").and_then(|_| variable("HOSTNAME"));
    let host = host.filter(|host| !is_node(host));
    let given = variable("HARVESTER_UPGRADE_POD_NAME").or_else(|| variable("SYSTEM_UPGRADE_POD_NAME"));
    given.or(host)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A text that is no truth value.
#[derive(Debug, thiserror::Error)]
#[error("it is neither true nor false")]
pub(super) struct NotBool;

/// A truth value as Go reads it.
pub(super) fn go_bool(text: &str) -> Result<bool, NotBool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(NotBool),
    }
}

/// What must be given and may not be empty. Missing, it is a failure as any other: exit code 1.
pub(super) fn required(what: &str, given: Option<String>) -> anyhow::Result<String> {
    match given.filter(|value| !value.is_empty()) {
        Some(value) => Ok(value),
        None => bail!("{what} is missing; see --help"),
    }
}
