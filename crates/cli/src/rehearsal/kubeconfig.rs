//! A kubeconfig for a served rehearsal.

use std::{
    fs::{DirBuilder, OpenOptions},
    io::{ErrorKind, Write},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::json;

/// How many names for the folder are tried: leftovers of killed rehearsals may be in the way.
const ATTEMPTS: u32 = 100;

/// A kubeconfig in a folder of its own; both are removed when this is dropped.
#[derive(Debug)]
pub struct Kubeconfig {
    directory: PathBuf,
    path: PathBuf,
}

impl Kubeconfig {
    /// Writes a kubeconfig, with the token that the server requires.
    ///
    /// # Errors
    /// The folder or the file could not be written.
    pub fn write(address: SocketAddr, token: Option<&str>) -> anyhow::Result<Self> {
        let mut config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rehearsal", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "rehearsal", "context": {"cluster": "rehearsal"}}],
            "current-context": "rehearsal",
        });
        if let Some(token) = token {
            config["users"] = json!([{"name": "rehearsal", "user": {"token": token}}]);
            config["contexts"][0]["context"]["user"] = json!("rehearsal");
        }
        let directory = new_directory(&std::env::temp_dir(), address.port())?;
        let path = directory.join("kubeconfig");
        let kubeconfig = Self { directory, path };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&kubeconfig.path);
        file.and_then(|mut file| file.write_all(format!("{config:#}\n").as_bytes()))
            .with_context(|| format!("failed to write {}", kubeconfig.path.display()))?;
        Ok(kubeconfig)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // What cannot be removed is a leftover in a temporary folder, nothing worse.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Creates a folder that was not there: the place is shared with other users.
fn new_directory(parent: &Path, port: u16) -> anyhow::Result<PathBuf> {
    for attempt in 0..ATTEMPTS {
        let directory = parent.join(format!("upgrade-toolkit-{port}-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("failed to create {}", directory.display())),
        }
    }
    anyhow::bail!("failed to create a private folder in {}", parent.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_the_owners_alone_and_goes_with_the_rehearsal() {
        let address = "127.0.0.1:8001".parse().unwrap();
        let (first, second) = (
            Kubeconfig::write(address, None).unwrap(),
            Kubeconfig::write(address, Some("secret")).unwrap(),
        );
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let directory = path.parent().unwrap().to_owned();
        assert_eq!(
            std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("http://127.0.0.1:8001")
        );
        assert!(
            std::fs::read_to_string(second.path())
                .unwrap()
                .contains("\"token\": \"secret\"")
        );
        drop(first);
        assert!(!directory.exists());
    }
}
