//! `doctor`: why an upgrade does not get on, and what helps. Reads the cluster or a snapshot of it, and changes nothing.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use checks::{
    doctor::explain,
    finding::{Report, Severity},
};
use clap::ValueEnum;
use view::report;

use super::{
    cluster_args::{ClusterArgs, is_unreadable},
    colours,
};

/// Exit code: the cluster could not be looked at.
const COULD_NOT_LOOK: u8 = 3;

/// What to look at, and how to show it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "It looks for the 48 situations of docs/doctor.md and changes nothing. For what it may not read it prints \
    \"not checked\".\n\
    Exit code: 0 nothing found that needs a person, 1 errors or warnings, 2 wrong usage, 3 the cluster could not be looked at.\n\n\
    Examples:\n  \
    upgrade-toolkit doctor                                 the cluster of the current kubeconfig\n  \
    upgrade-toolkit doctor --snapshot supportbundle.zip    a support bundle\n  \
    upgrade-toolkit doctor -o json | jq '.findings[].id'"
)]
pub(super) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// For programs
    Json,
    /// For both
    Yaml,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let snapshot = match args.cluster.load() {
        Ok(snapshot) => snapshot,
        Err(error) => {
            super::report(&error);
            return Ok(ExitCode::from(COULD_NOT_LOOK));
        }
    };
    let found = explain(&snapshot);
    let mut out = io::stdout().lock();
    let text = match args.output {
        Output::Text => report::text(&found, snapshot.taken_at, colours::style()),
        Output::Json => report::json(&found)?,
        Output::Yaml => report::yaml(&found)?,
    };
    match out.write_all(text.as_bytes()) {
        // The reader may have closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    let code = if is_unreadable(&snapshot) {
        COULD_NOT_LOOK
    } else {
        code(&found)
    };
    Ok(ExitCode::from(code))
}

/// What is normal for a while, and only shown, is no reason to call a person.
fn code(report: &Report) -> u8 {
    if report.checked == 0 {
        COULD_NOT_LOOK
    } else {
        u8::from(report.count(Severity::Error) + report.count(Severity::Warning) > 0)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use snapshot::Snapshot;

    use super::*;

    #[test]
    fn the_exit_code_distinguishes_nothing_found_from_findings_and_from_a_cluster_that_could_not_be_read() {
        assert_eq!(code(&explain(&Snapshot::empty(Timestamp::default()))), 0);
        assert_eq!(
            code(&explain(&Snapshot::unknown(Timestamp::default(), "forbidden"))),
            COULD_NOT_LOOK
        );
        let mut paused = Snapshot::empty(Timestamp::default());
        let chart = serde_json::json!({
            "metadata": {"name": "harvester", "namespace": "fleet-local"}, "spec": {"paused": true},
        });
        assert!(paused.add("managed_charts", chart).is_ok());
        assert_eq!(code(&explain(&paused)), 1);
    }
}
