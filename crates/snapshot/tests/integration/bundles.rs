//! Support bundles as support-bundle-kit writes them, made here: zip and folder, whole, partial, and made to harm.

use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
};

use rstest::rstest;
use snapshot::{Limits, Snapshot, Source, bundle, load};
use tempfile::TempDir;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

const ROOT: &str = "supportbundle_2a9b0a5e_2026-09-01T10-20-30Z";

/// What the files of a bundle have in them, by their names below the root.
fn files() -> Vec<(&'static str, String)> {
    let list = |items: &str| format!("apiVersion: v1\nitems:\n{items}kind: List\n");
    vec![
        (
            "metadata.yaml",
            "bundlename: x\nbundlecreatedat: \"2026-09-01T10:20:30Z\"\n".to_owned(),
        ),
        ("logs/default/pod/container.log", "password: in-a-log\n".repeat(1000)),
        ("nodes/node-1.zip", "PK not read".to_owned()),
        (
            "yamls/cluster/v1/namespaces.yaml",
            list(
                "- metadata:\n    name: default\n- metadata:\n    name: harvester-system\n- metadata:\n    name: tenants\n",
            ),
        ),
        (
            "yamls/cluster/v1/nodes.yaml",
            list(
                "- apiVersion: v1\n  kind: Node\n  metadata:\n    deletionTimestamp: \"null\"\n    labels:\n      \
                 node-role.kubernetes.io/etcd: \"null\"\n    name: node-1\n  spec:\n    podCIDR: \"null\"\n  status:\n    \
                 conditions:\n    - lastHeartbeatTime: \"2026-09-01T10:20:00Z\"\n      message: \"null\"\n      status: \"True\"\n      \
                 type: Ready\n",
            ),
        ),
        (
            "yamls/cluster/harvesterhci.io/v1beta1/settings.yaml",
            list(
                "- apiVersion: harvesterhci.io/v1beta1\n  default: \"null\"\n  kind: Setting\n  metadata:\n    name: server-version\n  \
                 value: v1.7.1\n",
            ),
        ),
        (
            "yamls/namespaced/default/kubevirt.io/v1/virtualmachines.yaml",
            list(
                "- apiVersion: kubevirt.io/v1\n  kind: VirtualMachine\n  metadata:\n    generation: 1.234567e+06\n    name: vm-1\n    \
                 namespace: default\n  spec:\n    runStrategy: Always\n    template:\n      spec:\n        domain: {}\n",
            ),
        ),
        (
            "yamls/namespaced/fleet-local/v1/secrets.yaml",
            list(
                "- apiVersion: v1\n  data:\n    failure-count: Mw==\n  kind: Secret\n  metadata:\n    annotations:\n      \
                 rke.cattle.io/pre-drain: \"null\"\n    name: plan-1\n    namespace: fleet-local\n  type: rke.cattle.io/machine-plan\n",
            ),
        ),
        (
            "yamls/namespaced/harvester-system/v1/events.yaml",
            list(
                "- apiVersion: v1\n  involvedObject: {}\n  kind: Event\n  metadata:\n    name: a\n    namespace: harvester-system\n  type: \
                 Normal\n- apiVersion: v1\n  involvedObject: {}\n  kind: Event\n  metadata:\n    name: b\n    namespace: \
                 harvester-system\n  type: Warning\n",
            ),
        ),
    ]
}

fn zip_of(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, content) in entries {
        zip.start_file(name.as_str(), options).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn entries() -> Vec<(String, Vec<u8>)> {
    let files = files().into_iter();
    files
        .map(|(name, text)| (format!("{ROOT}/{name}"), text.into_bytes()))
        .collect()
}

/// The bytes in a file, whose name says nothing about them.
fn saved(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("download");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn unpacked(below: &Path) {
    for (name, text) in files() {
        let path = below.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn unknown(snapshot: &Snapshot, field: &str) -> Option<String> {
    let all = snapshot.unknown_kinds().into_iter();
    all.filter(|(name, _)| *name == field).map(|(_, why)| why).next()
}

fn assert_is_the_bundle(snapshot: &Snapshot) {
    assert_eq!(snapshot.source, Source::SupportBundle);
    assert_eq!(snapshot.taken_at.to_string(), "2026-09-01T10:20:30Z");
    let nodes = snapshot.nodes.as_ref().unwrap();
    assert_eq!(nodes.len(), 1);
    let labels = nodes[0].metadata.labels.as_ref().unwrap();
    assert_eq!(
        labels["node-role.kubernetes.io/etcd"], "",
        "a label without value is still a label"
    );
    assert_eq!(nodes[0].metadata.deletion_timestamp, None);
    assert_eq!(snapshot.settings.as_ref().unwrap()[0].value.as_str(), "v1.7.1");
    assert_eq!(snapshot.events.as_ref().unwrap().len(), 1, "only warnings");
    let vms = snapshot.vms.as_ref().unwrap();
    assert_eq!(vms[0].metadata.generation, Some(1_234_567));
    assert_eq!(
        snapshot.machine_plans.as_ref().unwrap()[0].progress["failure-count"],
        "3"
    );
    // What is left out is not known. It is not an empty list.
    assert_eq!(unknown(snapshot, "helm_releases").unwrap(), "not in the support bundle");
    assert_eq!(
        unknown(snapshot, "kubeconfig_secrets").unwrap(),
        "not in the support bundle"
    );
    let volumes = unknown(snapshot, "volumes").unwrap();
    assert_eq!(
        volumes,
        "not in the support bundle: it did not collect namespace longhorn-system"
    );
    let budgets = unknown(snapshot, "budgets").unwrap();
    assert_eq!(
        budgets,
        "not in the support bundle: it did not collect namespaces tenants"
    );
    // What is there in part says so.
    assert_eq!(snapshot.partial["vms"], "it did not collect namespaces tenants");
    assert!(!snapshot.partial.contains_key("nodes"));
    // A bundle has no file for a kind of which there are no objects.
    assert!(snapshot.plans.as_ref().unwrap().is_empty());
    assert!(snapshot.versions.as_ref().unwrap().is_empty());
    assert!(snapshot.kubelet_disks["node-1"].is_err());
}

#[test]
fn a_zip_is_loaded() {
    let (_folder, path) = saved(&zip_of(&entries()));
    assert_is_the_bundle(&load(&path).unwrap());
}

#[test]
fn an_unpacked_bundle_is_loaded_from_its_folder_and_from_the_one_above() {
    let folder = tempfile::tempdir().unwrap();
    unpacked(&folder.path().join(ROOT));
    assert_is_the_bundle(&load(folder.path()).unwrap());
    assert_is_the_bundle(&load(&folder.path().join(ROOT)).unwrap());
}

#[test]
fn a_bundle_of_all_namespaces_lacks_nothing() {
    let mut entries = entries();
    entries.push((
        format!("{ROOT}/yamls/namespaced/tenants/v1/configmaps.yaml"),
        b"apiVersion: v1\nitems: []\nkind: List\n".to_vec(),
    ));
    let (_folder, path) = saved(&zip_of(&entries));
    let snapshot = load(&path).unwrap();
    assert!(snapshot.partial.is_empty(), "{:?}", snapshot.partial);
    assert!(snapshot.budgets.as_ref().unwrap().is_empty());
}

#[test]
fn what_every_cluster_has_and_a_bundle_lacks_was_not_collected() {
    let mut entries = entries();
    entries.retain(|(name, _)| !name.ends_with("/nodes.yaml"));
    let (_folder, path) = saved(&zip_of(&entries));
    let snapshot = load(&path).unwrap();
    assert_eq!(
        unknown(&snapshot, "nodes").unwrap(),
        "not in the support bundle: every cluster has some, so they could not be collected"
    );
    assert!(snapshot.knows_namespace("default") && !snapshot.knows_namespace("tenants"));
}

#[test]
fn addresses_are_kept_without_credentials() {
    let mut snapshot = Snapshot::empty(jiff::Timestamp::UNIX_EPOCH);
    for (field, kind, key) in [
        ("images", "VirtualMachineImage", "url"),
        ("versions", "Version", "isoURL"),
    ] {
        for (address, expected) in [
            (
                "https://user:pass@example.org/a.iso?token=x#y",
                "https://example.org/a.iso",
            ),
            ("https://example.org:8443/a@b.iso", "https://example.org:8443/a@b.iso"),
            ("https://user@example.org", "https://example.org"),
            ("not a url", "not a url"),
        ] {
            let object = serde_json::json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": kind, "metadata": {"name": address, "namespace": "harvester-system"},
                "spec": {key: address},
            });
            snapshot.add(field, object).unwrap();
            let kept = serde_json::to_value(&snapshot).unwrap();
            let last = kept[field]["Ok"].as_array().unwrap().last().unwrap()["spec"][key].clone();
            assert_eq!(last, expected);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_makes_its_kind_unknown_and_no_other() {
    let mut entries = entries();
    entries.push((
        format!("{ROOT}/yamls/namespaced/default/v1/pods.yaml"),
        b"a: b: c".to_vec(),
    ));
    let (_folder, path) = saved(&zip_of(&entries));
    let snapshot = load(&path).unwrap();
    let why = unknown(&snapshot, "pods").unwrap();
    assert!(
        why.contains("default/v1/pods.yaml") && why.contains("not YAML"),
        "{why}"
    );
    assert!(snapshot.nodes.is_ok());
}

fn refusal(bytes: &[u8], limits: Limits) -> String {
    let (_folder, path) = saved(bytes);
    let refused = bundle::load_zip(&path, limits).unwrap_err().to_string();
    refused.replace(&path.display().to_string(), "ZIP")
}

fn with(name: &str, content: &[u8]) -> Vec<u8> {
    let mut entries = entries();
    entries.push((name.to_owned(), content.to_vec()));
    zip_of(&entries)
}

#[rstest]
#[case::up(
    "x/../../etc/cron.d/x",
    "ZIP is refused: the name \"x/../../etc/cron.d/x\" in it leads out of its folder"
)]
#[case::absolute(
    "/etc/passwd",
    "ZIP is refused: the name \"/etc/passwd\" in it leads out of its folder"
)]
#[case::windows("a\\..\\b", "ZIP is refused: the name \"a\\..\\b\" in it leads out of its folder")]
#[case::two_roots(
    "other/yamls/cluster/v1/nodes.yaml",
    "ZIP is refused: it has several support bundles; give one"
)]
fn a_zip_with_a_name_that_no_bundle_has_is_refused(#[case] name: &str, #[case] expected: &str) {
    assert_eq!(refusal(&with(name, b"x"), Limits::default()), expected);
}

#[test]
fn a_zip_bomb_is_refused_by_its_ratio_by_its_size_and_by_its_files() {
    let name = format!("{ROOT}/yamls/cluster/management.harvesterhci.io/v1beta1/upgradeplans.yaml");
    let bomb = with(&name, &vec![b' '; 20 << 20]);
    let by_ratio = refusal(&bomb, Limits::default());
    assert!(by_ratio.contains("more than 200 times larger"), "{by_ratio}");
    let small = Limits {
        file_bytes: 100,
        ..Limits::default()
    };
    let by_size = refusal(&zip_of(&entries()), small);
    assert!(by_size.contains("is larger than"), "{by_size}");
    let total = Limits {
        total_bytes: 1000,
        ..Limits::default()
    };
    let by_total = refusal(&zip_of(&entries()), total);
    assert!(by_total.contains("its objects are more than"), "{by_total}");
    let few = Limits {
        entries: 3,
        ..Limits::default()
    };
    assert_eq!(
        refusal(&zip_of(&entries()), few),
        "ZIP is refused: it has 9 files, more than 3"
    );
    // What is not read may be as large as it likes.
    let log = with(&format!("{ROOT}/logs/default/a/b.log"), &vec![b' '; 20 << 20]);
    let (_folder, path) = saved(&log);
    load(&path).unwrap();
}

#[test]
fn links_and_encrypted_files_are_refused() {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file(format!("{ROOT}/yamls/cluster/v1/nodes.yaml"), options)
        .unwrap();
    zip.add_symlink(format!("{ROOT}/yamls/cluster/v1/secrets.yaml"), "/etc/shadow", options)
        .unwrap();
    let refused = refusal(&zip.finish().unwrap().into_inner(), Limits::default());
    assert!(
        refused.ends_with("secrets.yaml\" in it is a symbolic link"),
        "{refused}"
    );

    let mut zip = zip_of(&entries());
    // The flag of the first entry, where it begins and in the list at the end.
    zip[6] |= 1;
    let central = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    zip[central + 8] |= 1;
    let refused = refusal(&zip, Limits::default());
    assert_eq!(
        refused,
        "ZIP is refused: it is encrypted; unpack it first, and name the folder"
    );
}

#[test]
fn a_zip_in_which_a_name_occurs_twice_is_refused() {
    let mut zip = with(&format!("{ROOT}/yamls/cluster/v1/nodez.yaml"), b"x");
    let wanted = b"cluster/v1/nodez.yaml";
    let places: Vec<usize> = (0..zip.len() - wanted.len())
        .filter(|at| &zip[*at..*at + wanted.len()] == wanted)
        .collect();
    for place in places {
        zip[place..place + wanted.len()].copy_from_slice(b"cluster/v1/nodes.yaml");
    }
    assert_eq!(
        refusal(&zip, Limits::default()),
        "ZIP is refused: it has several files of the same name"
    );
}

#[test]
fn a_zip_that_is_cut_off_and_a_zip_of_something_else_say_so() {
    let zip = zip_of(&entries());
    let cut = refusal(&zip[..zip.len() / 2], Limits::default());
    assert_eq!(cut, "ZIP is not a complete zip file; download the support bundle again");
    let other = refusal(&zip_of(&[("a/bundle.zip".to_owned(), zip)]), Limits::default());
    let expected = "ZIP is not a support bundle: it has no folder yamls; it has another zip \"a/bundle.zip\" in it: unpack that one";
    assert_eq!(other, expected);
}

#[test]
fn a_link_in_an_unpacked_bundle_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    unpacked(folder.path());
    std::os::unix::fs::symlink("/etc/hosts", folder.path().join("yamls/cluster/v1/pods.yaml")).unwrap();
    let refused = load(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("is a symbolic link"), "{refused}");
}
