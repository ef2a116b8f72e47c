//! Snapshots in files and folders: what is loaded is what was saved, and no secret value is in it.

use std::{fs, io::Read, path::Path};

use serde_json::{Value, json};
use snapshot::{Snapshot, Source, file, load};

const SECRET: &str = "hunter2-planted";

/// A folder of manifests, as kubectl writes them, with secret values wherever users have some.
fn folder(path: &Path) {
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm", "namespace": "default",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET}},
        "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {}, "volumes": [
            {"name": "a", "cloudInitNoCloud": {"userData": SECRET, "networkData": SECRET}},
            {"name": "b", "cloudInitConfigDrive": {"userDataBase64": SECRET}},
        ]}}},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": SECRET}], "args": [SECRET], "command": [SECRET]}],
            "volumes": [{"name": "v", "csi": {"driver": "x", "volumeAttributes": {"password": SECRET}}}]},
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": "default"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": SECRET}]}]}}},
    });
    let secret = |name: &str, type_: &str, key: &str| {
        // `hunter2-planted` in base64, which is how it would come out of a Secret.
        json!({"apiVersion": "v1", "kind": "Secret", "type": type_, "data": {key: "aHVudGVyMi1wbGFudGVk"},
            "metadata": {"name": name, "namespace": "fleet-local"}})
    };
    let chart = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "ManagedChart", "metadata": {"name": "harvester", "namespace": "fleet-local"},
        "spec": {"chart": "harvester", "values": {"password": SECRET}},
    });
    let addon = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"chart": "c", "repo": "r", "version": "1", "enabled": true, "valuesContent": SECRET},
    });
    let setting = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting", "metadata": {"name": "backup-target"},
        "value": SECRET, "default": SECRET,
    });
    let bundle = json!({
        "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Bundle", "metadata": {"name": "mcc-harvester", "namespace": "fleet-local"},
        "spec": {"helm": {"values": {"password": SECRET}}, "resources": [{"content": SECRET}]},
    });
    let secrets = json!({"apiVersion": "v1", "kind": "List", "items": [
        secret("plan", "rke.cattle.io/machine-plan", "plan"),
        secret("release", "helm.sh/release.v1", "release"),
        secret("local-kubeconfig", "cluster.x-k8s.io/secret", "value"),
        secret("other", "Opaque", "password"),
    ]});
    fs::create_dir_all(path.join("more")).unwrap();
    let yaml = |objects: &[Value]| objects.iter().map(|one| format!("---\n{one}\n")).collect::<String>();
    fs::write(path.join("secrets.json"), secrets.to_string()).unwrap();
    fs::write(path.join("all.yaml"), yaml(&[vm, pod, job, chart])).unwrap();
    fs::write(path.join("more/rest.yml"), yaml(&[addon, setting, bundle])).unwrap();
    fs::write(
        path.join("virtualmachineinstances.yaml"),
        "apiVersion: v1\nitems: []\nkind: List\n",
    )
    .unwrap();
    fs::write(path.join("notes.txt"), "a: b: c").unwrap();
}

fn loaded() -> Snapshot {
    let folder_of_manifests = tempfile::tempdir().unwrap();
    folder(folder_of_manifests.path());
    load(folder_of_manifests.path()).unwrap()
}

#[test]
fn a_folder_of_manifests_is_loaded_and_what_is_not_in_it_is_not_known() {
    let snapshot = loaded();
    assert_eq!(snapshot.source, Source::Folder);
    for (field, count) in snapshot.counts() {
        let expected = matches!(
            field,
            "vms"
                | "pods"
                | "jobs"
                | "machine_plans"
                | "helm_releases"
                | "kubeconfig_secrets"
                | "managed_charts"
                | "addons"
                | "settings"
                | "bundles"
        );
        assert_eq!(count, usize::from(expected), "{field}");
    }
    assert!(
        snapshot.vmis.as_ref().unwrap().is_empty(),
        "the name of the file says of what it is an empty list"
    );
    assert_eq!(snapshot.nodes.as_ref().unwrap_err().to_string(), "not in the folder");
}

#[test]
fn a_snapshot_that_is_loaded_from_its_file_is_the_one_that_was_saved_without_secret_values() {
    let snapshot = loaded();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("snapshot");
    file::save(&snapshot, &path).unwrap();
    assert_eq!(load(&path).unwrap(), snapshot);
    let mut text = String::new();
    let mut decoder = zstd::Decoder::new(fs::File::open(&path).unwrap()).unwrap();
    decoder.read_to_string(&mut text).unwrap();
    assert!(text.contains("local-kubeconfig"), "it is there, without its values");
    for planted in [SECRET, "aHVudGVyMi1wbGFudGVk"] {
        assert!(!text.contains(planted), "{planted} is in {text}");
    }
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no partial file is left");
}

#[test]
fn what_is_no_snapshot_says_what_would_be_one() {
    let place = tempfile::tempdir().unwrap();
    let error = |path: &Path| {
        load(path)
            .unwrap_err()
            .to_string()
            .replace(&place.path().display().to_string(), "DIR")
    };
    assert_eq!(error(&place.path().join("gone")), "failed to read DIR/gone");
    assert!(
        error(place.path()).starts_with("DIR has no objects that checks look at"),
        "an empty folder"
    );
    let path = place.path().join("text");
    fs::write(&path, "hello").unwrap();
    assert!(error(&path).starts_with("DIR/text is neither a snapshot"));
    fs::write(&path, zstd::encode_all(&b"{\"a\": 1}"[..], 1).unwrap()).unwrap();
    assert!(error(&path).starts_with("DIR/text is not a snapshot"));
    fs::write(place.path().join("bad.yaml"), "a: b: c").unwrap();
    assert_eq!(error(place.path()), "DIR/bad.yaml has no manifests that can be read");
}
