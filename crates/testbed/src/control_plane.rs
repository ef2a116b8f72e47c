//! A running control plane.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{Error, Request, audit};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/control-plane");

/// What runs against the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// kube-controller-manager: Jobs, Deployments, garbage collection, endpoints, nodes.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok, in place of kubelets.
    Kubelets,
    /// Rancher's system-upgrade-controller.
    SystemUpgradeController,
}

impl Part {
    fn flag(self) -> &'static str {
        match self {
            Self::ControllerManager => "kcm",
            Self::Scheduler => "scheduler",
            Self::Kubelets => "kwok",
            Self::SystemUpgradeController => "suc",
        }
    }
}

/// A program that can be ended and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// What runs against it.
    Part(Part),
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Part(Part::ControllerManager) => "kube-controller-manager",
            Self::Part(Part::Scheduler) => "kube-scheduler",
            Self::Part(Part::Kubelets) => "kwok",
            Self::Part(Part::SystemUpgradeController) => "system-upgrade-controller",
        }
    }
}

/// A control plane on loopback. It ends when this is dropped, and with the process in any case.
#[derive(Debug)]
pub struct ControlPlane {
    directory: PathBuf,
    /// Another script ends it, together with the nodes that it started.
    has_nodes: bool,
}

impl ControlPlane {
    /// Whether one can be started here.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn available() -> Result<(), Error> {
        let output = run(&["missing"])?;
        let missing = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Missing(missing.trim().to_owned()))
    }

    /// Whether there is a program for a part that can be done without.
    #[must_use]
    pub fn has(part: Part) -> bool {
        run(&["find", Program::Part(part).name()]).is_ok_and(|output| output.status.success())
    }

    /// Starts one and waits until it can be used. Takes some seconds, during which this thread is blocked.
    ///
    /// # Errors
    /// Programs are missing or did not start.
    pub fn start(parts: &[Part]) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id().to_string();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("upgrade-toolkit-control-plane-{process}-{number}"));
        let with = if parts.is_empty() {
            "none".to_owned()
        } else {
            parts.iter().map(|part| part.flag()).collect::<Vec<_>>().join(",")
        };
        let path = directory.to_string_lossy().into_owned();
        demand(&["start", &path, "--with", &with, "--owner", &process])?;
        Ok(Self {
            directory,
            has_nodes: false,
        })
    }

    /// The control plane of nodes that were started in a directory. They end it.
    pub(crate) fn of_nodes(directory: PathBuf) -> Self {
        Self {
            directory,
            has_nodes: true,
        }
    }

    /// The kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// A client of the administrator that calls itself by a name. It tries again when the server asks for it, as a new
    /// kind does while its cache fills.
    ///
    /// # Errors
    /// The kubeconfig is of no use.
    pub async fn client(&self, agent: &str) -> Result<Client, Error> {
        let config = self.config(agent).await?;
        Client::try_from(config).map_err(|error| self.unusable(error))
    }

    /// The same, but whoever uses it sees what the server said: an eviction that a budget forbids is a 429 too.
    ///
    /// # Errors
    /// The kubeconfig is of no use.
    pub async fn client_without_retries(&self, agent: &str) -> Result<Client, Error> {
        let mut config = self.config(agent).await?;
        config.default_retry = false;
        Client::try_from(config).map_err(|error| self.unusable(error))
    }

    /// A client of a service account that calls itself by a name.
    ///
    /// # Errors
    /// There is no such account.
    pub async fn client_of(&self, namespace: &str, account: &str, agent: &str) -> Result<Client, Error> {
        let config = self.config_of(namespace, account, agent).await?;
        Client::try_from(config).map_err(|error| self.unusable(error))
    }

    /// What a client of a service account is made of.
    ///
    /// # Errors
    /// There is no such account.
    pub async fn config_of(&self, namespace: &str, account: &str, agent: &str) -> Result<Config, Error> {
        let mut config = self.config(agent).await?;
        config.auth_info = kube::config::AuthInfo {
            token: Some(self.token(namespace, account).await?.into()),
            ..Default::default()
        };
        Ok(config)
    }

    /// Writes a kubeconfig with a token of a service account, for a process of its own; tells where.
    ///
    /// # Errors
    /// There is no such account, or the file cannot be written.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf, Error> {
        let mut kubeconfig = Kubeconfig::read_from(self.kubeconfig()).map_err(|error| self.unusable(error))?;
        let token = self.token(namespace, account).await?;
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(kube::config::AuthInfo {
                token: Some(token.clone().into()),
                ..Default::default()
            });
        }
        let path = self.directory.join(format!("{namespace}-{account}.kubeconfig"));
        let text = serde_json::to_string(&kubeconfig).map_err(|error| self.unusable(error))?;
        std::fs::write(&path, text).map_err(|error| self.unusable(error))?;
        Ok(path)
    }

    async fn token(&self, namespace: &str, account: &str) -> Result<String, Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client("testbed").await?, namespace);
        let request = TokenRequest::default();
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await
            .map_err(|source| Error::Api {
                what: format!("get a token of the service account {namespace}/{account}"),
                source: Box::new(source),
            })?;
        Ok(answer.status.map(|status| status.token).unwrap_or_default())
    }

    async fn config(&self, agent: &str) -> Result<Config, Error> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).map_err(|error| self.unusable(error))?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| self.unusable(error))?;
        let agent = agent.parse().map_err(|error| self.unusable(error))?;
        config.headers.push((http::header::USER_AGENT, agent));
        Ok(config)
    }

    fn unusable(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Kubeconfig {
            path: self.kubeconfig(),
            source: source.into(),
        }
    }

    /// All requests that the API server has answered, in order.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn audit(&self) -> Result<Vec<Request>, Error> {
        audit::read(&self.directory.join("audit.log"))
    }

    /// Ends a program at once, as a crash would.
    ///
    /// # Errors
    /// It was never started.
    pub fn kill(&self, program: Program) -> Result<(), Error> {
        demand(&["kill", &self.path(), program.name()])
    }

    /// Ends a program if it runs, starts it again, and waits until the API server answers.
    ///
    /// # Errors
    /// It did not start.
    pub fn restart(&self, program: Program) -> Result<(), Error> {
        demand(&["restart", &self.path(), program.name()])
    }

    /// Where the API server asks kubelets: whoever listens here answers for all nodes.
    #[must_use]
    pub fn kubelet_socket(&self) -> PathBuf {
        self.directory.join("kubelets.sock")
    }

    /// The directory of this control plane: logs are in `logs`.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self) -> String {
        self.directory.to_string_lossy().into_owned()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.has_nodes {
            return;
        }
        // Nothing can be done about a failure here; the guard of the script tries again when this process ends.
        drop(run(&["stop", &self.path()]));
    }
}

fn run(arguments: &[&str]) -> Result<Output, Error> {
    let mut command = Command::new(SCRIPT);
    command.args(arguments).stdin(Stdio::null());
    command.output().map_err(|source| Error::Script {
        script: SCRIPT.into(),
        source,
    })
}

fn demand(arguments: &[&str]) -> Result<(), Error> {
    let output = run(arguments)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Refused {
        script: "hack/control-plane",
        arguments: arguments.join(" "),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
