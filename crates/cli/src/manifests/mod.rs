//! Manifests that are generated from the code: the one source is the code, the files are copies.
//!
//! Roles, the CRD and the webhook configurations exist twice, in the Kustomize tree ([`kustomize`]) and as templates of
//! the chart ([`chart`]). Manual files there refer to them by name only.

pub mod chart;
pub mod kustomize;

use anyhow::Context;
use serde_json::Value;

/// All generated files, as path below the root of the source tree and content.
///
/// # Errors
/// A value could not be written as YAML.
pub fn files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let mut files = kustomize::files()?;
    files.extend(chart::files()?);
    Ok(files)
}

/// Documents, each behind its separator.
fn yaml(documents: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for document in documents {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(document).context("failed to write YAML")?);
    }
    Ok(text)
}
