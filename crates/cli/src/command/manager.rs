//! `manager`: the operator, in a cluster or from a developer's machine.

mod workload_image;

use std::{fmt::Write as _, io::IsTerminal, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use api::image::Image;
use clock::Clock;
use kube::client::ClientBuilder;
use manager::{
    client::for_product,
    external_probes::{Kubelets, Network, kubelets::Credentials},
    lease::LeaseTiming,
    metrics::{
        Metrics,
        layer::CountRequests,
        server::{Access, MetricsConfig},
    },
    run::{Config, run as run_manager},
    tls::files::Files,
    webhook::configurations::service_names,
};
use plan::observed::{Accounts, RepoServer, Settings};
use rules::deadlines::Deadlines;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use workload_image::{image, own_image, repository, tag};

use super::{
    go_flags::GoFlags,
    job_command::{field_validation, go_bool},
    listen::{listen, listen_blocking},
    manager_webhook,
    named_duration::{self, NamedDuration},
};

/// How the manager runs.
#[derive(Debug, clap::Args)]
// As Go does: the last of several wins, and a truth value may be given.
#[command(
    args_override_self = true,
    after_help = "Examples:\n  \
    upgrade-toolkit manager --leader-elect\n  \
    KUBECONFIG=~/.kube/config upgrade-toolkit manager --health-probe-bind-address 127.0.0.1:8081"
)]
pub(super) struct Args {
    /// Address of /healthz and /readyz; 0 disables them
    #[arg(long, default_value = ":8081")]
    health_probe_bind_address: String,
    /// Address of /metrics; 0 disables it
    #[arg(long, default_value = "0")]
    metrics_bind_address: String,
    /// Serve metrics over HTTPS, to authorized clients; otherwise over plain HTTP, without authentication
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = go_bool)]
    metrics_secure: bool,
    /// Directory with the certificate of the metrics; without it the manager makes its own
    #[arg(long)]
    metrics_cert_path: Option<PathBuf>,
    /// File of the certificate, in --metrics-cert-path
    #[arg(long, default_value = "tls.crt")]
    metrics_cert_name: String,
    /// File of the key, in --metrics-cert-path
    #[arg(long, default_value = "tls.key")]
    metrics_cert_key: String,
    /// Use leader election, so only one manager is active
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true",
          require_equals = true, value_parser = go_bool)]
    leader_elect: bool,
    /// Namespace of the lease
    #[arg(long, env = "POD_NAMESPACE", default_value = "harvester-system")]
    leader_election_namespace: String,
    /// How long the lease is valid without a renewal; it is renewed after each third of this time
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = lease_duration)]
    leader_elect_lease_duration: Duration,
    /// Identity of this manager in the leader election
    #[arg(long, env = "POD_NAME", default_value = "upgrade-toolkit")]
    identity: String,
    /// Service account of all Jobs, in harvester-system. Without it each kind of Job has its own account of the chart
    #[arg(long, value_name = "NAME", env = "UPGRADE_JOB_SERVICE_ACCOUNT")]
    job_service_account: Option<String>,
    /// Service account of system-upgrade-controller Plans, in cattle-system. Without it that of the chart
    #[arg(long, value_name = "NAME", env = "UPGRADE_PLAN_SERVICE_ACCOUNT")]
    plan_service_account: Option<String>,
    /// Image that the upgrade's own workloads run, as REPOSITORY[:TAG][@DIGEST]; without it that of this manager's own pod
    #[arg(long, value_name = "IMAGE", env = "UPGRADE_TOOLKIT_IMAGE", value_parser = image)]
    toolkit_image: Option<Image>,
    /// Another tag of that image
    #[arg(long, value_name = "TAG", env = "UPGRADE_TOOLKIT_TAG", value_parser = tag)]
    toolkit_tag: Option<String>,
    /// Another repository, without tag, that a plan may choose the image of workloads from; may be repeated. That of the
    /// manager's own image always may
    #[arg(long, value_name = "REPOSITORY", env = "UPGRADE_ALLOWED_IMAGE_REPOSITORIES", value_delimiter = ',',
          value_parser = repository)]
    allow_image_repository: Vec<String>,
    /// What serves the ISO, unless a plan sets it: toolkit or nginx
    #[arg(long, default_value = "toolkit", value_parser = ["toolkit", "nginx"])]
    repo_server: String,
    /// Host of the upgrade repository, as [SCHEME://]HOST[:PORT], when its Service cannot be reached; outside a cluster
    /// localhost. Its certificate is still verified
    #[arg(long)]
    repo_host: Option<String>,
    /// Address (HOST:PORT) at which the API server's certificate is checked, when this manager does not reach the addresses
    /// of the cluster's API servers
    #[arg(long, value_name = "HOST:PORT")]
    api_server_address: Option<String>,
    /// Service account whose tokens are used for requests to kubelets, in the namespace of the lease; empty: the manager's
    /// own. Without it that of the chart
    #[arg(long, value_name = "NAME", env = "UPGRADE_KUBELET_SERVICE_ACCOUNT")]
    kubelet_service_account: Option<String>,
    /// File with the authority that signs the certificates of kubelets, when it is not the cluster's own
    #[arg(long, value_name = "FILE")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Address (HOST:PORT) for requests to all kubelets, when this manager does not reach the nodes
    #[arg(long, value_name = "HOST:PORT")]
    kubelet_address: Option<String>,
    #[command(flatten)]
    webhook: manager_webhook::WebhookArgs,
    /// How long a wait may take before the plan is Degraded, as NAME=DURATION (reboot=45m); may be repeated
    #[arg(long = "deadline", value_name = "NAME=DURATION", value_parser = deadline, env = "UPGRADE_DEADLINES",
          value_delimiter = ',', long_help = deadline_help())]
    deadlines: Vec<(String, Duration)>,
    /// Format of the log: json or console
    #[arg(long, default_value = "json", value_parser = ["json", "console"])]
    log_format: String,
    #[command(flatten)]
    go: GoFlags,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    start_log_at(args.go.log_format(&args.log_format), args.go.log_level());
    for warning in args.go.warnings() {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(serve(args))
}

/// Starts the log, on standard error.
pub(super) fn start_log(format: &str) {
    start_log_at(format, 0);
}

/// Starts the log, on standard error: 0 what is done, 1 more, 2 everything, unless RUST_LOG says otherwise. Whatever
/// format is not `console` is JSON.
pub(super) fn start_log_at(format: &str, level: i64) {
    let level = match level {
        ..=0 => "info",
        1 => "debug",
        2.. => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // A log in a file has no colours.
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
        .with_writer(std::io::stderr);
    if format == "console" {
        log.init();
    } else {
        log.json().init();
    }
}

async fn serve(args: Args) -> anyhow::Result<ExitCode> {
    let metrics = Metrics::new(concat!("v", env!("CARGO_PKG_VERSION")))?;
    let kubeconfig = kube::Config::infer()
        .await
        .context("failed to find a cluster: set KUBECONFIG")?;
    let client = counting_client(&metrics, kubeconfig.clone())?;
    let metrics = serve_metrics(&args, metrics)?;
    let listener = listen("--health-probe-bind-address", &args.health_probe_bind_address)?;
    let webhook = manager_webhook::config(&args.webhook, &args.leader_election_namespace)?;
    let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let probes = Network {
        repo_host: args
            .repo_host
            .clone()
            .or_else(|| (!in_cluster).then(|| "localhost".to_owned())),
        api_server: args.api_server_address.clone(),
        kubelets: Some(Arc::new(kubelets(&args, &client, kubeconfig))),
    };
    let mut deadlines = Deadlines::default();
    for (name, limit) in &args.deadlines {
        deadlines.set(name, *limit);
    }
    let pod = in_cluster.then_some((args.leader_election_namespace.as_str(), args.identity.as_str()));
    let own_image = own_image(&client, args.toolkit_image, args.toolkit_tag, pod).await?;
    let config = Config {
        settings: Settings {
            deadlines,
            repo_server: RepoServer::parse(&args.repo_server).unwrap_or_default(),
            own_image,
            allowed_repositories: args.allow_image_repository,
            accounts: Accounts {
                prefix: args.webhook.webhook_name_prefix,
                jobs: args.job_service_account.filter(|name| !name.is_empty()),
                plans: args.plan_service_account.filter(|name| !name.is_empty()),
            },
        },
        lease_namespace: args.leader_elect.then_some(args.leader_election_namespace),
        lease_timing: LeaseTiming::with_duration(args.leader_elect_lease_duration),
        identity: args.identity,
        metrics: Some(metrics),
        webhook,
    };
    run_manager(
        client,
        Clock::system(),
        Arc::new(probes),
        config,
        listener,
        terminated(),
    )
    .await?;
    Ok(ExitCode::SUCCESS)
}

/// A client whose requests are counted, and which logs warnings of the API server.
fn counting_client(metrics: &Metrics, config: kube::Config) -> anyhow::Result<kube::Client> {
    let client = ClientBuilder::try_from(config).context("failed to make a client of what KUBECONFIG says")?;
    let client = client.with_layer(&CountRequests(metrics.clone())).build();
    Ok(for_product(client, field_validation()).0)
}

/// How the manager queries kubelets.
fn kubelets(args: &Args, client: &kube::Client, config: kube::Config) -> Kubelets {
    let shipped = || format!("{}{}", args.webhook.webhook_name_prefix, manager::rbac::KUBELET_READER);
    let credentials = match args.kubelet_service_account.clone().unwrap_or_else(shipped) {
        name if name.is_empty() => Credentials::Own,
        name => Credentials::Account {
            namespace: args.leader_election_namespace.clone(),
            name,
        },
    };
    Kubelets::new(client.clone(), config, credentials)
        .at(args.kubelet_address.clone())
        .trusting(args.kubelet_certificate_authority.clone())
}

/// Where metrics are served, and to whom.
fn serve_metrics(args: &Args, metrics: Metrics) -> anyhow::Result<MetricsConfig> {
    let listener = listen_blocking("--metrics-bind-address", &args.metrics_bind_address)?.map(Arc::new);
    let files = args.metrics_cert_path.as_ref().map(|directory| Files {
        certificate: directory.join(&args.metrics_cert_name),
        key: directory.join(&args.metrics_cert_key),
    });
    let service = format!("{}controller-manager-metrics-service", args.webhook.webhook_name_prefix);
    let access = if args.metrics_secure {
        Access::Authorised {
            files,
            names: service_names(&service, &args.leader_election_namespace),
        }
    } else {
        Access::Open
    };
    Ok(MetricsConfig {
        metrics,
        listener,
        access,
    })
}

/// `NAME=DURATION`, both checked.
fn deadline(text: &str) -> NamedDuration {
    let is_known = |name: &str| Deadlines::default().set(name, Duration::ZERO);
    let known = Deadlines::TABLE.iter().map(|row| row.0);
    named_duration::parse(text, "reboot=45m", is_known, known)
}

/// No duration that a lease could have.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a duration of at least one second, as in 30s")]
struct LeaseDurationError(String);

/// A duration in whole seconds, as leases count.
fn lease_duration(text: &str) -> Result<Duration, LeaseDurationError> {
    let wrong = || LeaseDurationError(text.to_owned());
    let duration: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    match Duration::try_from(duration) {
        Ok(duration) if duration.as_secs() >= 1 => Ok(Duration::from_secs(duration.as_secs())),
        _ => Err(wrong()),
    }
}

/// The deadlines there are.
fn deadline_help() -> String {
    let mut help =
        "How long a wait may take before the plan is Degraded, as NAME=DURATION (reboot=45m); may be repeated, or \
                    be a list with commas. Defaults:\n"
            .to_owned();
    for (name, what, minutes) in Deadlines::TABLE {
        let _ = write!(help, "\n  {:<16}{minutes:>4}m {what}", name.replace('_', "-"));
    }
    help
}

/// Ctrl-C or SIGTERM.
pub(super) async fn terminated() {
    let Ok(mut term) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_named_and_bad_ones_are_explained() {
        assert_eq!(
            deadline("pre-drain=1h30m").unwrap(),
            ("pre-drain".to_owned(), Duration::from_mins(90))
        );
        for (text, why) in [
            ("reboot", "is not NAME=DURATION"),
            ("lunch=1h", "there is no deadline \"lunch\"; known are prerequisite, "),
            ("reboot=soon", "\"soon\" is not a duration"),
            ("reboot=0s", "must be longer than nothing"),
            ("reboot=-5m", "must be longer than nothing"),
        ] {
            let error = deadline(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_lease_lasts_whole_seconds_and_at_least_one() {
        assert_eq!(lease_duration("15s").unwrap(), Duration::from_secs(15));
        assert_eq!(lease_duration("1m").unwrap(), Duration::from_mins(1));
        for text in ["0s", "300ms", "-5s", "soon", ""] {
            assert!(lease_duration(text).is_err(), "{text}");
        }
    }
}
