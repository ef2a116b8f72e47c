//! Keeps RKE2 from applying some of its manifests while nodes are upgraded: a file `<manifest>.skip` beside it.

use std::{
    fs::{self, File},
    future::ready,
    io,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use crate::{
    error::{Error, Result},
    step::Step,
};

/// Where RKE2 keeps its manifests, on the host. Agents have no such folder.
pub const FOLDER: &str = "var/lib/rancher/rke2/server/manifests";

/// The only step.
pub const STEPS: &[Step<SkipManifests>] = &[Step {
    name: "skip-manifests",
    limit: Duration::from_mins(10),
    run: |program, _| Box::pin(ready(run(&program.root, &program.manifests, program.action).map(drop))),
}];

/// What the step works on.
pub struct SkipManifests {
    /// The root of the host.
    pub root: PathBuf,
    /// File names of manifests.
    pub manifests: Vec<String>,
    /// What is to be done with them.
    pub action: Action,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// RKE2 passes over the manifests.
    Apply,
    /// RKE2 applies them again.
    Remove,
}

impl FromStr for Action {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "apply" => Ok(Self::Apply),
            "remove" => Ok(Self::Remove),
            other => Err(Error::Lasting(format!("{other:?} is not an action: apply or remove"))),
        }
    }
}

/// Writes or removes the files for some manifests; returns the names of those that changed. Nothing to do is done: no
/// manifests, or a host without the folder.
///
/// # Errors
/// When a name is none, before anything is changed; when a file cannot be written or removed.
pub fn run(root: &Path, manifests: &[String], action: Action) -> Result<Vec<String>> {
    let is_name = |name: &&String| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    if let Some(bad) = manifests.iter().find(|name| !is_name(name)) {
        return Err(Error::Lasting(format!("{bad:?} is not the name of a manifest")));
    }
    let folder = root.join(FOLDER);
    if manifests.is_empty() || !folder.is_dir() {
        tracing::info!(folder = %folder.display(), manifests = manifests.len(), "there is nothing to skip");
        return Ok(Vec::new());
    }
    let mut changed = Vec::new();
    for manifest in manifests {
        let path = folder.join(format!("{manifest}.skip"));
        let did = match action {
            Action::Apply => File::create_new(&path).map(|_| ()),
            Action::Remove => fs::remove_file(&path),
        };
        match did {
            Ok(()) => changed.push(manifest.clone()),
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {}
            Err(error) => {
                let what = match action {
                    Action::Apply => "write",
                    Action::Remove => "remove",
                };
                return Err(Error::file(what, path, error));
            }
        }
    }
    if !changed.is_empty() {
        let synced = File::open(&folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| Error::file("write", &folder, error))?;
    }
    tracing::info!(?action, ?changed, "skipped manifests");
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn server() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(FOLDER)).unwrap();
        root
    }

    #[test]
    fn a_manifest_is_skipped_and_applied_again_and_both_can_be_repeated() {
        let root = server();
        let multus = names(&["rke2-multus.yaml"]);
        let skip = root.path().join(FOLDER).join("rke2-multus.yaml.skip");
        assert_eq!(run(root.path(), &multus, Action::Apply).unwrap(), multus);
        assert!(skip.is_file());
        assert!(run(root.path(), &multus, Action::Apply).unwrap().is_empty());
        assert!(skip.is_file());
        assert_eq!(run(root.path(), &multus, Action::Remove).unwrap(), multus);
        assert!(!skip.exists());
        assert!(run(root.path(), &multus, Action::Remove).unwrap().is_empty());
    }

    #[test]
    fn agents_have_nothing_to_skip() {
        let root = tempfile::tempdir().unwrap();
        assert!(run(root.path(), &names(&["a.yaml"]), Action::Apply).unwrap().is_empty());
        assert!(run(server().path(), &[], Action::Apply).unwrap().is_empty());
        assert!(!root.path().join("var").exists());
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let root = server();
        for bad in ["../x", "a/b", "", ".."] {
            assert!(run(root.path(), &names(&["good.yaml", bad]), Action::Apply).is_err());
        }
        assert_eq!(fs::read_dir(root.path().join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn an_action_that_is_none_is_an_error() {
        assert_eq!("apply".parse::<Action>().unwrap(), Action::Apply);
        assert!(
            "toggle"
                .parse::<Action>()
                .unwrap_err()
                .to_string()
                .contains("\"toggle\"")
        );
    }
}
