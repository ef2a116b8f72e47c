//! Collects the logs of an upgrade until it has ended, or reads once what the cluster still has of them. Nothing waits for
//! it, and it changes nothing in the cluster.

use std::{sync::Arc, time::Duration};

use api::UpgradePlan;
use clock::Clock;
use kube::{Api, Client, ResourceExt};
use tokio::sync::{Mutex, mpsc, watch};

use crate::{
    collector::{Collector, Settings},
    disk::Disk,
    line, owners,
    selection::Selection,
    shell::{self, Progress},
    store::{Append, Limits, Store, StoreError},
};

/// How often the plan is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// What is collected, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much may be kept.
    pub limits: Limits,
    /// How often and how much is read.
    pub settings: Settings,
    /// How long after the end of the upgrade its last lines are read.
    pub grace: Duration,
    /// Only pods of the upgrade, not the components of the cluster.
    pub own_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            settings: Settings::default(),
            grace: Duration::from_secs(30),
            own_only: false,
        }
    }
}

/// The logs of an upgrade, and where they are kept.
pub struct Collection {
    client: Client,
    clock: Clock,
    plan: UpgradePlan,
    options: Options,
    selection: Selection,
    collector: Collector,
    /// What is kept.
    pub store: Mutex<Store>,
}

impl Collection {
    /// Continues what is on the disk, or begins.
    ///
    /// # Errors
    /// What is on the disk cannot be read.
    pub fn open(
        client: Client,
        clock: Clock,
        plan: UpgradePlan,
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<Self, StoreError> {
        let store = Store::open(disk, options.limits, line::nanos(clock.now()))?;
        let mut selection = Selection::of_plan(&plan.name_any(), &plan.uid().unwrap_or_default());
        selection.own_only = options.own_only;
        Ok(Self {
            collector: Collector::new(settings(&options, &plan), store.known()),
            store: Mutex::new(store),
            client,
            clock,
            plan,
            options,
            selection,
        })
    }

    /// Reads all logs once. Returns what could not be listed.
    ///
    /// # Errors
    /// What was read cannot be kept.
    pub async fn read_once(&mut self) -> Result<Vec<(String, kube::Error)>, StoreError> {
        let mut failures = owners::find(&self.client, &mut self.selection).await;
        let (observed, not_listed) = shell::pods_now(&self.client, &self.selection).await;
        failures.extend(not_listed);
        let now = line::nanos(self.clock.now());
        shell::sweep(&self.client, now, &mut self.collector, self.store.get_mut(), &observed).await?;
        Ok(failures)
    }

    /// Collects until the upgrade has ended and its last lines are read. An upgrade that is retried needs another collection, which
    /// continues where this one stopped. New lines go to `tap`, too.
    ///
    /// # Errors
    /// What was left at the end cannot be written. That the disk fails earlier stops nothing.
    pub async fn run(
        self,
        progress: &watch::Sender<Progress>,
        tap: Option<mpsc::UnboundedSender<Append>>,
    ) -> Result<Store, StoreError> {
        let Self {
            client,
            clock,
            plan,
            options,
            selection,
            collector,
            store,
        } = self;
        let plans: Api<UpgradePlan> = Api::all(client.clone());
        let (selection, selected) = watch::channel(selection);
        let (stop, stopped) = watch::channel(false);
        let ending = async {
            until_ended(&plans, &plan, &clock, options.grace).await;
            // The collector writes what it has, and ends.
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let outlets = shell::Outlets { progress, tap };
        let collected = shell::run(
            client.clone(),
            clock.clone(),
            collector,
            &store,
            selected,
            stopped,
            &outlets,
        );
        tokio::select! {
            biased;
            result = collected => result?,
            () = owners::watch(&client, &selection) => {}
            () = ending => {}
        }
        Ok(store.into_inner())
    }
}

/// Components of the cluster are read from the beginning of the upgrade on: what they said in the weeks before takes space.
fn settings(options: &Options, plan: &UpgradePlan) -> Settings {
    let created = plan.creation_timestamp().map(|time| line::nanos(time.0));
    Settings {
        system_since: options.settings.system_since.or(created),
        ..options.settings
    }
}

/// Waits until the upgrade has ended for a while, or its plan is gone.
async fn until_ended(plans: &Api<UpgradePlan>, plan: &UpgradePlan, clock: &Clock, grace: Duration) {
    let mut ended_since: Option<Duration> = None;
    loop {
        let has_ended = match plans.get_opt(&plan.name_any()).await {
            Ok(Some(found)) if found.uid() == plan.uid() => found.phase().is_some_and(api::Phase::is_terminal),
            // It is gone, or this is another one of its name: its own pods go with it.
            Ok(_) => true,
            // An API server that is away says nothing about the plan.
            Err(_) => false,
        };
        let now = clock.elapsed();
        match (has_ended, ended_since) {
            (true, Some(since)) if now.saturating_sub(since) >= grace => return,
            (true, Some(_)) => {}
            (true, None) => ended_since = Some(now),
            (false, _) => ended_since = None,
        }
        clock.sleep(LOOK).await;
    }
}
