//! A node that is a folder: its files, its tools, and the repository that it sees.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use futures::future::BoxFuture;
use node::{
    host::{Call, Ended, HostTools, mounts, tools::Place},
    node_run::Repository,
};
use program::{Error, Result, step::StepContext};
use release::bundle::Promise;
use tokio::sync::Notify;

pub(crate) const OLD_OS: &str = "Harvester v1.7.1";
pub(crate) const NEW_OS: &str = "Harvester v1.9.0";
pub(crate) const RKE2: &str = "v1.35.2+rke2r1";

/// A node as Harvester v1.7.1 left it.
pub(crate) struct FakeNode {
    directory: tempfile::TempDir,
    pub(crate) tools: Arc<FakeTools>,
    pub(crate) repository: Arc<FakeRepository>,
}

impl FakeNode {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("host");
        for (path, content) in [
            (
                "usr/lib/os-release",
                "NAME=\"Harvester\"\nPRETTY_NAME=\"Harvester v1.7.1\"\n",
            ),
            ("proc/sys/kernel/random/boot_id", "b00t-1\n"),
            (
                "oem/harvester.config",
                "os:\n  hostname: node-1\n  externalstorage:\n    enabled: false\n",
            ),
            (
                "etc/ssh/sshd_config.d/sftp.conf",
                "Subsystem sftp /usr/lib/ssh/sftp-server\n",
            ),
            (
                "run/systemd/system/rancher-system-agent.service.d/override.conf",
                "[Service]\nExecStart=\n",
            ),
            (
                "var/lib/rancher/rke2/server/manifests/rke2-canal-config.yaml",
                "kind: HelmChartConfig\n",
            ),
            (
                "var/lib/rancher/rke2/agent/images/rke2-images.linux-amd64.txt",
                "docker.io/rancher/x:1\n",
            ),
            (
                "var/lib/rancher/rke2/agent/images/rke2-images.linux-amd64.tar.zst",
                "archive\n",
            ),
            ("var/lib/rancher/rke2/agent/images/users-own.tar", "kept\n"),
            ("run/initramfs/cos-state/state.yaml", "date: x\nstate:\n  active: {}\n"),
            ("run/initramfs/cos-state/cOS/passive.img", "old system\n"),
            ("sys/devices/pci/net/eno1/address", "52:54:00:00:00:01\n"),
            ("sys/devices/pci/net/ens2/address", "52:54:00:00:00:ff\n"),
            (
                "sys/devices/pci/net/ens2/bonding_slave/perm_hwaddr",
                "52:54:00:00:00:02\n",
            ),
            ("sys/devices/virtual/net/lo/address", "00:00:00:00:00:00\n"),
            ("lib64/libc.so.6", "old\n"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        // As on a node, links lead from the root, and the names of network cards are links.
        fs::create_dir_all(root.join("sys/class/net")).unwrap();
        for (link, target) in [
            ("etc/os-release", "/usr/lib/os-release"),
            ("sys/class/net/eno1", "../../devices/pci/net/eno1"),
            ("sys/class/net/ens2", "../../devices/pci/net/ens2"),
            ("sys/class/net/lo", "../../devices/virtual/net/lo"),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        fs::write(directory.path().join("elemental"), "the toolkit's elemental").unwrap();
        Self {
            tools: Arc::new(FakeTools::new(root)),
            repository: Arc::default(),
            directory,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("host")
    }

    pub(crate) fn elemental(&self) -> PathBuf {
        self.directory.path().join("elemental")
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root().join(path)).ok()
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The node has rebooted into a system.
    pub(crate) fn reboot_into(&self, os: &str) {
        self.write("usr/lib/os-release", &format!("PRETTY_NAME=\"{os}\"\n"));
        self.write("proc/sys/kernel/random/boot_id", "b00t-2\n");
        self.forget_mounts();
    }

    /// A container that ends takes its mounts along.
    pub(crate) fn forget_mounts(&self) {
        self.tools.mounts.lock().unwrap().clear();
    }

    /// All files with mode and content. Logs are named by the time, which is none of the state.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        walk(&self.root(), &mut |path| {
            let metadata = fs::metadata(path).unwrap();
            let name = path.strip_prefix(self.root()).unwrap().display().to_string();
            if name.contains("elemental-upgrade-") {
                return;
            }
            let content = fs::read_to_string(path).unwrap();
            files.insert(
                name,
                format!("{:04o}\n{content}", metadata.permissions().mode() & 0o7777),
            );
        });
        files
    }

    /// What distinguishes a file that was written again from one that was not.
    pub(crate) fn identities(&self) -> BTreeMap<String, (u64, i64, i64)> {
        let mut all = BTreeMap::new();
        walk(&self.root(), &mut |path| {
            let metadata = fs::metadata(path).unwrap();
            let identity = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
            all.insert(path.strip_prefix(self.root()).unwrap().display().to_string(), identity);
        });
        all
    }
}

fn walk(directory: &Path, see: &mut dyn FnMut(&Path)) {
    let mut entries: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            walk(&path, see);
        } else if kind.is_file() {
            see(&path);
        }
    }
}

/// What changed between two looks at a node: `+`, `-` or `~`, the path, mode and content.
pub(crate) fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for name in before
        .keys()
        .chain(after.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        let (sign, content) = match (before.get(name), after.get(name)) {
            (Some(_), None) => ("-", ""),
            (None, Some(after)) => ("+", after.as_str()),
            (Some(before), Some(after)) if before != after => ("~", after.as_str()),
            _ => continue,
        };
        text.push_str(&format!("{sign} /{name} {content}\n"));
    }
    text
}

/// Tools that do as little as can be, and remember what they were asked.
pub(crate) struct FakeTools {
    root: PathBuf,
    pub(crate) calls: Mutex<Vec<String>>,
    pub(crate) mounts: Mutex<Vec<PathBuf>>,
    answers: Mutex<BTreeMap<String, Ended>>,
    /// After this many calls the program is killed: the notifier is called, and no response is sent.
    kill: Mutex<Option<(usize, Arc<Notify>)>>,
}

impl FakeTools {
    fn new(root: PathBuf) -> Self {
        Self {
            root,
            calls: Mutex::default(),
            mounts: Mutex::default(),
            answers: Mutex::default(),
            kill: Mutex::default(),
        }
    }

    /// What a program answers whose call begins like this.
    pub(crate) fn answer(&self, call: &str, ended: Ended) {
        self.answers.lock().unwrap().insert(call.to_owned(), ended);
    }

    pub(crate) fn kill_after(&self, calls: usize) -> Arc<Notify> {
        let killed = Arc::new(Notify::new());
        *self.kill.lock().unwrap() = Some((calls, killed.clone()));
        killed
    }

    pub(crate) fn live_on(&self) {
        *self.kill.lock().unwrap() = None;
    }

    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn of_node(&self, call: &Call, path: &str) -> PathBuf {
        match call.place {
            Place::Host => self.root.join(path.trim_start_matches('/')),
            Place::Container => PathBuf::from(path),
        }
    }

    fn answer_to(&self, call: &Call) -> Ended {
        let said = call.to_string();
        let answers = self.answers.lock().unwrap();
        if let Some((_, ended)) = answers.iter().find(|(begin, _)| said.starts_with(begin.as_str())) {
            return ended.clone();
        }
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        let mut mounts = self.mounts.lock().unwrap();
        match (call.program.as_str(), args.as_slice()) {
            ("nproc", _) => Ended::well("8\n"),
            ("blkid", _) => Ended::well("/dev/sda3\n"),
            ("mount", ["-o", _, _]) => Ended::default(),
            ("mount", [.., at]) => {
                mounts.push(self.of_node(call, at));
                Ended::default()
            }
            ("umount", [at]) => {
                let at = self.of_node(call, at);
                let before = mounts.len();
                mounts.retain(|mounted| *mounted != at);
                Ended::with_code(i32::from(mounts.len() == before))
            }
            ("grub2-editenv", [file, rest @ ..]) => self.edit_environment(call, file, rest),
            (program, ["upgrade", "--logfile", log, "--directory", from, ..]) if program.ends_with("elemental") => {
                assert!(
                    mounts.contains(&self.of_node(call, from)),
                    "the image is mounted: {mounts:?}"
                );
                fs::write(self.of_node(call, log), "level=debug msg=\"all done\"\n").unwrap();
                Ended::default()
            }
            _ => Ended::default(),
        }
    }

    /// As `grub2-editenv` does, but for the form of its file.
    fn edit_environment(&self, call: &Call, file: &str, rest: &[&str]) -> Ended {
        let file = self.of_node(call, file);
        let text = fs::read_to_string(&file).unwrap_or_default();
        match rest {
            ["create"] => fs::write(&file, "").unwrap(),
            ["list"] => return Ended::well(&text),
            ["set", assignment] => {
                let name = assignment.split('=').next().unwrap();
                let others = text.lines().filter(|line| line.split('=').next() != Some(name));
                let lines: Vec<&str> = others.chain([*assignment]).collect();
                fs::write(&file, lines.join("\n") + "\n").unwrap();
            }
            other => panic!("grub2-editenv has no {other:?}"),
        }
        Ended::default()
    }
}

impl HostTools for FakeTools {
    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Ended>> {
        Box::pin(async move {
            let said = call.to_string().replace(&self.root.display().to_string(), "$ROOT");
            let place = if call.place == Place::Host { "host" } else { "container" };
            let number = {
                let mut calls = self.calls.lock().unwrap();
                calls.push(format!("{place}: {said}"));
                calls.len()
            };
            let ended = self.answer_to(call);
            let killed = self.kill.lock().unwrap().clone().filter(|(after, _)| *after == number);
            if let Some((_, killed)) = killed {
                killed.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(ended)
        })
    }

    fn mountinfo(&self) -> Result<String> {
        let mounts = self.mounts.lock().unwrap();
        let lines = mounts
            .iter()
            .map(|at| format!("36 35 98:0 / {} rw - ext4 /dev/x rw\n", at.display()));
        let text: String = lines.collect();
        assert!(mounts.iter().all(|at| mounts::is_mounted(&text, at)));
        Ok(text)
    }
}

/// A repository in memory.
#[derive(Default)]
pub(crate) struct FakeRepository {
    pub(crate) saved: Mutex<usize>,
    pub(crate) broken: Mutex<bool>,
    /// What comes instead of an image.
    pub(crate) image: Mutex<Option<Vec<u8>>>,
}

/// As much of an image as is read.
fn squashfs() -> Vec<u8> {
    let mut image = vec![b' '; 96];
    image[..4].copy_from_slice(b"hsqs");
    image[40..48].copy_from_slice(&96_u64.to_le_bytes());
    image
}

impl Repository for FakeRepository {
    fn text<'a>(&'a self, path: &'a str, _: u64) -> BoxFuture<'a, Result<String>> {
        Box::pin(async move {
            if *self.broken.lock().unwrap() {
                return Err(Error::Transient(format!(
                    "failed to fetch {path}: 503 Service Unavailable"
                )));
            }
            Ok(match path {
                "harvester-release.yaml" => format!(
                    "harvester: v1.9.0\nos: {NEW_OS}\nkubernetes: {RKE2}\nharvesterChart: 1.9.0\nrancher: v2.14.0\n\
                     monitoringChart: 1.0.0\nminUpgradableVersion: v1.7.1\n"
                ),
                "bundle/metadata.yaml" => "images:\n  common:\n  - list: /c.txt\n    archive: /c.tar.zst\n  rke2:\n  \
                    - list: /harvester/images-lists/rke2-images.linux-amd64.txt\n    \
                    archive: /harvester/images/rke2-images.linux-amd64.tar.zst\n"
                    .to_owned(),
                other => panic!("the repository has no {other}"),
            })
        })
    }

    fn save<'a>(&'a self, path: &'a str, to: &'a Path, _: StepContext<'a>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            assert_eq!(path, "rootfs.squashfs");
            // Also who has the file already asks whether it is the right one.
            if *self.broken.lock().unwrap() {
                return Err(Error::Transient(format!(
                    "failed to fetch {path}: 503 Service Unavailable"
                )));
            }
            if !to.exists() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::write(to, self.image.lock().unwrap().as_deref().unwrap_or(&squashfs())).unwrap();
                fs::write(to.with_file_name(".rootfs.squashfs.version"), "1").unwrap();
                *self.saved.lock().unwrap() += 1;
            }
            Ok(())
        })
    }

    fn promise<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Promise>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
