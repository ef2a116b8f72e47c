//! What the manager asks outside the watched kinds, by the very function that its loop uses.

use crate::support;
use std::sync::{Arc, Mutex};

use api::{UpgradePlan, names};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use manager::{
    external_probes::{
        CertificateError, CertificateTrouble, ExternalProbes, FetchError, Kubelet, KubeletError, KubeletFile,
    },
    facts::{Known, answer},
};
use plan::{
    Need,
    observed::{Facts, Fetched},
};
use proptest::prelude::*;
use release::tls::{Identity, TlsError, Trust};
use serde_json::{Value, json};

/// External probes with fixed results, which record their calls.
#[derive(Default)]
struct Stub {
    body: Vec<u8>,
    asked: Mutex<Vec<String>>,
    /// What kubelets show of their configuration.
    configz: Option<Value>,
}

impl ExternalProbes for Stub {
    fn fetch<'a>(&'a self, url: &'a str, _: Option<&'a Trust>) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        self.asked.lock().unwrap().push(url.to_owned());
        Box::pin(std::future::ready(Ok(self.body.clone())))
    }

    fn size<'a>(&'a self, _: &'a str, _: Option<&'a Trust>) -> BoxFuture<'a, Result<u64, FetchError>> {
        Box::pin(std::future::ready(Ok(1)))
    }

    fn mint<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Identity, TlsError>> {
        Box::pin(std::future::ready(Err(TlsError::Count(0))))
    }

    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, CertificateError>> {
        self.asked.lock().unwrap().push(address.to_owned());
        Box::pin(std::future::ready(Ok(support::beginning())))
    }

    fn kubelet<'a>(&'a self, _: &'a Kubelet, file: KubeletFile) -> BoxFuture<'a, Result<Vec<u8>, KubeletError>> {
        let answer = match (file, &self.configz) {
            (KubeletFile::Summary, _) => Ok(json!({"node": {"fs": {"capacityBytes": 100, "usedBytes": 1}}})),
            (KubeletFile::Configz, Some(shown)) => Ok(json!({"kubeletconfig": shown})),
            (KubeletFile::Configz, None) => Err(KubeletError::Forbidden("Forbidden (resource=nodes)".to_owned())),
        };
        Box::pin(std::future::ready(answer.map(|body| body.to_string().into_bytes())))
    }
}

fn kubelets(nodes: &[&str]) -> Vec<Kubelet> {
    let kubelet = |node: &&str| Kubelet {
        node: (*node).to_owned(),
        address: None,
    };
    nodes.iter().map(kubelet).collect()
}

fn plan() -> UpgradePlan {
    let mut plan = UpgradePlan::new("up", Default::default());
    plan.metadata.uid = Some("uid".to_owned());
    plan
}

/// Asks one question, as the manager's loop does.
async fn ask(client: kube::Client, probes: Arc<Stub>, need: Need, nodes: Vec<Kubelet>) -> Facts {
    let plan = plan();
    let mut known = Known::default();
    assert!(known.ask(&plan, need));
    let answer = answer(support::look(client), probes, &plan, need, nodes).await;
    known.take(answer, &support::days_on(0));
    known.of(&plan)
}

/// Replaces what is known of the API server's addresses.
async fn serve_at(client: &kube::Client, slices: Value) {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let old = api.list(&Default::default()).await.unwrap();
    for slice in old {
        let name = slice.metadata.name.unwrap();
        api.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    for slice in slices.as_array().unwrap() {
        let slice = serde_json::from_value(slice.clone()).unwrap();
        api.create(&PostParams::default(), &slice).await.unwrap();
    }
}

fn slice(name: &str, family: &str, addresses: &[&str]) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": family,
        "endpoints": addresses.iter().map(|address| json!({"addresses": [address]})).collect::<Vec<_>>(),
        "ports": [],
    })
}

#[tokio::test]
async fn w30_every_api_server_of_a_dual_stack_cluster_is_asked_at_an_address_that_can_be_dialled() {
    let server = support::cluster().await;
    let client = server.client();
    let slices = json!([
        slice("kubernetes", "IPv4", &["10.0.0.1", "10.0.0.2"]),
        slice("kubernetes-v6", "IPv6", &["fd00::1", "2001:db8::2"]),
    ]);
    serve_at(&client, slices).await;
    let probes = Arc::new(Stub::default());
    let facts = ask(client, probes.clone(), Need::Preflight, kubelets(&["node-1", "node-2"])).await;
    let expected = ["10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443", "[2001:db8::2]:6443"];
    let mut asked = probes.asked.lock().unwrap().clone();
    asked.sort();
    let mut sorted = expected.map(str::to_owned);
    sorted.sort();
    assert_eq!(asked, sorted);
    let Fetched::Got(found) = facts.preflight else {
        panic!("{:?}", facts.preflight)
    };
    assert_eq!(found.certificates.keys().cloned().collect::<Vec<_>>(), sorted);
    assert_eq!(found.kubelets.len(), 2);
    // An address as it is would not even parse.
    for address in asked {
        assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{address}");
    }
}

#[tokio::test]
async fn s06_a_kubelet_that_hides_its_configuration_is_taken_to_have_the_threshold_of_kubernetes() {
    for (shown, threshold) in [
        (Some(json!({"imageGCHighThresholdPercent": 70})), 70.0),
        (Some(json!({})), 85.0),
        (None, 85.0),
    ] {
        let server = support::cluster().await;
        let probes = Arc::new(Stub {
            configz: shown,
            ..Stub::default()
        });
        let facts = ask(server.client(), probes, Need::Preflight, kubelets(&["node-1"])).await;
        let Fetched::Got(found) = facts.preflight else {
            panic!("{:?}", facts.preflight)
        };
        let found = found.kubelets["node-1"].image_gc_high_threshold_percent;
        assert!(
            (found - threshold).abs() < f64::EPSILON,
            "{found} instead of {threshold}"
        );
    }
}

/// YAML as people and broken programs write it.
fn any_yaml() -> impl Strategy<Value = String> {
    let key = "harvester|os|kubernetes|rancher|minUpgradableVersion|harvesterChart|[a-z]{0,8}";
    let scalar = prop_oneof![
        Just("v1.8.0".to_owned()),
        Just(String::new()),
        "[0-9.]{1,6}|true|null|~|\\{\\}|\\[\\]|\"|'|\\||>|&a|\\*a|!!str|- -|: :|%YAML|---",
        any::<String>(),
        "[ -~]{0,20}",
    ];
    let lines = (proptest::collection::vec((key, 0..3usize, scalar), 0..8), any::<bool>());
    let nested = lines.prop_map(|(lines, list)| {
        let line = |(key, depth, value): (String, usize, String)| {
            let dash = if list && depth > 0 { "- " } else { "" };
            format!("{}{dash}{key}: {value}\n", "  ".repeat(depth))
        };
        lines.into_iter().map(line).collect::<String>()
    });
    prop_oneof![4 => nested, 1 => "(?s).{0,200}", 1 => "[\\[\\{]{0,500}"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_release_file_is_read_or_refused_with_its_address(text in any_yaml()) {
        refused_or_read(text.as_bytes())?;
    }

    #[test]
    fn a_release_file_of_any_bytes_is_read_or_refused_with_its_address(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        refused_or_read(&body)?;
    }
}

fn refused_or_read(body: &[u8]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let probes = Arc::new(Stub {
        body: body.to_vec(),
        ..Stub::default()
    });
    let facts = runtime.block_on(async {
        // No client asks the API for a file of the repository.
        let server = apiserver::ApiServer::new(apiserver::Config::new(Arc::new(support::beginning)));
        ask(server.client(), probes.clone(), Need::Release, Vec::new()).await
    });
    let url = "http://up-repo.harvester-system/harvester-iso/harvester-release.yaml";
    let asked = probes.asked.lock().unwrap().clone();
    prop_assert_eq!(asked, [url]);
    match facts.release {
        Fetched::Got(_) => {}
        Fetched::Failed { error, attempts, .. } => {
            prop_assert!(error.contains(url), "{error}");
            prop_assert_eq!(attempts, 1);
        }
        Fetched::Unknown => prop_assert!(false, "no answer"),
    }
    Ok(())
}

#[test]
fn a_release_file_as_the_iso_has_it_is_read() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let text = "harvester: v1.8.0\nharvesterChart: 1.8.0\nos: Harvester v1.8.0\nkubernetes: v1.35.2+rke2r1\n\
                minUpgradableVersion: v1.7.0\nmore:\n  of: [it]\n";
    let probes = Arc::new(Stub {
        body: text.into(),
        ..Stub::default()
    });
    let facts = runtime.block_on(async {
        let server = apiserver::ApiServer::new(apiserver::Config::new(Arc::new(support::beginning)));
        ask(server.client(), probes, Need::Release, Vec::new()).await
    });
    let Fetched::Got(release) = facts.release else {
        panic!("{:?}", facts.release)
    };
    assert_eq!(release.os.as_deref(), Some("Harvester v1.8.0"));
    assert_eq!(release.kubernetes.as_deref(), Some("v1.35.2+rke2r1"));
}

/// A repository that serves these files.
fn unreachable() -> CertificateError {
    CertificateError {
        address: "unreachable".to_owned(),
        source: CertificateTrouble::Refused,
    }
}

struct Files(std::collections::BTreeMap<String, Vec<u8>>);

impl ExternalProbes for Files {
    fn fetch<'a>(&'a self, url: &'a str, _: Option<&'a Trust>) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        let path = url
            .rsplit_once("harvester-iso")
            .map(|(_, path)| path)
            .unwrap_or_default();
        let found = self.0.get(path).cloned().ok_or(FetchError::NotFound);
        Box::pin(std::future::ready(found))
    }

    fn size<'a>(&'a self, _: &'a str, _: Option<&'a Trust>) -> BoxFuture<'a, Result<u64, FetchError>> {
        Box::pin(std::future::ready(Ok(1)))
    }

    fn mint<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Identity, TlsError>> {
        Box::pin(std::future::ready(Err(TlsError::Count(0))))
    }

    fn certificate_end<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Timestamp, CertificateError>> {
        Box::pin(std::future::ready(Err(unreachable())))
    }

    fn kubelet<'a>(&'a self, _: &'a Kubelet, _: KubeletFile) -> BoxFuture<'a, Result<Vec<u8>, KubeletError>> {
        Box::pin(std::future::ready(Err(KubeletError::Forbidden(
            "unreachable".to_owned(),
        ))))
    }
}

#[tokio::test]
async fn s07_the_manager_itself_trusts_only_what_is_recorded() {
    let client = apiserver::ApiServer::new(apiserver::Config::new(Arc::new(support::beginning))).client();
    let release = b"harvester: v1.8.0\nos: x\nkubernetes: y\n".to_vec();
    let manifest = |release: &[u8]| {
        let sum = release::manifest::sha256(release);
        json!({
            "iso": {"sha512": "ab".repeat(64), "size": 7},
            "files": {"harvester-release.yaml": {"size": release.len(), "sha256": sum.as_str()}},
        })
        .to_string()
        .into_bytes()
    };
    let known = async |files: &[(&str, Vec<u8>)], plan: &UpgradePlan, need: Need| {
        let files = files
            .iter()
            .map(|(path, content)| ((*path).to_owned(), content.clone()));
        let probes = Arc::new(Files(files.collect()));
        let mut known = Known::default();
        assert!(known.ask(plan, need));
        let answer = answer(support::look(client.clone()), probes, plan, need, Vec::new()).await;
        known.take(answer, &support::days_on(0));
        known.of(plan)
    };
    let mut plan = plan();
    let honest = [
        ("/harvester-release.yaml", release.clone()),
        (".manifest", manifest(&release)),
    ];
    let Fetched::Got(digests) = known(&honest, &plan, Need::Manifest).await.digests else {
        panic!("no digests")
    };
    assert_eq!(digests.iso_sha512, "ab".repeat(64));
    assert_eq!(digests.files.len(), 1);
    let status = plan.status.get_or_insert_default();
    status.release_digests = Some(digests);
    assert!(matches!(
        known(&honest, &plan, Need::Release).await.release,
        Fetched::Got(_)
    ));

    let other = b"harvester: v1.7.0\nos: x\nkubernetes: y\n".to_vec();
    let swapped = [
        ("/harvester-release.yaml", other.clone()),
        (".manifest", manifest(&release)),
    ];
    let replayed = [
        ("/harvester-release.yaml", other.clone()),
        (".manifest", manifest(&other)),
    ];
    for (files, words) in [
        (swapped, "harvester-release.yaml is refused: its SHA-256 is"),
        (replayed.clone(), "harvester-iso.manifest is refused"),
    ] {
        match known(&files, &plan, Need::Release).await.release {
            Fetched::Failed { error, .. } => assert!(error.contains(words), "{error}"),
            other => panic!("{other:?}"),
        }
    }
    // Without a record, which is how it was, it is believed.
    plan.status = None;
    assert!(matches!(
        known(&replayed, &plan, Need::Release).await.release,
        Fetched::Got(_)
    ));
}
