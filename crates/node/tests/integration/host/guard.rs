//! The guard that reboots a node, run by a real shell with a simulated `crictl` and `reboot`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use node::host::reboot::Guard;

const POD: &str = "up-node-upgrade-post-drain-node-1-x7k2p";

/// A node with static pods, and tools in a folder of its own.
struct Node {
    directory: tempfile::TempDir,
}

impl Node {
    /// `looks` are what `crictl` knows of the container, look by look; the last one stays: `STATE CODE`, `none`,
    /// `broken`.
    fn new(looks: &[&str]) -> Self {
        let node = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        for path in ["root/run", "root/var/lib/rancher/rke2/agent/pod-manifests", "tools"] {
            fs::create_dir_all(node.path(path)).unwrap();
        }
        fs::write(
            node.path("root/var/lib/rancher/rke2/agent/pod-manifests/etcd.yaml"),
            "old",
        )
        .unwrap();
        fs::write(node.path("looks"), looks.join("\n") + "\n").unwrap();
        node.tool("reboot", "echo rebooted >>\"$STATE/rebooted\"\n");
        node.tool(
            "crictl",
            r#"echo "$*" >>"$STATE/asked"
if [ "$1" = inspect ]; then
    case "$6" in c0ffee) ;; *) echo "no such container: $6" >&2; exit 1 ;; esac
    cat "$STATE/now"
    exit
fi
[ "$1" = ps ] || exit 1
head -n 1 "$STATE/looks" >"$STATE/now"
[ "$(wc -l <"$STATE/looks")" = 1 ] || sed -i 1d "$STATE/looks"
case "$(cat "$STATE/now")" in
none) ;;
broken) exit 1 ;;
*) printf 'c0ffee\nbadbad\n' ;;
esac
"#,
        );
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn tool(&self, name: &str, script: &str) {
        let path = self.path("tools").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn guard(&self) -> Guard {
        Guard {
            pause: 0,
            grace: 0,
            looks: 20,
            root: self.path("root").display().to_string(),
            ..Guard::of("harvester-system", POD, "apply")
        }
    }

    fn run(&self, guard: &Guard) -> Output {
        let script = self.path("guard.sh");
        fs::write(&script, guard.script()).unwrap();
        let path = format!("{}:{}", self.path("tools").display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .arg(script)
            .env("PATH", path)
            .env("STATE", self.directory.path())
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn has_rebooted(&self) -> bool {
        match fs::read_to_string(self.path("rebooted")) {
            Ok(text) => {
                assert_eq!(text, "rebooted\n", "once");
                assert!(!self.manifest().exists(), "static pods are taken away first");
                true
            }
            Err(_) => {
                assert!(self.manifest().exists());
                false
            }
        }
    }

    fn manifest(&self) -> PathBuf {
        self.path("root/var/lib/rancher/rke2/agent/pod-manifests/etcd.yaml")
    }

    fn looks_taken(&self) -> usize {
        let asked = fs::read_to_string(self.path("asked")).unwrap();
        asked.lines().filter(|line| line.starts_with("ps ")).count()
    }

    fn leaves_nothing(&self) -> bool {
        fs::read_dir(Path::new(&self.path("root/run")))
            .unwrap()
            .next()
            .is_none()
    }
}

#[test]
fn a_container_that_ended_well_reboots_the_node_and_not_before() {
    let node = Node::new(&["CONTAINER_RUNNING 0", "CONTAINER_RUNNING 0", "CONTAINER_EXITED 0"]);
    assert!(node.run(&node.guard()).status.success());
    assert!(node.has_rebooted());
    assert_eq!(node.looks_taken(), 3);
    assert!(node.leaves_nothing());
    let asked = fs::read_to_string(node.path("asked")).unwrap();
    for label in [
        "--label io.kubernetes.pod.namespace=harvester-system",
        &format!("--label io.kubernetes.pod.name={POD}"),
        "--label io.kubernetes.container.name=apply",
    ] {
        assert!(
            asked.lines().next().unwrap().contains(label),
            "{label} is missing in {asked}"
        );
    }
}

#[test]
fn a_container_that_failed_reboots_nothing_and_ends_the_guard() {
    let node = Node::new(&["CONTAINER_RUNNING 0", "CONTAINER_EXITED 1"]);
    let output = node.run(&node.guard());
    assert!(output.status.success());
    assert!(!node.has_rebooted());
    assert_eq!(node.looks_taken(), 2);
    assert!(String::from_utf8_lossy(&output.stdout).contains("not rebooting"));
    assert!(node.leaves_nothing());
}

#[test]
fn a_container_that_never_ends_reboots_nothing_and_is_given_up() {
    let node = Node::new(&["CONTAINER_RUNNING 0"]);
    let output = node.run(&node.guard());
    assert!(output.status.success());
    assert!(!node.has_rebooted());
    assert_eq!(node.looks_taken(), 20);
    assert!(String::from_utf8_lossy(&output.stdout).contains("has not ended in time"));
}

#[test]
fn a_container_that_was_never_seen_reboots_nothing() {
    let node = Node::new(&["none"]);
    assert!(node.run(&node.guard()).status.success());
    assert!(!node.has_rebooted());
    assert_eq!(node.looks_taken(), 20);
}

#[test]
fn a_record_that_was_there_and_stays_away_counts_as_an_end() {
    let node = Node::new(&["CONTAINER_RUNNING 0", "none"]);
    let output = node.run(&node.guard());
    assert!(output.status.success());
    assert!(node.has_rebooted());
    assert_eq!(node.looks_taken(), 7, "six looks in a row without it");
    assert!(String::from_utf8_lossy(&output.stdout).contains("its record is gone"));
}

#[test]
fn a_record_that_comes_back_was_not_gone_and_a_containerd_that_restarts_says_nothing() {
    let away = ["none"; 5];
    let mut looks = vec!["CONTAINER_RUNNING 0"];
    looks.extend(away);
    looks.push("CONTAINER_RUNNING 0");
    looks.extend(["broken"; 8]);
    looks.push("CONTAINER_EXITED 1");
    let node = Node::new(&looks);
    assert!(node.run(&node.guard()).status.success());
    assert!(!node.has_rebooted());
    assert_eq!(node.looks_taken(), looks.len());
}

#[test]
fn a_guard_that_was_killed_remembers_that_it_had_seen_the_container() {
    let node = Node::new(&["CONTAINER_RUNNING 0", "none"]);
    let cut_short = Guard {
        looks: 20,
        ..node.guard()
    };
    // The mark that the first life of the guard left.
    fs::write(node.path(&format!("root/run/upgrade-reboot.{POD}.seen")), "").unwrap();
    fs::write(node.path("looks"), "none\n").unwrap();
    assert!(node.run(&cut_short).status.success());
    assert!(node.has_rebooted());
}

#[test]
fn a_reboot_that_is_refused_makes_the_guard_fail_so_that_systemd_starts_it_again() {
    let node = Node::new(&["CONTAINER_EXITED 0"]);
    node.tool("reboot", "exit 1\n");
    assert!(!node.run(&node.guard()).status.success());
}

#[test]
fn odd_names_are_names_and_not_commands() {
    let node = Node::new(&["CONTAINER_EXITED 0"]);
    let guard = Guard {
        pod: "it's $(touch pwned) `reboot`".into(),
        ..node.guard()
    };
    assert!(guard.script().contains(r"pod='it'\''s $(touch pwned) `reboot`'"));
}
