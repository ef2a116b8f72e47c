//! A kubeconfig for a served rehearsal.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use serde_json::json;

/// Writes a kubeconfig into a new folder of its own and returns its path.
///
/// # Errors
/// The folder or the file could not be written.
pub fn write(address: SocketAddr, token: &str) -> anyhow::Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rehearsal", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "rehearsal", "context": {"cluster": "rehearsal", "user": "admin"}}],
        "current-context": "rehearsal",
    });
    let directory = std::env::temp_dir().join(format!("upgrade-toolkit-{}", address.port()));
    std::fs::create_dir_all(&directory).with_context(|| format!("failed to create {}", directory.display()))?;
    let path = directory.join("kubeconfig");
    std::fs::write(&path, serde_json::to_string_pretty(&config)?)
        .with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}
