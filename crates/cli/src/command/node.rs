//! `node`: what is done on a node. A new verb is a line of the enum and a line of the table.

use std::process::ExitCode;

use super::{job_command, node_host, node_images};

/// What to do on this node.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Load the images of the new release on this node
    Prepare(node_images::PrepareArgs),
    /// Evacuate the VMs of this node, before it is drained
    PreDrain(node_host::Args),
    /// Install the operating system of this drained node, and reboot it
    PostDrain(node_host::Args),
    /// Upgrade RKE2 and the operating system of the only node, and reboot it
    SingleNodeUpgrade(node_host::Args),
    /// Make RKE2 skip some of its own manifests, or apply them again
    SkipManifests(node_images::SkipManifestsArgs),
    /// Remove images that only the previous release used
    CleanImages(node_images::CleanImagesArgs),
}

pub(super) fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Prepare(args) => job_command::run(&args.program.clone(), node_images::prepare(args)),
        Verb::PreDrain(args) => job_command::run(&args.program, node_host::pre_drain(&args)),
        Verb::PostDrain(args) => job_command::run(&args.program, node_host::post_drain(&args)),
        Verb::SingleNodeUpgrade(args) => job_command::run(&args.program, node_host::single_node(&args)),
        Verb::SkipManifests(args) => job_command::run(&args.program.clone(), node_images::skip_manifests(args)),
        Verb::CleanImages(args) => job_command::run(&args.program.clone(), node_images::clean_images(args)),
    }
}
