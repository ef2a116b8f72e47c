//! What the tests of images share: archives, a repository that misbehaves on purpose, a store in memory, and a real
//! containerd.

pub(crate) mod bench;
pub(crate) mod hostile;
pub(crate) mod memory_store;

#[allow(unused_imports, reason = "every test uses a part")]
pub(crate) use testbed::{archive, containerd};

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::upgrade_plan::WaitingFor;
use clock::Clock;
use futures::future::BoxFuture;
use node::images::{
    ImageStore, Patience, Prepare, Repository, Summary,
    eligibility::PlanFacts,
    prepare::{PlanSource, STEPS},
};
use program::{board::Board, report::Reporter, step};
use release::bundle::Sha256Sum;
use tokio::sync::Notify;

/// Little: tests do not wait.
pub(crate) const PATIENCE: Patience = Patience {
    tries: 4,
    first_pause: Duration::from_millis(1),
    longest_pause: Duration::from_millis(4),
    answer: Duration::from_secs(10),
    stall: Duration::from_secs(10),
};

/// Keeps everything that was shown.
#[derive(Clone, Default)]
pub(crate) struct Shown(pub(crate) Arc<Mutex<(Vec<WaitingFor>, String)>>, pub(crate) Arc<Notify>);

impl Board for Shown {
    fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
        self.0.lock().unwrap().0.extend_from_slice(waiting);
        self.1.notify_one();
        Box::pin(std::future::ready(()))
    }

    fn termination_message(&self, text: &str) {
        text.clone_into(&mut self.0.lock().unwrap().1);
    }
}

/// A plan from v1.7.1 to what the repository has.
pub(crate) fn plan() -> PlanFacts {
    PlanFacts {
        previous_version: Some("v1.7.1".to_owned()),
        target: Some("v1.8.0".to_owned()),
        force: false,
    }
}

/// Runs `prepare`; the summary comes also when it failed.
pub(crate) async fn prepare(
    url: &str,
    store: Box<dyn ImageStore>,
    root: &Path,
    plan: PlanFacts,
    board: Shown,
) -> (Summary, program::Result<()>) {
    prepare_pinned(url, None, store, root, plan, board).await
}

/// The same with a repository that must have this manifest.
pub(crate) async fn prepare_pinned(
    url: &str,
    manifest: Option<Sha256Sum>,
    store: Box<dyn ImageStore>,
    root: &Path,
    plan: PlanFacts,
    board: Shown,
) -> (Summary, program::Result<()>) {
    let repository = Repository::new(url, None, Clock::system(), PATIENCE).unwrap();
    prepare_from(repository.pinned_to(manifest), store, root, plan, board).await
}

/// The same with any repository.
pub(crate) async fn prepare_from(
    repository: Repository,
    store: Box<dyn ImageStore>,
    root: &Path,
    plan: PlanFacts,
    board: Shown,
) -> (Summary, program::Result<()>) {
    let clock = Clock::system();
    let program = Prepare::new(repository, store, root, PlanSource::Known(plan));
    let report = Reporter::new(clock, Arc::new(board));
    let done = step::run_all(&program, STEPS, &report).await;
    (program.summary(), done)
}
