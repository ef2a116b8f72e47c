//! `clean-images` as a program: finds what the host removes images with, and does it within a time.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::sync::OnceCell;

use super::{
    clean::{Cleaned, Runtime, clean},
    crictl::Crictl,
    ctr::Ctr,
};
use crate::{error::Result, step::Step};

/// The only step: a runtime that does not answer is asked again.
pub const STEPS: &[Step<CleanImages>] = &[Step {
    name: "clean-images",
    limit: Duration::from_secs(5 * 60),
    run: |program, _| Box::pin(program.run()),
}];

/// What the step works on.
pub struct CleanImages {
    runtime: Box<dyn Runtime>,
    targets: Vec<String>,
    cleaned: OnceCell<Cleaned>,
}

impl CleanImages {
    /// Removes images with these names, as far as they may go.
    #[must_use]
    pub fn new(runtime: Box<dyn Runtime>, targets: Vec<String>) -> Self {
        Self {
            runtime,
            targets,
            cleaned: OnceCell::new(),
        }
    }

    /// What was done, once it is done.
    #[must_use]
    pub fn cleaned(&self) -> Option<&Cleaned> {
        self.cleaned.get()
    }

    async fn run(&self) -> Result<()> {
        let cleaned = self
            .cleaned
            .get_or_try_init(|| clean(self.runtime.as_ref(), &self.targets));
        cleaned.await.map(|_| ())
    }
}

/// What the host removes images with: `crictl`, else `ctr`; nothing, with a warning, where there is neither. `socket`
/// replaces that of the host.
#[must_use]
pub fn runtime_of_host(root: &Path, socket: Option<PathBuf>) -> Option<Box<dyn Runtime>> {
    let no_crictl = match Crictl::of_host(root) {
        Ok(crictl) => return Some(Box::new(crictl.at(socket))),
        Err(error) => error,
    };
    match Ctr::of_host(root) {
        Ok(ctr) => {
            tracing::warn!("{no_crictl}; using ctr");
            Some(Box::new(ctr.at(socket)))
        }
        Err(no_ctr) => {
            tracing::warn!("{no_crictl}; {no_ctr}; no images are removed");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f24_a_host_without_crictl_uses_ctr_and_one_without_either_does_nothing() {
        let root = tempfile::tempdir().unwrap();
        assert!(runtime_of_host(root.path(), None).is_none());
        let programs = root.path().join("var/lib/rancher/rke2/bin");
        std::fs::create_dir_all(&programs).unwrap();
        std::fs::write(programs.join("ctr"), "").unwrap();
        assert!(runtime_of_host(root.path(), None).is_some());
    }
}
