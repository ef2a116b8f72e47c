//! `upgrade`: creates an UpgradePlan. The manager carries it out.

use std::process::ExitCode;

use api::{ImagePreloadOption, NodeUpgradeOption, OnMigrationFailure, UpgradePlan, UpgradePlanSpec};
use checks::finding::Severity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, ResourceExt, api::PostParams};

use super::{
    super::{
        cluster_args::{LiveArgs, block_on, look},
        colours,
    },
    confirm, refused, say,
};

/// What to upgrade to, and how.
#[derive(Debug, clap::Args)]
#[command(
    // `--version` is the version to upgrade to.
    disable_version_flag = true,
    group = clap::ArgGroup::new("release").required(true),
    after_help = "Exit code: 0 the plan was created, 1 it was not, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit upgrade --version v1.8.0 --restore-vm            to a Version of the cluster\n  \
    upgrade-toolkit upgrade --image harvester-v1.8.0-amd64 --yes     from an ISO that is in the cluster\n  \
    upgrade-toolkit upgrade --version v1.8.0 --pause-node node-2     node-2 waits for `upgrade-toolkit resume node-2`\n  \
    upgrade-toolkit upgrade --version v1.8.0 --dry-run               only print the plan"
)]
pub(in super::super) struct Args {
    /// Name of a Version in harvester-system
    #[arg(long, value_name = "VERSION", group = "release")]
    version: Option<String>,
    /// Name of a VirtualMachineImage in harvester-system that has the ISO
    #[arg(long, value_name = "IMAGE", group = "release")]
    image: Option<String>,
    /// Name of the plan; one is generated without it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Skip the check that the running version may be upgraded to the new one; no other check
    #[arg(long)]
    force: bool,
    /// Start VMs again that were shut down for the upgrade of their node
    #[arg(long)]
    restore_vm: bool,
    /// What to do when the live migration of a VM fails
    #[arg(long, value_name = "WHAT", value_enum, ignore_case = true)]
    on_migration_failure: Option<MigrationFailure>,
    /// How many nodes load images at once; 0: all; negative: skip the preload
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..=10_000))]
    preload_concurrency: Option<i64>,
    /// Pause this node before its upgrade; may be given several times
    #[arg(long, value_name = "NODE")]
    pause_node: Vec<String>,
    /// Print the plan, and create nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not run the checks of `preflight` first; admission still judges the plan
    #[arg(long)]
    skip_preflight: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    cluster: LiveArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum MigrationFailure {
    /// Wait until an administrator acts
    Block,
    /// Retry it a few times, then wait
    Retry,
    /// Shut the VM down
    Stop,
}

pub(in super::super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let plan = plan_of(args);
    if args.dry_run {
        say(serde_saphyr::to_string(&plan)?.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    block_on(async {
        let client = args.cluster.client().await?;
        if !args.skip_preflight && !preflight(&client, &plan).await? {
            return Ok(ExitCode::FAILURE);
        }
        let release = args.version.as_deref().or(args.image.as_deref()).unwrap_or_default();
        if !confirm(&format!("Upgrade this cluster to {release}?"), args.yes)? {
            say("nothing was changed")?;
            return Ok(ExitCode::FAILURE);
        }
        let plans: Api<UpgradePlan> = Api::all(client);
        let created = plans.create(&PostParams::default(), &plan).await;
        let created = created.map_err(|error| refused("create the UpgradePlan", error))?;
        say(&format!("upgradeplan {} created, to {release}", created.name_any()))?;
        Ok(ExitCode::SUCCESS)
    })?
}

/// Whether no check finds an error with the plan. What the checks find is printed. Admission judges the plan too, so one that
/// passes here can still be refused.
async fn preflight(client: &Client, plan: &UpgradePlan) -> anyhow::Result<bool> {
    let snapshot = look(client).await;
    let found = checks::preflight::run(&snapshot, plan);
    say(view::preflight::text(&found, snapshot.taken_at, colours::style()).trim_end())?;
    if found.count(Severity::Error) == 0 {
        return Ok(true);
    }
    say("nothing was changed: resolve the errors first, or create the plan anyway with --skip-preflight")?;
    Ok(false)
}

fn plan_of(args: &Args) -> UpgradePlan {
    let on_migration_failure = args.on_migration_failure.map(|what| match what {
        MigrationFailure::Block => OnMigrationFailure::Block,
        MigrationFailure::Retry => OnMigrationFailure::Retry,
        MigrationFailure::Stop => OnMigrationFailure::Stop,
    });
    UpgradePlan {
        metadata: ObjectMeta {
            name: args.name.clone(),
            generate_name: args.name.is_none().then(|| "hvst-upgrade-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: UpgradePlanSpec {
            version: args.version.clone(),
            image: args.image.clone(),
            force: args.force.then_some(true),
            restore_vm: args.restore_vm.then_some(true),
            on_migration_failure,
            image_preload_option: args.preload_concurrency.map(|concurrency| ImagePreloadOption {
                concurrency: Some(concurrency),
            }),
            node_upgrade_option: (!args.pause_node.is_empty()).then(|| NodeUpgradeOption {
                pause_nodes: Some(args.pause_node.clone()),
            }),
            ..UpgradePlanSpec::default()
        },
        status: None,
    }
}
