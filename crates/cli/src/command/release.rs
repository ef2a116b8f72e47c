//! `release inspect`: the content of the ISO of a release, and whether it is complete.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::ValueEnum;
use release::{
    inspect::{Depth, Inspection, inspect},
    iso::Iso,
    manifest::{Manifest, Sha512Sum},
};

/// What to do with a release.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Release {
    /// Show versions, image archives and image lists of an ISO, and what is wrong with it
    Inspect(Args),
    /// Print the manifest of an ISO: its SHA-512, and sizes and SHA-256 of the files that an upgrade reads
    Manifest(ManifestArgs),
}

/// Whose manifest to print.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The same text that the repository of an upgrade serves. Its SHA-256 is what an UpgradePlan has as \
    status.releaseDigests.manifest.\n\n\
    Examples:\n  \
    upgrade-toolkit release manifest harvester-v1.8.0-amd64.iso\n  \
    upgrade-toolkit release manifest harvester-v1.8.0-amd64.iso | sha256sum"
)]
pub(super) struct ManifestArgs {
    /// The ISO
    file: PathBuf,
    /// SHA-512 that the ISO should have: it determines where the ISO ends if zeros follow it in its volume
    #[arg(long, value_name = "DIGEST")]
    checksum: Option<Sha512Sum>,
}

/// Which ISO to inspect.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The image is read as it is: nothing is mounted, no privileges are needed. All of it is read, and its \
    archives are unpacked, which takes a minute or more; --quick reads the beginning of each file.\n\
    Exit code: 0 nothing is wrong with what was checked, 1 the ISO cannot upgrade a cluster, 2 wrong usage.\n\n\
    Examples:\n  \
    upgrade-toolkit release inspect harvester-v1.8.0-amd64.iso\n  \
    upgrade-toolkit release inspect harvester-v1.8.0-amd64.iso --quick\n  \
    upgrade-toolkit release inspect harvester-v1.8.0-amd64.iso -o json | jq .release.kubernetes"
)]
pub(super) struct Args {
    /// The ISO
    file: PathBuf,
    /// Read only the beginning of each file, and the lists
    #[arg(long, conflicts_with = "checksum")]
    quick: bool,
    /// SHA-512 that the ISO should have
    #[arg(long, value_name = "DIGEST")]
    checksum: Option<Sha512Sum>,
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

pub(super) fn run(command: &Release) -> anyhow::Result<ExitCode> {
    let args = match command {
        Release::Inspect(args) => args,
        Release::Manifest(args) => return print_manifest(args),
    };
    let context = || format!("failed to inspect {}", args.file.display());
    let iso = Iso::open(&args.file).with_context(context)?;
    let depth = if args.quick { Depth::Quick } else { Depth::Whole };
    let found = inspect(&iso, depth, args.checksum.as_ref()).with_context(context)?;
    let text = match args.output {
        Output::Text => text(&found),
        Output::Json => serde_json::to_string_pretty(&found)? + "\n",
        Output::Yaml => serde_saphyr::to_string(&found)?,
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(if found.problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn print_manifest(args: &ManifestArgs) -> anyhow::Result<ExitCode> {
    let context = || format!("failed to read {}", args.file.display());
    let iso = Iso::open(&args.file).with_context(context)?;
    let manifest = Manifest::of(&iso, args.checksum.as_ref()).with_context(context)?;
    io::stdout().write_all(manifest.text().as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn text(found: &Inspection) -> String {
    let release = &found.release;
    let minimum = match release.min_upgradable_version.as_str() {
        "" => "any version",
        version => version,
    };
    let mut lines = vec![
        format!("Harvester {}, {}", release.harvester, size(Some(found.size))),
        String::new(),
    ];
    let rows = [
        ("Upgrades from", minimum),
        ("Operating system", release.os.as_str()),
        ("Kubernetes", release.kubernetes.as_str()),
        ("Rancher", release.rancher.as_str()),
        ("Harvester chart", release.harvester_chart.as_str()),
        ("Monitoring chart", release.monitoring_chart.as_str()),
        ("Logging chart", release.logging_chart.as_deref().unwrap_or_default()),
        ("KubeVirt", release.kubevirt.as_deref().unwrap_or_default()),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    lines.extend(rows.map(|(name, value)| format!("  {name:<17} {value}")));
    let compression = found
        .os_compression
        .map(|name| format!(" ({name})"))
        .unwrap_or_default();
    lines.push(format!(
        "  {:<17} {}{compression}",
        "rootfs.squashfs",
        size(found.os_size)
    ));
    if let Some(sum) = &found.sha512 {
        lines.push(format!("  {:<17} {sum}", "SHA-512"));
    }
    if !found.archives.is_empty() {
        lines.extend([String::new(), "Image archives".to_owned()]);
    }
    for archive in &found.archives {
        let images = archive
            .images
            .map_or_else(|| "?".to_owned(), |images| images.to_string());
        let name = archive.archive.rsplit('/').next().unwrap_or_default();
        let size = size(archive.size);
        lines.push(format!("  {:<8} {size:>10}  {images:>4} images  {name}", archive.group));
    }
    if !found.image_lists.is_empty() {
        lines.extend([
            String::new(),
            "Image lists, for cleaning up after an upgrade".to_owned(),
        ]);
    }
    for list in &found.image_lists {
        lines.push(format!("  {:<20} {:>4} images", list.version, list.images));
    }
    lines.extend([String::new(), "Not checked".to_owned()]);
    lines.extend(found.not_checked.iter().map(|part| format!("  {part}")));
    if !found.problems.is_empty() {
        lines.extend([String::new(), "No cluster can be upgraded with this ISO".to_owned()]);
        lines.extend(found.problems.iter().map(|problem| format!("  {problem}")));
    }
    lines.join("\n") + "\n"
}

/// A size for users.
fn size(bytes: Option<u64>) -> String {
    let Some(bytes) = bytes else {
        return "missing".to_owned();
    };
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        None => format!("{bytes} B"),
        Some((name, unit)) => {
            let tenths = (u128::from(bytes) * 10 + u128::from(unit) / 2) / u128::from(unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_for_people() {
        assert_eq!(size(Some(0)), "0 B");
        assert_eq!(size(Some(1536)), "1.5 KiB");
        assert_eq!(size(Some(6_871_947_674)), "6.4 GiB");
        assert_eq!(size(Some(u64::MAX)), "17179869184.0 GiB");
        assert_eq!(size(None), "missing");
    }
}
