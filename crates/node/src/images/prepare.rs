//! `prepare`: brings the images of a release onto a node before anything is changed.
//!
//! Images that pods need go into containerd; those that RKE2 and the agent load at their next start are saved as
//! archives. Each step looks first and does only what is missing, so that a second run brings nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Mutex,
    time::Duration,
};

use api::{ProgramWait, UpgradePlan};
use kube::Api;
use release::{
    bundle::{self, AGENT, Archive, Bundle, COMMON, RKE2},
    image_list,
    release_file::{self, ReleaseFile},
};
use tokio::sync::OnceCell;

use super::{
    archive,
    eligibility::{self, PlanFacts},
    file::{self, Saved},
    presence::{complaint, missing},
    progress::{self, Progress},
    repository::Repository,
    store::ImageStore,
};
use crate::host::HostRoot;
use program::{
    error::{Error, Result},
    report::Waiting,
    step::{Step, StepContext},
};

/// Where RKE2 loads archives from at its start, on the host.
pub const RKE2_FOLDER: &str = "var/lib/rancher/rke2/agent/images";
/// Where the agent loads archives from, on the host.
pub const AGENT_FOLDER: &str = "var/lib/rancher/agent/images";

/// How often a repository that does not respond yet is queried.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// The steps, in order.
pub const STEPS: &[Step<Prepare>] = &[
    Step {
        name: "wait-for-repository",
        limit: MINUTE.saturating_mul(15),
        run: |prepare, ctx| Box::pin(prepare.wait_for_repository(ctx)),
    },
    Step {
        name: "read-release",
        limit: MINUTE.saturating_mul(15),
        run: |prepare, _| Box::pin(async { prepare.release().await.map(|_| ()) }),
    },
    Step {
        name: "check-version",
        limit: MINUTE.saturating_mul(5),
        run: |prepare, _| Box::pin(prepare.check_version()),
    },
    Step {
        name: "read-image-lists",
        limit: MINUTE.saturating_mul(15),
        run: |prepare, _| Box::pin(async { prepare.lists().await.map(|_| ()) }),
    },
    Step {
        name: "import-common",
        limit: MINUTE.saturating_mul(60),
        run: |prepare, ctx| Box::pin(prepare.import(COMMON, ctx)),
    },
    Step {
        name: "import-rke2",
        limit: MINUTE.saturating_mul(30),
        run: |prepare, ctx| Box::pin(prepare.import(RKE2, ctx)),
    },
    Step {
        name: "save-rke2",
        limit: MINUTE.saturating_mul(30),
        run: |prepare, ctx| Box::pin(prepare.save(RKE2, RKE2_FOLDER, ctx)),
    },
    Step {
        name: "save-agent",
        limit: MINUTE.saturating_mul(30),
        run: |prepare, ctx| Box::pin(prepare.save(AGENT, AGENT_FOLDER, ctx)),
    },
    Step {
        name: "verify-images",
        limit: MINUTE.saturating_mul(5),
        run: |prepare, _| Box::pin(prepare.verify()),
    },
];

/// Where the plan is read from.
pub enum PlanSource {
    /// The cluster.
    Cluster {
        /// The plans.
        plans: Box<Api<UpgradePlan>>,
        /// This one's name.
        name: String,
    },
    /// Known already.
    Known(PlanFacts),
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Archives that were imported.
    pub imported: Vec<String>,
    /// Archives whose images were all there.
    pub skipped: Vec<String>,
    /// Files that were written, by name.
    pub written: Vec<String>,
    /// Files that were there, by name.
    pub kept: Vec<String>,
}

/// The list of an archive: as it came, and what it says.
struct List {
    text: String,
    images: BTreeSet<String>,
}

/// The repository does not answer yet.
#[must_use]
pub fn silent(url: String, why: String) -> Waiting {
    Waiting {
        what: ProgramWait::Repository,
        object: url,
        message: why,
    }
}

/// A bundle must have the archives that no node can do without.
///
/// # Errors
/// The group that it lacks.
pub fn has_archives(bundle: &Bundle) -> Result<()> {
    let lacks = [COMMON, RKE2].into_iter().find(|group| bundle.group(group).is_empty());
    lacks.map_or(Ok(()), |group| {
        Err(Error::Permanent(format!(
            "{} names no archives of {group}",
            bundle::PATH
        )))
    })
}

/// The images that a list names. A list that names none says nothing about what is there.
///
/// # Errors
/// It is no list, or an empty one; with its path.
pub fn listed(path: &str, text: &str) -> Result<BTreeSet<String>> {
    let images = image_list::parse(text)
        .map_err(|error| Error::Permanent(format!("{path} is not a list of images: {error}")))?;
    if images.is_empty() {
        return Err(Error::Permanent(format!(
            "{path} is empty: a list of images must name some"
        )));
    }
    Ok(images)
}

/// What the steps share.
pub struct Prepare {
    repository: Repository,
    store: Box<dyn ImageStore>,
    root: HostRoot,
    plan: PlanSource,
    release: OnceCell<(ReleaseFile, Bundle)>,
    lists: OnceCell<BTreeMap<String, List>>,
    summary: Mutex<Summary>,
}

impl Prepare {
    /// Brings images from a repository into a store, and files under the root of a host.
    #[must_use]
    pub fn new(repository: Repository, store: Box<dyn ImageStore>, root: &Path, plan: PlanSource) -> Self {
        Self {
            repository,
            store,
            root: HostRoot::new(root),
            plan,
            release: OnceCell::new(),
            lists: OnceCell::new(),
            summary: Mutex::default(),
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.summary.lock().map(|summary| summary.clone()).unwrap_or_default()
    }

    fn note(&self, note: impl FnOnce(&mut Summary)) {
        if let Ok(mut summary) = self.summary.lock() {
            note(&mut summary);
        }
    }

    async fn wait_for_repository(&self, ctx: StepContext<'_>) -> Result<()> {
        loop {
            let answer = self
                .repository
                .text_once(release_file::PATH, release_file::LARGEST_BYTES)
                .await;
            let error = match answer {
                Ok(_) => return Ok(()),
                // Waiting does not make it another one.
                Err(error @ Error::Refused(_)) => return Err(error),
                Err(error) => error,
            };
            let waiting = silent(self.repository.url(""), error.to_string());
            ctx.report.waiting(&[waiting], Some(ctx.deadline));
            ctx.report.clock.sleep(PROBE_INTERVAL).await;
        }
    }

    async fn release(&self) -> Result<&(ReleaseFile, Bundle)> {
        self.release.get_or_try_init(|| self.read_release()).await
    }

    async fn read_release(&self) -> Result<(ReleaseFile, Bundle)> {
        let text = self
            .repository
            .text(release_file::PATH, release_file::LARGEST_BYTES)
            .await?;
        let release = release_file::parse(&text).map_err(|error| Error::Permanent(error.to_string()))?;
        let text = self.repository.text(bundle::PATH, bundle::LARGEST_BYTES).await?;
        let bundle = bundle::parse(&text).map_err(|error| Error::Permanent(error.to_string()))?;
        has_archives(&bundle)?;
        if bundle.group(AGENT).is_empty() {
            tracing::warn!("{} names no archives of {AGENT}", bundle::PATH);
        }
        tracing::info!(
            harvester = release.harvester,
            kubernetes = release.kubernetes,
            "the release is"
        );
        Ok((release, bundle))
    }

    async fn check_version(&self) -> Result<()> {
        let facts = match &self.plan {
            PlanSource::Known(facts) => facts.clone(),
            PlanSource::Cluster { plans, name } => {
                let plan = plans.get(name).await;
                PlanFacts::of(&plan.map_err(|error| Error::api(format!("read UpgradePlan {name}"), error))?)
            }
        };
        let (release, _) = self.release().await?;
        eligibility::check(&facts, release).map_err(|why| Error::Permanent(why.to_string()))
    }

    /// The lists of all archives, by their paths.
    async fn lists(&self) -> Result<&BTreeMap<String, List>> {
        self.lists.get_or_try_init(|| self.read_lists()).await
    }

    async fn read_lists(&self) -> Result<BTreeMap<String, List>> {
        let (_, bundle) = self.release().await?;
        let mut lists = BTreeMap::new();
        for (_, archive) in bundle.archives() {
            let path = archive.list.as_str();
            let text = self.repository.text(path, image_list::LARGEST_BYTES).await?;
            let images = listed(path, &text)?;
            lists.insert(path.to_owned(), List { text, images });
        }
        Ok(lists)
    }

    async fn list(&self, archive: &Archive) -> Result<&List> {
        let path = archive.list.as_str();
        let list = self.lists().await?.get(path);
        list.ok_or_else(|| Error::Permanent(format!("{path} was not read")))
    }

    async fn import(&self, group: &str, ctx: StepContext<'_>) -> Result<()> {
        let (_, bundle) = self.release().await?;
        let archives = bundle.group(group);
        for (index, archive) in archives.iter().enumerate() {
            let (number, count) = progress::place(bundle, &progress::IMPORTED, group, index);
            let name = archive.archive.as_str();
            let absent = missing(&self.list(archive).await?.images, &self.store.list().await?);
            if absent.is_empty() {
                tracing::info!(
                    archive = name,
                    "archive {number} of {count}: all of its images are there"
                );
                self.note(|summary| summary.skipped.push(name.to_owned()));
                continue;
            }
            tracing::info!(
                archive = name,
                missing = absent.len(),
                "archive {number} of {count}: importing it"
            );
            let mut progress = Progress::new(ctx, "importing", name, number, count);
            archive::import(&self.repository, self.store.as_ref(), archive, &mut progress).await?;
            self.note(|summary| summary.imported.push(name.to_owned()));
        }
        Ok(())
    }

    async fn save(&self, group: &str, folder: &str, ctx: StepContext<'_>) -> Result<()> {
        let (_, bundle) = self.release().await?;
        let archives = bundle.group(group);
        let folder = self.root.resolve(folder)?;
        for (index, archive) in archives.iter().enumerate() {
            let (number, count) = progress::place(bundle, &progress::SAVED, group, index);
            let list = self.list(archive).await?.text.clone();
            let name = archive.list.file_name();
            self.note_saved(name, file::save_text(&folder, name, list).await?);
            let name = archive.archive.file_name();
            let mut progress = Progress::new(ctx, "saving", archive.archive.as_str(), number, count);
            self.note_saved(
                name,
                file::save(&self.repository, archive, &folder, &mut progress).await?,
            );
        }
        Ok(())
    }

    fn note_saved(&self, name: &str, saved: Saved) {
        tracing::info!(file = name, ?saved, "a file is in place");
        self.note(|summary| match saved {
            Saved::Kept => summary.kept.push(name.to_owned()),
            Saved::Written => summary.written.push(name.to_owned()),
        });
    }

    /// Whatever was reported before: listed images must exist now.
    async fn verify(&self) -> Result<()> {
        let (_, bundle) = self.release().await?;
        let mut listed = BTreeSet::new();
        for archive in bundle.group(COMMON).iter().chain(bundle.group(RKE2)) {
            listed.extend(self.list(archive).await?.images.iter().cloned());
        }
        let absent = missing(&listed, &self.store.list().await?);
        if !absent.is_empty() {
            return Err(Error::Permanent(complaint(&absent, listed.len())));
        }
        let Summary {
            imported,
            skipped,
            written,
            kept,
        } = self.summary();
        tracing::info!(
            images = listed.len(),
            imported = imported.len(),
            skipped = skipped.len(),
            written = written.len(),
            kept = kept.len(),
            "all images are there"
        );
        Ok(())
    }
}
