//! `repo`: the upgrade repository, straight from the ISO.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use clock::Clock;
use release::{
    inspect::{Depth, inspect},
    iso::{Iso, IsoError},
    manifest::{Manifest, Sha512Sum, sha256},
    repo::{Doors, Limits, PREFIX, runtime, serve},
    tls::{Identity, acceptor},
};
use tokio::net::TcpListener;

use super::{
    listen::listen,
    manager::{start_log, terminated},
};

/// How long a thread that waits for the disk may delay the end.
const LAST_READ: Duration = Duration::from_secs(1);

/// What to serve, and where.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Serves GET and HEAD with ranges under /harvester-iso/, its manifest at /harvester-iso.manifest once all of the ISO was \
    read, and /healthz. Ends on SIGTERM or Ctrl-C, after the \
    downloads that are under way.\n\n\
    Examples:\n  \
    upgrade-toolkit repo --iso /iso/disk.img\n  \
    upgrade-toolkit repo --iso harvester-v1.8.0-amd64.iso --listen 127.0.0.1:8080 --log-format console\n  \
    upgrade-toolkit repo --iso /iso/disk.img --tls-listen :8443 --tls-cert tls.crt --tls-key tls.key"
)]
pub(super) struct Args {
    /// The ISO: a file or a block device
    #[arg(long, value_name = "FILE")]
    iso: PathBuf,
    /// SHA-512 that the ISO should have: it determines where the ISO ends if zeros follow it in its volume
    #[arg(long, value_name = "DIGEST")]
    checksum: Option<Sha512Sum>,
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = ":80")]
    listen: String,
    /// Address to serve the same on over TLS, with --tls-cert and --tls-key
    #[arg(long, value_name = "ADDR", requires = "tls_cert", requires = "tls_key")]
    tls_listen: Option<String>,
    /// Certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_key: Option<PathBuf>,
    /// Format of the log: json or console
    #[arg(long, default_value = "json", value_parser = ["json", "console"])]
    log_format: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    start_log(&args.log_format);
    let context = || format!("failed to serve {}", args.iso.display());
    let iso = Iso::open(&args.iso).with_context(context)?;
    // The manifest is made from all bytes; here only the beginning of each file is read.
    let found = inspect(&iso, Depth::Quick, None).with_context(context)?;
    for problem in &found.problems {
        tracing::warn!(%problem, "the ISO is not complete");
    }
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let listener = listen("--listen", &args.listen)?.context("--listen has no address")?;
        let address = listener.local_addr()?;
        let doors = doors(args, listener)?;
        tracing::info!(%address, tls = args.tls_listen, path = PREFIX, harvester = found.release.harvester, "serving");
        let iso = Arc::new(iso);
        let making = tokio::task::spawn_blocking({
            let (iso, checksum) = (iso.clone(), args.checksum.clone());
            move || make_manifest(&iso, checksum.as_ref())
        });
        let failing = async {
            match making.await {
                Ok(Ok(())) => std::future::pending().await,
                Ok(Err(error)) => anyhow::Error::new(error),
                Err(error) => anyhow::Error::new(error),
            }
        };
        tokio::select! {
            biased;
            () = serve(doors, iso.clone(), Limits::REPOSITORY, Clock::system(), terminated()) => Ok(()),
            error = failing => Err(error.context(context())),
        }
    });
    runtime.shutdown_timeout(LAST_READ);
    served.map(|()| ExitCode::SUCCESS)
}

/// The listeners: without TLS, and over TLS if there is a certificate. An invalid certificate ends the server, because no
/// client would trust it.
fn doors(args: &Args, listener: TcpListener) -> anyhow::Result<Doors> {
    let doors = Doors::from(listener);
    let (Some(address), Some(certificate), Some(key)) = (&args.tls_listen, &args.tls_cert, &args.tls_key) else {
        return Ok(doors);
    };
    let identity = Identity::read(certificate, key)?;
    let acceptor = acceptor(&identity).with_context(|| format!("failed to use {}", certificate.display()))?;
    let listener = listen("--tls-listen", address)?.context("--tls-listen has no address")?;
    Ok(doors.and(listener, acceptor))
}

/// Reads the whole image. Until then the server is not ready: its content is not known yet.
fn make_manifest(iso: &Iso, checksum: Option<&Sha512Sum>) -> Result<(), IsoError> {
    let manifest = Manifest::of(iso, checksum)?;
    let text = manifest.text();
    let root = sha256(text.as_bytes());
    match checksum.filter(|given| **given != manifest.iso.sha512) {
        // The manager compares them too, and fails the upgrade.
        Some(given) => {
            tracing::error!(sha512 = %manifest.iso.sha512, %given, "the ISO does not have the given checksum")
        }
        None => tracing::info!(sha512 = %manifest.iso.sha512, manifest = root.as_str(), "the ISO was read"),
    }
    iso.note_manifest(text);
    Ok(())
}
