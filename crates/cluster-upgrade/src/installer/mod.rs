//! What upgrades Rancher: Helm and Rancher's chart, both from the installer image of the release.

mod helm_account;
mod image_archive;
mod installer_image;
mod layer_sum;
mod secrets;

pub use helm_account::HelmAccount;
pub use image_archive::{ArchiveError, Wanted, extract};
pub use installer_image::InstallerImage;

use futures::future::BoxFuture;
use release::bundle::Bundle;
use serde_json::Value;

use program::{error::Result, step::StepContext};

/// Changes Helm releases. The only part of a cluster upgrade that runs another program.
pub trait RancherInstaller: Send + Sync {
    /// Gets ready what the other two need. What is ready stays so.
    fn prepare<'a>(&'a self, ctx: StepContext<'a>, rancher: &'a str, bundle: &'a Bundle) -> BoxFuture<'a, Result<()>>;
    /// Upgrades a release to Rancher's chart and waits until it runs.
    fn upgrade_rancher<'a>(
        &'a self,
        namespace: &'a str,
        release: &'a str,
        values: &'a Value,
    ) -> BoxFuture<'a, Result<()>>;
    /// Takes a release back to a revision and waits until it runs.
    fn roll_back<'a>(&'a self, namespace: &'a str, release: &'a str, revision: i64) -> BoxFuture<'a, Result<()>>;
}
