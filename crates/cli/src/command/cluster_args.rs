//! Which cluster a command of people looks at: the live one, by flags as kubectl has them, or a snapshot. Reads what the
//! flags name, and decides nothing.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clock::Clock;
use http::{HeaderMap, Request, header::DATE};
use jiff::{Timestamp, fmt::rfc2822};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use snapshot::Snapshot;

/// How long an API server may take to answer the first question.
const FIRST_ANSWER: Duration = Duration::from_secs(15);
/// What to do when no cluster is named.
const NAME_A_CLUSTER: &str = "name one with --kubeconfig FILE or the variable KUBECONFIG (on a Harvester node: \
                              /etc/rancher/rke2/rke2.yaml), or look at a file with --snapshot";

/// Which cluster.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// Look at this instead of the live cluster: a file of `upgrade-toolkit snapshot`, a support bundle (zip or folder), or a
    /// folder of `kubectl get -o yaml` files
    #[arg(long, value_name = "FILE|BUNDLE|FOLDER", conflicts_with_all = ["kubeconfig", "context"],
          value_hint = clap::ValueHint::AnyPath)]
    pub(super) snapshot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) live: LiveArgs,
}

/// Which live cluster: the flags of kubectl.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct LiveArgs {
    /// Kubeconfig of the cluster; without it KUBECONFIG, then ~/.kube/config, then the account of the pod
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// As kubectl has it. UpgradePlans and nodes are in no namespace
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

impl ClusterArgs {
    /// The cluster at one moment: the snapshot that is named, else the live cluster.
    ///
    /// It starts a runtime of its own; async callers use [`Self::client`] and `snapshot::live::take`.
    pub(super) fn load(&self) -> anyhow::Result<Snapshot> {
        match &self.snapshot {
            Some(path) => Ok(snapshot::load(path)?),
            None => block_on(async {
                let client = self.client().await?;
                Ok(look(&client).await)
            })?,
        }
    }

    /// A client of the live cluster.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        self.live.client().await
    }
}

impl LiveArgs {
    /// A client of the cluster, whose API server has answered.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(FIRST_ANSWER);
        let address = config.cluster_url.to_string();
        let address = address.trim_end_matches('/');
        let client = Client::try_from(config).context("failed to use the credentials of the kubeconfig")?;
        match tokio::time::timeout(FIRST_ANSWER, client.apiserver_version()).await {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(kube::Error::Api(status))) if status.code == 401 => bail!(
                "the API server {address} does not accept the credentials of the kubeconfig (401 Unauthorized): \
                 download a new kubeconfig, or name another one with --kubeconfig or --context"
            ),
            // It has answered; what it refuses is the version.
            Ok(Err(kube::Error::Api(_))) => Ok(client),
            Ok(Err(error)) => bail!(
                "the API server {address} cannot be reached: {}; check the address, the network and the virtual IP of the \
                 cluster, or name another cluster with --kubeconfig or --context",
                causes(&error)
            ),
            Err(_) => bail!(
                "the API server {address} did not answer for {} seconds; check the address, the network and the virtual \
                 IP of the cluster, or name another cluster with --kubeconfig or --context",
                FIRST_ANSWER.as_secs()
            ),
        }
    }

    /// The contexts of the kubeconfig; none when it cannot be read.
    pub(super) fn contexts(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig().ok().flatten().unwrap_or_default();
        kubeconfig.contexts.into_iter().map(|context| context.name).collect()
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let Some(kubeconfig) = self.kubeconfig()? else {
            return Config::incluster().context("failed to use the account of the pod");
        };
        let contexts: Vec<String> = kubeconfig.contexts.iter().map(|one| one.name.clone()).collect();
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        match Config::from_custom_kubeconfig(kubeconfig, &options).await {
            Ok(config) => Ok(config),
            Err(KubeconfigError::LoadContext(name)) => bail!(
                "the kubeconfig has no context {}; {}",
                api::quoted::quoted(&name),
                choice(&contexts)
            ),
            Err(KubeconfigError::CurrentContextNotSet) => {
                bail!("the kubeconfig has no current context; {}", choice(&contexts))
            }
            Err(KubeconfigError::LoadClusterOfContext(name)) => bail!(
                "the kubeconfig has no cluster {}, which its context names; {}",
                api::quoted::quoted(&name),
                choice(&contexts)
            ),
            Err(error) => Err(error).context("failed to use the kubeconfig"),
        }
    }

    /// The kubeconfig; none when there is only the account of the pod.
    fn kubeconfig(&self) -> anyhow::Result<Option<Kubeconfig>> {
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let is_default = self.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_none_or(|list| list.is_empty());
        match read {
            Ok(kubeconfig) => Ok(Some(kubeconfig)),
            Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath) if is_default => {
                // In a pod there is another way.
                if self.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
                    return Ok(None);
                }
                bail!("there is no kubeconfig at ~/.kube/config: {NAME_A_CLUSTER}")
            }
            Err(KubeconfigError::ReadConfig(error, path)) => {
                bail!(
                    "failed to read the kubeconfig {}: {error}: {NAME_A_CLUSTER}",
                    path.display()
                )
            }
            Err(error) => {
                let named = self.kubeconfig.as_ref().map(|path| format!(" {}", path.display()));
                let error = causes(&error);
                // Errors of the parser have the lines of the file behind them, and those may have credentials.
                let first = error.lines().next().unwrap_or_default();
                bail!("failed to read the kubeconfig{}: {first}", named.unwrap_or_default())
            }
        }
    }
}

fn choice(contexts: &[String]) -> String {
    if contexts.is_empty() {
        return "it has none at all: name another kubeconfig with --kubeconfig".to_owned();
    }
    let names: Vec<String> = contexts.iter().take(20).map(|name| api::quoted::quoted(name)).collect();
    format!("choose one with --context: {}", names.join(", "))
}

/// The error with everything that caused it, each said once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

/// Nothing of the cluster could be read: kinds that it does not have do not count.
pub(super) fn is_unreadable(snapshot: &Snapshot) -> bool {
    let objects: usize = snapshot.counts().into_iter().map(|(_, count)| count).sum();
    objects == 0 && !snapshot.unknown_kinds().is_empty()
}

/// The live cluster at this moment.
pub(super) async fn look(client: &Client) -> Snapshot {
    snapshot::live::take(client, now(client).await).await
}

/// The time of the cluster: that of its API server. The clock of an administrator's machine may be wrong, and a served rehearsal
/// has a time of its own. Without an answer it is the time of this machine.
pub(super) async fn now(client: &Client) -> Timestamp {
    let request = Request::get("/version").body(Body::empty());
    let answer = match request {
        Ok(request) => client.send(request).await.ok(),
        Err(_) => None,
    };
    let date = answer.and_then(|answer| time_of(answer.headers()));
    date.unwrap_or_else(|| Clock::system().now())
}

/// When an answer was given, as HTTP has it.
fn time_of(headers: &HeaderMap) -> Option<Timestamp> {
    let date = headers.get(DATE)?.to_str().ok()?;
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

/// Runs a command of people to its end, on a runtime of its own.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_answer_is_read_as_http_writes_it() {
        let mut headers = HeaderMap::new();
        assert_eq!(time_of(&headers), None);
        headers.insert(DATE, "Fri, 13 Mar 2026 03:57:09 GMT".parse().unwrap());
        assert_eq!(time_of(&headers), "2026-03-13T03:57:09Z".parse().ok());
        headers.insert(DATE, "soon".parse().unwrap());
        assert_eq!(time_of(&headers), None);
    }
}
