//! The control plane itself: several live side by side, they leave nothing behind, and what is missing is said.

use std::{path::Path, process::Command};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::PostParams};
use serde_json::json;
use testbed::ControlPlane;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/control-plane");

/// The processes that a control plane has started.
fn processes(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory.join("pids")).unwrap();
    files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
        .collect()
}

/// Whether a process runs; one that has ended and was not yet waited for does not.
fn runs(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .any(|line| line.starts_with("State:") && !line.contains('Z'))
}

#[test]
fn two_control_planes_live_side_by_side_and_leave_nothing_behind() {
    if !testbed::is_wanted() {
        return;
    }
    let _turn = crate::turn();
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| ControlPlane::start(&[]).unwrap());
        (ControlPlane::start(&[]).unwrap(), other.join().unwrap())
    });
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let here: Api<Namespace> = Api::all(one.client("test").await.unwrap());
        let there: Api<Namespace> = Api::all(other.client("test").await.unwrap());
        let namespace = serde_json::from_value(json!({"metadata": {"name": "mine"}})).unwrap();
        here.create(&PostParams::default(), &namespace).await.unwrap();
        assert!(here.get_opt("mine").await.unwrap().is_some());
        assert!(there.get_opt("mine").await.unwrap().is_none());
    });
    for control_plane in [one, other] {
        let directory = control_plane.directory().to_owned();
        let started = processes(&directory);
        assert!(started.len() >= 3 && started.iter().all(|process| runs(process)));
        drop(control_plane);
        assert!(!directory.exists());
        assert!(started.iter().all(|process| !runs(process)));
    }
}

#[test]
fn without_programs_and_without_go_the_script_says_what_to_do() {
    let empty = std::env::temp_dir().join(format!("no-control-plane-{}", std::process::id()));
    let output = Command::new(SCRIPT)
        .arg("build")
        .env_remove("KUBEBUILDER_ASSETS")
        .env("XDG_CACHE_HOME", &empty)
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if Path::new("/usr/bin/go").exists() || Path::new("/bin/go").exists() {
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("there is no etcd kube-apiserver"), "{said}");
    assert!(said.contains("KUBEBUILDER_ASSETS"), "{said}");
    assert!(!empty.exists());
}
