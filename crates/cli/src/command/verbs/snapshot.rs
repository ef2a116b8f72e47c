//! `snapshot`: the cluster as a file, for `--snapshot` of the other commands. Only lists and gets.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use super::{super::cluster_args::ClusterArgs, say};

/// Where to, and of which cluster.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Values of Secrets, of charts, of cloud-init and of environment variables are never in the file. What your account may \
    not read is named on standard error, and checks that need it then say so.\n\n\
    Exit code: 0 saved, 1 not saved, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit snapshot -o cluster.snapshot                            the live cluster\n  \
    upgrade-toolkit snapshot -o small.snapshot --snapshot supportbundle.zip  what checks need of a support bundle"
)]
pub(in super::super) struct Args {
    /// The file
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    output: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(in super::super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let snapshot = args.cluster.load()?;
    snapshot::file::save(&snapshot, &args.output)?;
    let unknown = snapshot.unknown_kinds();
    let mut err = io::stderr();
    for (field, why) in &unknown {
        writeln!(
            err,
            "not read: {field}: {}",
            api::quoted::plain(why, api::quoted::LONGEST_MESSAGE)
        )?;
    }
    for (field, why) in &snapshot.partial {
        writeln!(
            err,
            "read in part: {field}: {}",
            api::quoted::plain(why, api::quoted::LONGEST_MESSAGE)
        )?;
    }
    let objects: usize = snapshot.counts().into_iter().map(|(_, count)| count).sum();
    let bytes = std::fs::metadata(&args.output)?.len();
    let kinds = snapshot.counts().len() - unknown.len();
    say(&format!(
        "{}: {objects} objects of {kinds} kinds, {} KiB",
        args.output.display(),
        bytes.div_ceil(1024)
    ))?;
    Ok(ExitCode::SUCCESS)
}
