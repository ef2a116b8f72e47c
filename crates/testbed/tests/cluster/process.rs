//! The manager as a process of its own, which can be killed and stopped.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    time::Duration,
};

use api::names;

use crate::harvester::{Harvester, prefix_of};

/// Path of the binary to run; without it, this test binary runs what the binary would.
const BINARY: &str = "UPGRADE_TOOLKIT";
/// For [`manager`]: the command line, as JSON.
const COMMAND_LINE: &str = "UPGRADE_TOOLKIT_COMMAND_LINE";

/// A manager that runs. It ends when this is dropped.
pub(crate) struct Process {
    child: Child,
}

/// How a manager is started, again and again.
pub(crate) struct Recipe {
    pub(crate) user: String,
    kubeconfig: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
}

impl Recipe {
    /// A manager under a service account that competes for the lease under the account's name.
    pub(crate) async fn new(harvester: &Harvester, account: &str, repository: SocketAddr, lease: Duration) -> Self {
        let control_plane = &harvester.control_plane;
        let namespace = names::HARVESTER_NAMESPACE;
        let prefix = prefix_of(account);
        let kubeconfig = control_plane.kubeconfig_of(namespace, account).await.unwrap();
        let api_server = std::fs::read_to_string(control_plane.directory().join("port")).unwrap();
        let lease = format!("{}s", lease.as_secs());
        let reader = format!("{prefix}{}", manager::rbac::KUBELET_READER);
        let repository = format!("https://{repository}");
        let api_server = format!("127.0.0.1:{}", api_server.trim());
        let kubelets = harvester.kubelets.to_string();
        let arguments = [
            &["upgrade-toolkit", "manager", "--leader-elect"],
            &["--identity", account, "--leader-elect-lease-duration", &lease][..],
            &["--repo-host", &repository, "--api-server-address", &api_server],
            &["--kubelet-address", &kubelets, "--kubelet-service-account", &reader],
            &["--webhook-name-prefix", &prefix, "--health-probe-bind-address", "0"],
        ];
        Self {
            user: format!("system:serviceaccount:{namespace}:{account}"),
            kubeconfig,
            log: control_plane.directory().join("logs").join(format!("{account}.log")),
            arguments: arguments.concat().iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Process {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        let mut command = match std::env::var_os(BINARY) {
            Some(binary) => {
                let mut command = Command::new(binary);
                command.args(&self.arguments[1..]);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "process::manager", "--ignored", "--nocapture"]);
                command.env(COMMAND_LINE, serde_json::to_string(&self.arguments).unwrap());
                command
            }
        };
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("ENABLE_WEBHOOKS", "false")
            // An unknown field that it writes is an error, as for managers inside this process.
            .env("UPGRADE_TOOLKIT_FIELD_VALIDATION", "Strict")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap());
        Process {
            child: command.spawn().unwrap(),
        }
    }

    /// What it said, for a test that fails.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Process {
    /// Sends a signal to this process only.
    pub(crate) fn signal(&self, signal: &str) {
        let (signal, id) = (format!("-{signal}"), self.child.id().to_string());
        let sent = Command::new("kill").args([signal, id]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it as a crash would, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Where the kernel reports about it.
    pub(crate) fn proc(&self) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How often an orphan looks whether it is one.
const LOOK_FOR_PARENT: Duration = Duration::from_secs(1);

#[test]
#[ignore = "this is no test: it is how tests start a manager as a process of its own"]
fn manager() {
    let Some(line) = std::env::var_os(COMMAND_LINE).map(OsString::into_string) else {
        return;
    };
    let line: Vec<String> = serde_json::from_str(&line.unwrap()).unwrap();
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(LOOK_FOR_PARENT);
        }
        std::process::exit(1);
    });
    let line = line.into_iter().map(OsString::from).collect();
    assert_eq!(cli::command::run(line), ExitCode::SUCCESS);
}
