//! The logs of a rehearsal: collected while it runs, by the same collector as in a real cluster, and written to an archive.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

use api::{Phase, UpgradePlan};
use logs::{Collection, Memory, Store, StoreError, program::Options, store};
use tokio::{sync::watch, task::JoinHandle};

use super::logs::{archive, objects};
use crate::rehearsal::Rehearsal;

/// Logs that are being collected.
pub(super) struct Collecting {
    task: JoinHandle<Result<Store, StoreError>>,
    disk: Memory,
    file: PathBuf,
}

impl Collecting {
    /// Starts to collect the logs of a plan that was just created.
    pub(super) async fn start(rehearsal: &Rehearsal, plan: &str, file: PathBuf) -> anyhow::Result<Self> {
        let plan = rehearsal.read(plan).await?;
        let disk = Memory::default();
        let collection = Collection::open(
            rehearsal.server.client(),
            rehearsal.clock.clone(),
            plan,
            Arc::new(disk.clone()),
            Options::default(),
        )?;
        let task = tokio::spawn(async move {
            let (progress, _) = watch::channel(Default::default());
            collection.run(&progress, None).await
        });
        Ok(Self { task, disk, file })
    }

    /// Waits for the last lines, and writes the archive. An upgrade that does not end has no last lines.
    pub(super) async fn finish(self, rehearsal: &Rehearsal, plan: &UpgradePlan) -> anyhow::Result<()> {
        if plan.phase().is_some_and(Phase::is_terminal) {
            self.task.await??;
        } else {
            self.task.abort();
        }
        let view = store::read_only(Arc::new(self.disk))?;
        let (entries, _) = objects::read(&rehearsal.server.client(), plan).await;
        if let Some(said) = archive::write(view, rehearsal.clock.now(), entries, &self.file)? {
            writeln!(io::stderr(), "{said}")?;
        }
        Ok(())
    }
}
