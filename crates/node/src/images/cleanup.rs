//! `clean-images` as a program: finds what the host removes images with, and does it within a time.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::sync::OnceCell;

use super::{
    clean::{Cleaned, Runtime, Time, clean},
    crictl::Crictl,
    ctr::Ctr,
};
use program::{
    error::Result,
    report::Reporter,
    step::{Step, StepContext, run_all},
};

/// The only step: a runtime that does not respond is queried again. A release leaves a hundred images behind, and on a slow
/// disk one takes its time.
pub const STEPS: &[Step<CleanImages>] = &[Step {
    name: "clean-images",
    limit: Duration::from_mins(60),
    run: |program, ctx| Box::pin(program.clean(ctx)),
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

    async fn clean(&self, ctx: StepContext<'_>) -> Result<()> {
        let clock = &ctx.report.clock;
        let left = ctx.deadline.duration_since(clock.now());
        // The rest is for saying what was not done: images that take too long fail one by one, and not the program.
        let removing = Duration::try_from(left).unwrap_or_default() / 10 * 9;
        let time = Time::of(clock.clone(), removing);
        let cleaned = self
            .cleaned
            .get_or_try_init(|| clean(self.runtime.as_ref(), &self.targets, &time));
        cleaned.await.map(|_| ())
    }
}

/// Runs the program. Images that could not be removed are named at the end; they fail nothing.
///
/// # Errors
/// When the runtime does not say what is there.
pub async fn run(program: &CleanImages, steps: &[Step<CleanImages>], report: &Reporter) -> Result<()> {
    run_all(program, steps, report).await?;
    let failed = program
        .cleaned()
        .map(|cleaned| cleaned.failed.as_slice())
        .unwrap_or_default();
    if !failed.is_empty() {
        let names: Vec<String> = failed.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        report.termination_message(&format!(
            "done; {} images are still there: {}",
            names.len(),
            names.join(", ")
        ));
    }
    Ok(())
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
    use std::{
        collections::BTreeSet,
        sync::{Arc, Mutex},
    };

    use api::upgrade_plan::WaitingFor;
    use clock::Clock;
    use futures::future::BoxFuture;

    use super::*;
    use crate::images::clean::RuntimeImage;
    use program::{board::Board, step::with_limits};

    /// A hundred images; every tenth is never gone, and the others take their time.
    struct Slow {
        clock: Clock,
        each: Duration,
    }

    impl Runtime for Slow {
        fn images(&self) -> BoxFuture<'_, Result<Vec<RuntimeImage>>> {
            let images = (0..100).map(|number| RuntimeImage {
                id: format!("sha256:{number}"),
                repo_tags: vec![format!("docker.io/rancher/x:v{number}")],
                ..RuntimeImage::default()
            });
            Box::pin(std::future::ready(Ok(images.collect())))
        }

        fn in_use(&self) -> BoxFuture<'_, Result<BTreeSet<String>>> {
            Box::pin(std::future::ready(Ok(BTreeSet::new())))
        }

        fn remove_image<'a>(&'a self, image: &'a RuntimeImage) -> BoxFuture<'a, Result<()>> {
            Box::pin(async {
                if image.id.ends_with('0') {
                    std::future::pending::<()>().await;
                }
                self.clock.sleep(self.each).await;
                Ok(())
            })
        }
    }

    #[derive(Clone, Default)]
    struct TerminationMessage(Arc<Mutex<String>>);

    impl Board for TerminationMessage {
        fn show<'a>(&'a self, _: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
            Box::pin(std::future::ready(()))
        }

        fn termination_message(&self, text: &str) {
            text.clone_into(&mut self.0.lock().unwrap());
        }
    }

    async fn cleaned(each: Duration, limits: &[(String, Duration)]) -> (Result<()>, Cleaned, String) {
        let clock = Clock::simulated("2026-03-13T03:57:09Z".parse().unwrap(), 1.0);
        let targets = (0..100).map(|number| format!("rancher/x:v{number}")).collect();
        let runtime = Slow {
            clock: clock.clone(),
            each,
        };
        let program = CleanImages::new(Box::new(runtime), targets);
        let word = TerminationMessage::default();
        let report = Reporter::new(clock, Arc::new(word.clone()));
        let done = run(&program, &with_limits(STEPS, limits), &report).await;
        let word = word.0.lock().unwrap().clone();
        (done, program.cleaned().cloned().unwrap_or_default(), word)
    }

    #[tokio::test(start_paused = true)]
    async fn f06_images_that_are_never_gone_are_named_and_the_others_go() {
        let (done, cleaned, word) = cleaned(Duration::from_secs(10), &[]).await;
        done.unwrap();
        assert_eq!((cleaned.removed.len(), cleaned.failed.len()), (90, 10));
        assert!(
            word.starts_with("done; 10 images are still there: docker.io/rancher/x:v0 (it was not gone after 120 s)"),
            "{word}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn f06_a_deadline_that_is_too_short_leaves_the_rest_and_fails_nothing() {
        let limits = [("clean-images".to_owned(), Duration::from_mins(5))];
        let (done, cleaned, word) = cleaned(Duration::from_secs(10), &limits).await;
        done.unwrap();
        assert_eq!(cleaned.removed.len() + cleaned.failed.len(), 100);
        assert!(!cleaned.removed.is_empty() && cleaned.failed.len() > 10);
        assert!(word.contains("there was no time left for it"), "{word}");
    }

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
