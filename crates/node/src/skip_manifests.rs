//! Keeps RKE2 from applying some of its manifests while nodes are upgraded: a file `<manifest>.skip` next to it.

use std::{future::ready, str::FromStr, time::Duration};

use crate::host::{HostRoot, root::Change};
use program::{
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
    pub root: HostRoot,
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
            other => Err(Error::Permanent(format!("{other:?} is not an action: apply or remove"))),
        }
    }
}

/// Writes or removes the files for some manifests; returns the names of those that changed. Nothing to do is done: no
/// manifests, or a host without the folder.
///
/// # Errors
/// When a name is none, before anything is changed; when a file cannot be written or removed.
pub fn run(root: &HostRoot, manifests: &[String], action: Action) -> Result<Vec<String>> {
    let is_name = |name: &&String| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    if let Some(bad) = manifests.iter().find(|name| !is_name(name)) {
        return Err(Error::Permanent(format!("{bad:?} is not the name of a manifest")));
    }
    if manifests.is_empty() || !root.resolve(FOLDER)?.is_dir() {
        tracing::info!(folder = FOLDER, manifests = manifests.len(), "there is nothing to skip");
        return Ok(Vec::new());
    }
    let mut changed = Vec::new();
    for manifest in manifests {
        let path = format!("{FOLDER}/{manifest}.skip");
        let change = match action {
            // Whatever is in it: that it is there is enough.
            Action::Apply if root.exists(&path)? => Change::None,
            Action::Apply => root.write(&path, b"", 0o644)?,
            Action::Remove => root.remove(&path)?,
        };
        if change == Change::Written {
            changed.push(manifest.clone());
        }
    }
    tracing::info!(?action, ?changed, "skipped manifests");
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn host(root: &Path) -> HostRoot {
        HostRoot::new(root)
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
        assert_eq!(run(&host(root.path()), &multus, Action::Apply).unwrap(), multus);
        assert!(skip.is_file());
        assert!(run(&host(root.path()), &multus, Action::Apply).unwrap().is_empty());
        assert!(skip.is_file());
        assert_eq!(run(&host(root.path()), &multus, Action::Remove).unwrap(), multus);
        assert!(!skip.exists());
        assert!(run(&host(root.path()), &multus, Action::Remove).unwrap().is_empty());
    }

    #[test]
    fn agents_have_nothing_to_skip() {
        let root = tempfile::tempdir().unwrap();
        assert!(
            run(&host(root.path()), &names(&["a.yaml"]), Action::Apply)
                .unwrap()
                .is_empty()
        );
        assert!(run(&host(server().path()), &[], Action::Apply).unwrap().is_empty());
        assert!(!root.path().join("var").exists());
    }

    #[test]
    fn a_link_on_the_node_leads_nowhere_else() {
        let both = tempfile::tempdir().unwrap();
        let (root, data) = (both.path().join("host"), both.path().join("data"));
        // As on a node whose data is elsewhere. Seen from the container the same path is another folder.
        let inside = root.join(data.strip_prefix("/").unwrap());
        for folder in [
            &root.join("var/lib/rancher"),
            &inside.join("server/manifests"),
            &data.join("server/manifests"),
        ] {
            fs::create_dir_all(folder).unwrap();
        }
        symlink(&data, root.join("var/lib/rancher/rke2")).unwrap();
        let multus = names(&["rke2-multus.yaml"]);
        let skip = |folder: &Path| folder.join("server/manifests/rke2-multus.yaml.skip");
        assert_eq!(run(&host(&root), &multus, Action::Apply).unwrap(), multus);
        assert!(skip(&inside).is_file() && !skip(&data).exists());
        fs::write(skip(&data), "").unwrap();
        assert_eq!(run(&host(&root), &multus, Action::Remove).unwrap(), multus);
        assert!(!skip(&inside).exists() && skip(&data).is_file());
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let root = server();
        for bad in ["../x", "a/b", "", ".."] {
            assert!(run(&host(root.path()), &names(&["good.yaml", bad]), Action::Apply).is_err());
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
