//! Real nodes beside a real control plane: a wrapper of `hack/nodes`.
//!
//! Everything that a test does to a node it does through that script, so that nothing of it reaches the machine itself.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::{ControlPlane, Error};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/nodes");

/// `required`: nodes that cannot be started are a failure, not a reason to skip. `later`: these tests are run by themselves.
const VARIABLE: &str = "NODE_TESTS";

/// A control plane with nodes. They end when this is dropped, and with the process in any case.
#[derive(Debug)]
pub struct Nodes {
    /// The control plane that the nodes belong to.
    pub control_plane: ControlPlane,
}

impl Nodes {
    /// Whether a test that needs nodes is to run. Where it cannot, one line says why, whatever the number of tests; with
    /// `NODE_TESTS=required` the test continues and fails where it starts them.
    #[must_use]
    pub fn are_wanted() -> bool {
        static SAID: Once = Once::new();
        match std::env::var(VARIABLE).as_deref() {
            Ok("required") => return true,
            Ok("later") => return false,
            _ => {}
        }
        let why = match run(&["missing"], Stdio::null()) {
            Ok(output) if output.status.success() => return true,
            Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        // Straight to stderr: what a passing test prints is captured.
        SAID.call_once(|| drop(writeln!(std::io::stderr(), "node tests are skipped: {why}")));
        false
    }

    /// Starts a control plane and so many nodes, and waits until all are Ready. Takes up to a minute, during which this
    /// thread is blocked.
    ///
    /// # Errors
    /// Something is missing or did not start.
    pub fn start(count: usize, options: &[&str]) -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id().to_string();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("upgrade-toolkit-nodes-{process}-{number}"));
        let (path, count) = (directory.to_string_lossy().into_owned(), count.to_string());
        let mut arguments = vec!["start", &path, "--count", &count, "--owner", &process];
        arguments.extend(options);
        demand(&arguments, Stdio::null())?;
        Ok(Self {
            control_plane: ControlPlane::of_nodes(directory),
        })
    }

    /// Imports an archive of images into containerd of every node.
    ///
    /// # Errors
    /// containerd refuses it.
    pub fn import(&self, archive: &Path) -> Result<(), Error> {
        let archive = archive.to_string_lossy();
        demand(&["import", &self.path(), &archive], Stdio::null()).map(drop)
    }

    /// Runs a command in a node, and returns what it prints.
    ///
    /// # Errors
    /// It fails, or the node is off.
    pub fn exec(&self, node: &str, command: &[&str]) -> Result<String, Error> {
        self.exec_with(node, command, Stdio::null())
    }

    /// Writes a file of this machine into a node, readable for one user and their group only.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub fn copy(&self, node: &str, from: &Path, to: &str, owner: u32) -> Result<(), Error> {
        let file = File::open(from).map_err(|source| Error::Script {
            script: from.to_owned(),
            source,
        })?;
        let script = format!(
            "mkdir -p \"$(dirname '{to}')\" && cat >'{to}' && chmod 0660 '{to}' && chown {owner}:{owner} '{to}'"
        );
        self.exec_with(node, &["sh", "-c", &script], Stdio::from(file))
            .map(drop)
    }

    fn exec_with(&self, node: &str, command: &[&str], input: Stdio) -> Result<String, Error> {
        let path = self.path();
        let mut arguments = vec!["exec", &path, node];
        arguments.extend(command);
        let output = demand(&arguments, input)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Ends everything in a node at once. It stays off.
    ///
    /// # Errors
    /// There is no such node.
    pub fn cut_power(&self, node: &str) -> Result<(), Error> {
        demand(&["power-cut", &self.path(), node], Stdio::null()).map(drop)
    }

    /// Starts a node that is off.
    ///
    /// # Errors
    /// It does not boot.
    pub fn power_on(&self, node: &str) -> Result<(), Error> {
        demand(&["power-on", &self.path(), node], Stdio::null()).map(drop)
    }

    /// From which of its systems the node boots from now on, `active` or `passive`: a boot loader that falls back takes the
    /// passive one.
    ///
    /// # Errors
    /// There is no such node or system.
    pub fn boot_from(&self, node: &str, system: &str) -> Result<(), Error> {
        demand(&["next-boot", &self.path(), node, system], Stdio::null()).map(drop)
    }

    /// Has a port of the cluster's network lead to a socket of this machine; returns the address in that network.
    ///
    /// # Errors
    /// The port is taken.
    pub fn serve(&self, port: u16, socket: &Path) -> Result<String, Error> {
        let (port, socket) = (port.to_string(), socket.to_string_lossy());
        let output = demand(&["serve", &self.path(), &port, &socket], Stdio::null())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// What the node and its programs have logged.
    ///
    /// # Errors
    /// There is no such node.
    pub fn logs(&self, node: &str) -> Result<String, Error> {
        let output = demand(&["logs", &self.path(), node], Stdio::null())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Has the node run another kubelet: what Rancher's agent does when it installs RKE2. For a thread of its own, since it
    /// waits for the node.
    pub fn kubelet_setter(&self) -> impl Fn(&str, &str) -> Result<(), Error> + Clone + Send + 'static + use<> {
        let path = self.path();
        move |node, version| demand(&["kubelet-version", &path, node, version], Stdio::null()).map(drop)
    }

    fn path(&self) -> String {
        self.control_plane.directory().to_string_lossy().into_owned()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the guard of the script tries again when this process ends.
        drop(run(&["stop", &self.path()], Stdio::null()));
    }
}

fn run(arguments: &[&str], input: Stdio) -> Result<Output, Error> {
    let mut command = Command::new(SCRIPT);
    command.args(arguments).stdin(input);
    command.output().map_err(|source| Error::Script {
        script: PathBuf::from(SCRIPT),
        source,
    })
}

fn demand(arguments: &[&str], input: Stdio) -> Result<Output, Error> {
    let output = run(arguments, input)?;
    if output.status.success() {
        return Ok(output);
    }
    Err(Error::Refused {
        script: "hack/nodes",
        arguments: arguments.join(" "),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
