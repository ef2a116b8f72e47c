//! A real containerd with a root, a state and a socket of its own, and a host tree as RKE2 lays it out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use node::images::ctr::Ctr;
use tempfile::TempDir;

/// How long it may take to begin.
const START: Duration = Duration::from_secs(60);

/// A running one, and the host it is on. Ends with it.
pub struct Containerd {
    process: Child,
    host: TempDir,
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let id = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.process.wait();
    }
}

impl Containerd {
    /// Starts one; nothing where that takes rights we do not have.
    pub async fn start() -> Option<Self> {
        let host = tempfile::tempdir().unwrap();
        if fs::metadata(host.path()).unwrap().uid() != 0 {
            eprintln!("skipped: containerd runs as root only");
            return None;
        }
        let folder = host.path().join("run/k3s/containerd");
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = '{}'\nstate = '{}'\ndisabled_plugins = ['io.containerd.internal.v1.opt']\n\
            [grpc]\n  address = '{}'\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\n  snapshotter = 'native'\n",
            path("root"),
            path("state"),
            path("containerd.sock"),
        );
        fs::write(folder.join("config.toml"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let process = Command::new("containerd")
            .args(["--config", &path("config.toml")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("containerd, which hack/prepare installs");
        let programs = host
            .path()
            .join("var/lib/rancher/rke2/data/v1.35.2-rke2r1-0123456789ab/bin");
        fs::create_dir_all(&programs).unwrap();
        bring(&which("ctr"), &programs.join("ctr"));
        let link = host.path().join("var/lib/rancher/rke2/bin");
        symlink("/var/lib/rancher/rke2/data/v1.35.2-rke2r1-0123456789ab/bin", link).unwrap();
        let running = Self { process, host };
        running.wait().await;
        Some(running)
    }

    async fn wait(&self) {
        let answers = async {
            while !self.answers().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(START, answers).await.is_err() {
            let log = fs::read_to_string(self.root().join("run/k3s/containerd/log")).unwrap_or_default();
            panic!("containerd does not answer: {log}");
        }
    }

    async fn answers(&self) -> bool {
        // Both doors: that of containerd, and that of kubelets.
        let plugins = tokio::process::Command::new("ctr")
            .args(["--address", &self.socket(), "plugins", "list"])
            .output()
            .await;
        let plugins = plugins
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        plugins
            .lines()
            .any(|line| line.contains(" cri ") && line.trim_end().ends_with("ok"))
    }

    /// The root of the host.
    pub fn root(&self) -> &Path {
        self.host.path()
    }

    fn socket(&self) -> String {
        self.root()
            .join("run/k3s/containerd/containerd.sock")
            .display()
            .to_string()
    }

    /// Its images, as the node finds them.
    pub fn store(&self) -> Ctr {
        Ctr::of_host(self.root()).unwrap()
    }

    /// Gives an image a second name.
    pub fn tag(&self, name: &str, further: &str) {
        let arguments = ["-n", "k8s.io", "images", "tag", name, further];
        let tagged = Command::new("ctr")
            .args(["--address", &self.socket()])
            .args(arguments)
            .output()
            .unwrap();
        assert!(tagged.status.success(), "{tagged:?}");
    }

    /// Puts `crictl` on the host where there is one; says whether there is.
    pub fn add_crictl(&self) -> bool {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/crictl");
        let found = Command::new(script).arg("path").output().unwrap();
        if !found.status.success() {
            eprintln!("no crictl: only ctr is tested; hack/crictl build makes one");
            return false;
        }
        let crictl = String::from_utf8(found.stdout).unwrap();
        let programs = self
            .root()
            .join("var/lib/rancher/rke2/data/v1.35.2-rke2r1-0123456789ab/bin");
        bring(Path::new(crictl.trim()), &programs.join("crictl"));
        true
    }
}

/// Puts a program of this machine on the host: a file of its own, since a link would lead out of the host.
fn bring(program: &Path, to: &Path) {
    let program = fs::canonicalize(program).unwrap();
    fs::hard_link(&program, to)
        .or_else(|_| fs::copy(&program, to).map(drop))
        .unwrap();
}

fn which(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    found.expect("ctr, which hack/prepare installs with containerd")
}
