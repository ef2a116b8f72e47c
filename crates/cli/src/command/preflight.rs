//! `preflight`: what would keep an upgrade from starting or from completing. Needs no plan, reads the cluster or a snapshot of it,
//! and changes nothing.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use checks::{
    finding::{NotChecked, Report, Severity},
    known_issues::{self, KnownIssue},
    preflight::{self, CHECKS, Question, row},
};
use clap::ValueEnum;
use snapshot::{Snapshot, kinds::Source};
use view::{junit::junit, report};

use super::{
    cluster_args::{ClusterArgs, is_unreadable},
    colours,
};

/// Exit code: wrong usage, as clap has it.
const USAGE: u8 = 2;
/// Exit code: the cluster could not be checked at all.
const COULD_NOT_CHECK: u8 = 3;
/// Why a check of certificates could not be made begins so: only the manager asks API servers for theirs.
const CERTIFICATES: &str = "certificates:";
/// More known issues than anyone writes.
const LONGEST_FILE: u64 = 4 * 1024 * 1024;

/// What to check, and how to show it.
#[derive(Debug, clap::Args)]
#[command(
    // --version names the release here.
    disable_version_flag = true,
    after_help = "It needs no UpgradePlan and changes nothing. For what it may not read it prints \"not checked\". All checks \
    and known issues: docs/preflight.md.\n\
    Exit code: 0 no errors, 1 errors, 2 wrong usage, 3 the cluster could not be checked.\n\n\
    Examples:\n  \
    upgrade-toolkit preflight --version v1.8.0             the cluster of the current kubeconfig\n  \
    upgrade-toolkit preflight --snapshot supportbundle.zip a support bundle\n  \
    upgrade-toolkit preflight --version v1.8.0 -o junit    for CI"
)]
pub(super) struct Args {
    /// The Version to upgrade to
    #[arg(long = "version", id = "target_version", value_name = "VERSION")]
    version: Option<String>,
    /// The VirtualMachineImage with the ISO to upgrade to
    #[arg(long, value_name = "IMAGE", conflicts_with = "target_version")]
    image: Option<String>,
    /// Check for a plan with spec.restoreVM: VMs that cannot move are shut down and started again
    #[arg(long)]
    restore_vm: bool,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// YAML file with known issues that are added to the built-in ones, or replace those of the same id
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    known_issues: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
    /// For both
    Yaml,
    /// For CI systems
    Junit,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let known = match known(args.known_issues.as_deref()) {
        Ok(known) => known,
        Err(error) => {
            super::report(&error);
            return Ok(ExitCode::from(USAGE));
        }
    };
    let snapshot = match args.cluster.load() {
        Ok(snapshot) => snapshot,
        Err(error) => {
            super::report(&error);
            return Ok(ExitCode::from(COULD_NOT_CHECK));
        }
    };
    let mut plan = preflight::hypothetical(args.version.as_deref(), args.image.as_deref());
    plan.spec.restore_vm = args.restore_vm.then_some(true);
    let found = preflight::run_with(&Question::new(&snapshot, &plan), &known);
    let mut out = io::stdout().lock();
    let text = match args.output {
        Output::Text => view::preflight::text(&found, snapshot.taken_at, colours::style()),
        Output::Json => report::json(&found)?,
        Output::Yaml => report::yaml(&found)?,
        Output::Junit => {
            let checks: Vec<(&str, &str)> = CHECKS.iter().map(|row| (row.id, row.title)).collect();
            junit("preflight", &checks, &found)
        }
    };
    match out.write_all(text.as_bytes()) {
        // The reader may have closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(ExitCode::from(code(&snapshot, &found)))
}

fn known(path: Option<&Path>) -> anyhow::Result<Vec<KnownIssue>> {
    let Some(path) = path else {
        return Ok(known_issues::with(None)?);
    };
    let failed = || format!("failed to read {}", path.display());
    let size = fs::metadata(path).with_context(failed)?.len();
    anyhow::ensure!(
        size <= LONGEST_FILE,
        "{} is too large for a file of known issues",
        path.display()
    );
    let text = fs::read_to_string(path).with_context(failed)?;
    known_issues::with(Some(&text)).with_context(|| format!("{} cannot be used", path.display()))
}

/// A cluster of which no list could be read was not checked, though a few checks need none.
fn code(snapshot: &Snapshot, report: &Report) -> u8 {
    if is_unreadable(snapshot) {
        return COULD_NOT_CHECK;
    }
    if report.count(Severity::Error) > 0 {
        return 1;
    }
    // A cluster that did not let something be read is not known to be free of errors. A bundle or a folder never has everything.
    let is_live = snapshot.source == Source::Cluster && !snapshot.unknown_kinds().is_empty();
    let is_error = |id: &str| row(id).is_some_and(|row| row.severity == Severity::Error);
    let is_missing = |not: &NotChecked| is_error(&not.id) && !not.why.starts_with(CERTIFICATES);
    if is_live && report.not_checked.iter().any(is_missing) {
        COULD_NOT_CHECK
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_exit_code_distinguishes_clean_from_errors_and_from_a_cluster_that_could_not_be_read() {
        let plan = preflight::hypothetical(None, None);
        let of = |snapshot: &Snapshot| code(snapshot, &preflight::run(snapshot, &plan));
        assert_eq!(
            of(&Snapshot::unknown(Timestamp::default(), "forbidden")),
            COULD_NOT_CHECK
        );
        // A cluster without nodes cannot be upgraded.
        assert_eq!(of(&Snapshot::empty(Timestamp::default())), 1);
        let mut some = Snapshot::unknown(Timestamp::default(), "forbidden");
        some.set_listed("vm_backups");
        assert_eq!(of(&some), COULD_NOT_CHECK, "a kind that the cluster does not have");
        let version = serde_json::json!({"metadata": {"name": "v1.8.0", "namespace": "harvester-system"}});
        assert!(some.add("versions", version).is_ok() || some.add("settings", serde_json::json!({})).is_ok());
        assert_eq!(
            of(&some),
            COULD_NOT_CHECK,
            "a cluster that does not let its nodes be listed"
        );
        some.source = Source::SupportBundle;
        assert_eq!(of(&some), 0, "a bundle never has everything");
    }
}
