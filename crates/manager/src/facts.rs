//! Facts outside the watched kinds that decisions need.
//!
//! A question is answered by a future that the manager's loop drives; what it found is kept until the plan is gone.

mod error;
mod kept_pods;
mod kubelets;
mod repository;

use std::{collections::BTreeMap, sync::Arc};

use api::{
    CheckSummary, Phase, ReleaseDigests, ReleaseMetadata, RepositoryAccess, UpgradePlan,
    foreign::harvester::Upgrade,
    labels, names,
    quoted::{LONGEST_MESSAGE, plain},
};
use checks::{admission::is_v1_upgrade_running, postflight::stored::StoredError};
use clock::Clock;
use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Node},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use plan::{
    Need,
    look_back::{self, Comparison},
    observed::{Before, Facts, Fetched, ImageLists, KeptPods, NewImages, PreflightFacts},
    preflight,
};

use release::tls::Identity;

use self::{error::Unanswered, repository::Repository};
use crate::{
    external_probes::{ExternalProbes, Kubelet, with_port},
    keyring::Keyring,
    upgrade_record::{Look, Unstored},
};

/// The port of the API server on its own addresses.
const API_SERVER_PORT: u16 = 6443;

/// An answer on its way.
pub type Answering = BoxFuture<'static, Answer>;

/// An answer: which plan asked what, and what was found.
pub struct Answer {
    uid: String,
    found: Found,
}

enum Found {
    Preflight(Result<PreflightFacts, Unanswered>),
    Release(Result<ReleaseMetadata, Unanswered>),
    RepoCertificate(Result<(RepositoryAccess, Identity), Unanswered>),
    Manifest(Result<ReleaseDigests, Unanswered>),
    ImageLists(Result<ImageLists, Unanswered>),
    NewImages(Result<NewImages, Unanswered>),
    KeptPods(Result<KeptPods, Unanswered>),
    Before(Seen),
    Compared(Option<CheckSummary>),
}

/// What is there before the first change: the ConfigMaps that record it, and what the checks say about it.
struct Seen {
    maps: Result<Vec<ConfigMap>, StoredError>,
    preflight: CheckSummary,
}

/// What is known, per plan.
#[derive(Default)]
pub struct Known {
    facts: BTreeMap<String, Facts>,
    asked: BTreeMap<String, Vec<Need>>,
    keyring: Keyring,
    unstored: Unstored,
    comparisons: BTreeMap<String, Comparison>,
}

impl Known {
    /// What is known for a plan.
    #[must_use]
    pub fn of(&self, plan: &UpgradePlan) -> Facts {
        let uid = plan.uid().unwrap_or_default();
        let mut facts = self.facts.get(&uid).cloned().unwrap_or_default();
        // A certificate is as good as its key, and that may have been given up since.
        match self.keyring.certificate(&uid) {
            Some(certificate) => facts.repo_certificate = Fetched::Got(certificate),
            None if matches!(facts.repo_certificate, Fetched::Got(_)) => facts.repo_certificate = Fetched::Unknown,
            None => {}
        }
        if let Fetched::Got(before) = &mut facts.before {
            before.not_stored = self.unstored.given_up(&uid);
        }
        facts
    }

    /// Records that were made and not stored.
    #[must_use]
    pub fn unstored(&self) -> &Unstored {
        &self.unstored
    }

    /// What is known of the comparison of a plan that has ended.
    #[must_use]
    pub fn comparison(&self, plan: &UpgradePlan) -> Comparison {
        let known = self.comparisons.get(&plan.uid().unwrap_or_default());
        known.cloned().unwrap_or_default()
    }

    /// Notes that a comparison is under way.
    pub fn compares(&mut self, plan: &UpgradePlan) {
        let uid = plan.uid().unwrap_or_default();
        self.comparisons.insert(uid, Comparison::UnderWay);
    }

    /// The keys that were made and not forgotten.
    #[must_use]
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Notes that a question is on its way; `false` if it already was.
    pub fn ask(&mut self, plan: &UpgradePlan, need: Need) -> bool {
        let asked = self.asked.entry(plan.uid().unwrap_or_default()).or_default();
        let new = !asked.contains(&need);
        if new {
            asked.push(need);
        }
        new
    }

    /// Takes an answer in.
    pub fn take(&mut self, answer: Answer, clock: &Clock) {
        let Answer { uid, found } = answer;
        let facts = self.facts.entry(uid.clone()).or_default();
        let need = match found {
            Found::Preflight(result) => {
                note(&mut facts.preflight, result, clock);
                Need::Preflight
            }
            Found::Release(result) => {
                note(&mut facts.release, result, clock);
                Need::Release
            }
            Found::RepoCertificate(result) => {
                let known = result.map(|(access, identity)| {
                    self.keyring.add(&uid, access.clone(), identity);
                    access
                });
                note(&mut facts.repo_certificate, known, clock);
                Need::RepoCertificate
            }
            Found::Manifest(result) => {
                note(&mut facts.digests, result, clock);
                Need::Manifest
            }
            Found::ImageLists(result) => {
                note(&mut facts.image_lists, result, clock);
                Need::ImageLists
            }
            Found::NewImages(result) => {
                note(&mut facts.new_images, result, clock);
                Need::NewImages
            }
            Found::KeptPods(result) => {
                let at = clock.now_in_seconds();
                note(
                    &mut facts.kept_pods,
                    result.map(|found| KeptPods { at, ..found }),
                    clock,
                );
                Need::KeptPods
            }
            Found::Before(Seen { maps, preflight }) => {
                self.unstored.add(&uid, maps);
                let before = Before {
                    preflight,
                    not_stored: None,
                };
                facts.before = Fetched::Got(before);
                Need::Before
            }
            Found::Compared(found) => {
                let comparison = found.map_or(Comparison::Impossible, Comparison::Made);
                self.comparisons.insert(uid, comparison);
                return;
            }
        };
        self.asked.entry(uid).or_default().retain(|asked| *asked != need);
    }

    /// Forgets plans that are gone or have ended: another try asks again.
    pub fn keep(&mut self, plans: &[Arc<UpgradePlan>]) {
        let alive = |uid: &String| {
            plans
                .iter()
                .any(|plan| plan.metadata.uid.as_ref() == Some(uid) && !plan.phase().is_some_and(Phase::is_terminal))
        };
        self.facts.retain(|uid, _| alive(uid));
        self.asked.retain(|uid, _| alive(uid));
        self.keyring.keep(alive);
        self.unstored.keep(alive);
        self.comparisons.retain(|uid, _| {
            let mut ended = plans.iter().filter(|plan| look_back::to_be_compared(plan).is_some());
            ended.any(|plan| plan.metadata.uid.as_ref() == Some(uid))
        });
    }
}

fn note<T>(known: &mut Fetched<T>, result: Result<T, Unanswered>, clock: &Clock) {
    let before = match known {
        Fetched::Failed { attempts, .. } => *attempts,
        _ => 0,
    };
    *known = match result {
        Ok(found) => Fetched::Got(found),
        // Kubelets and the repository say what they like.
        Err(error) => Fetched::Failed {
            error: plain(&error.to_string(), LONGEST_MESSAGE),
            at: clock.now_in_seconds(),
            attempts: before + 1,
        },
    };
}

/// Starts to answer a question.
#[must_use]
pub fn answer(
    look: Look,
    probes: Arc<dyn ExternalProbes>,
    plan: &UpgradePlan,
    need: Need,
    managed_nodes: Vec<Kubelet>,
) -> Answering {
    let uid = plan.uid().unwrap_or_default();
    let (name, repository) = (plan.name_any(), Repository::of(plan, probes.clone()));
    // Kubelets are not asked where what they say does not count.
    let managed_nodes = match preflight::skips_disk_space(plan) {
        Ok(true) => Vec::new(),
        _ => managed_nodes,
    };
    let previous = plan
        .status
        .as_ref()
        .and_then(|status| status.previous_version.clone())
        .unwrap_or_default();
    let drained = kept_pods::drained_nodes(plan);
    let plan = plan.clone();
    Box::pin(async move {
        let client = look.client();
        let found = match need {
            Need::Preflight => Found::Preflight(disks_and_certificates(client, probes.as_ref(), managed_nodes).await),
            Need::Release => Found::Release(repository.release().await),
            Need::RepoCertificate => Found::RepoCertificate(certificate(probes.as_ref(), &name).await),
            Need::Manifest => Found::Manifest(repository.digests().await),
            Need::ImageLists => Found::ImageLists(repository.image_lists(&previous).await),
            Need::NewImages => Found::NewImages(new_images(probes.as_ref(), &repository, managed_nodes).await),
            Need::KeptPods => Found::KeptPods(kept_pods::ask(client, &drained).await),
            Need::Before => Found::Before(before(&look, &plan).await),
        };
        Answer { uid, found }
    })
}

/// What is there, and then what the checks say about it: together they would take twice the memory.
async fn before(look: &Look, plan: &UpgradePlan) -> Seen {
    Seen {
        maps: look.record(plan).await,
        preflight: look.preflight(plan).await,
    }
}

/// Starts to compare the cluster with what was there before an upgrade that has ended.
pub(crate) fn compare(look: Look, plan: &Arc<UpgradePlan>) -> Answering {
    let plan = plan.clone();
    Box::pin(async move {
        Answer {
            uid: plan.uid().unwrap_or_default(),
            found: Found::Compared(look.compare(&plan).await),
        }
    })
}

/// A certificate for the repository of a plan, with its key.
async fn certificate(probes: &dyn ExternalProbes, plan: &str) -> Result<(RepositoryAccess, Identity), Unanswered> {
    let identity = probes.mint(&names::repo_server_name(plan)).await?;
    let access = RepositoryAccess {
        certificate: identity.certificate.clone(),
        secret: names::repo_secret(plan, &identity.certificate),
        in_use: false,
    };
    Ok((access, identity))
}

/// The kubelet of a node.
#[must_use]
pub fn kubelet_of(node: &Node) -> Kubelet {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut internal = addresses.filter(|address| address.type_ == "InternalIP");
    Kubelet {
        node: node.name_any(),
        address: internal.next().map(|address| address.address.clone()),
    }
}

/// How large the archives are, and how full the disks.
async fn new_images(
    probes: &dyn ExternalProbes,
    repository: &Repository,
    nodes: Vec<Kubelet>,
) -> Result<NewImages, Unanswered> {
    Ok(NewImages {
        archive_bytes: repository.archive_bytes().await?,
        kubelets: kubelets::ask(probes, nodes).await?,
    })
}

async fn disks_and_certificates(
    client: &Client,
    probes: &dyn ExternalProbes,
    nodes: Vec<Kubelet>,
) -> Result<PreflightFacts, Unanswered> {
    let kubelets = kubelets::ask(probes, nodes).await?;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), names::DEFAULT_NAMESPACE);
    let selector = format!("{}={}", labels::SERVICE_NAME, names::KUBERNETES_SERVICE);
    let slices = slices.list(&ListParams::default().labels(&selector)).await;
    let slices = slices.map_err(|error| Unanswered::list("the API server's endpoints", error))?;
    let api_servers: Vec<String> = slices
        .iter()
        .flat_map(|slice| &slice.endpoints)
        .flat_map(|endpoint| &endpoint.addresses)
        .map(|address| with_port(address, API_SERVER_PORT))
        .collect();
    let (mut certificates, mut silent) = (BTreeMap::new(), Vec::new());
    for address in &api_servers {
        match probes.certificate_end(address).await {
            Ok(end) => {
                certificates.insert(address.clone(), end);
            }
            Err(error) => {
                tracing::warn!(%error, "an API server did not show its certificate");
                silent.push(error);
            }
        }
    }
    if certificates.is_empty() && !silent.is_empty() {
        return Err(Unanswered::Certificates(silent));
    }
    Ok(PreflightFacts {
        kubelets,
        api_servers,
        certificates,
        v1_upgrades: v1_upgrades(client).await?,
    })
}

/// Upgrades of Harvester's own controller that run. A cluster that does not know them has none.
async fn v1_upgrades(client: &Client) -> Result<Vec<String>, Unanswered> {
    let upgrades: Api<Upgrade> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
    let found = match upgrades.list(&ListParams::default()).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(Unanswered::list("upgrades.harvesterhci.io", error)),
    };
    let running = found.iter().filter(|upgrade| is_v1_upgrade_running(upgrade));
    Ok(running.map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external_probes::FetchError;

    #[test]
    fn s06_what_a_kubelet_answers_is_bounded_and_one_line() {
        let mut known = Fetched::<u8>::Unknown;
        let said = format!("node-1 answers with 500: \u{1b}[2J\n{}", "x".repeat(100_000));
        let error = Unanswered::Fetch {
            url: "http://repository".to_owned(),
            source: FetchError::Other(said),
        };
        note(&mut known, Err(error), &Clock::system());
        let Fetched::Failed { error, .. } = known else {
            panic!("it has failed")
        };
        assert!(error.chars().count() <= LONGEST_MESSAGE + 1 && !error.contains(char::is_control));
    }

    #[test]
    fn w30_addresses_of_ipv6_get_brackets() {
        assert_eq!(with_port("10.0.0.1", API_SERVER_PORT), "10.0.0.1:6443");
        assert_eq!(with_port("fd00::1", API_SERVER_PORT), "[fd00::1]:6443");
    }
}
