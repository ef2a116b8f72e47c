//! Goes through the steps of a real program: their names, order and limits are the real ones, and so is what runs them;
//! what each does here is what others can see of it.

use api::labels;
use futures::{FutureExt, future::BoxFuture};
use program::{
    Error, Result,
    report::Reporter,
    step::{self, Step, StepContext},
};

use super::Call;

/// What of a step others can see.
pub(super) type Seen = for<'a> fn(&'a Call, StepContext<'a>) -> BoxFuture<'a, Result<()>>;

/// A step of a real program by its name, and what others can see of it.
pub(super) type Line = (&'static str, Seen);

/// A short step without a visible effect outside the host.
pub(super) const UNSEEN: Seen = |_, _| std::future::ready(Ok(())).boxed();

/// Goes through a program, whose lines are in tables.
pub(super) async fn walk<C>(call: &Call, steps: &[Step<C>], lines: &[&[Line]], report: &Reporter) -> Result<()> {
    let seen: Vec<Step<Call>> = steps.iter().map(|step| as_observed(step, lines)).collect();
    step::run_all(call, &seen, report).await
}

fn as_observed<C>(step: &Step<C>, lines: &[&[Line]]) -> Step<Call> {
    let line = lines.iter().copied().flatten().find(|(name, _)| *name == step.name);
    Step {
        name: step.name,
        limit: step.limit,
        run: line.map_or(unknown as Seen, |(_, seen)| *seen),
    }
}

/// A step without a line here is not ignored: its Job fails.
fn unknown<'a>(call: &'a Call, _: StepContext<'a>) -> BoxFuture<'a, Result<()>> {
    let program = call.label(labels::UPGRADE_COMPONENT);
    let why = format!("the simulation of {program} does not know this step");
    std::future::ready(Err(Error::Permanent(why))).boxed()
}

#[cfg(test)]
mod tests {
    use node::{
        host::system_agent::SUSPEND_STEPS,
        images::{cleanup, prepare},
        limits::Limits,
        post_drain, pre_drain, single_node, skip_manifests,
    };
    use program::step::Step;

    use super::{super as programs, *};

    fn names<C>(steps: &[Step<C>]) -> Vec<&'static str> {
        steps.iter().map(|step| step.name).collect()
    }

    fn on_nodes() -> [(Vec<&'static str>, &'static [Line]); 3] {
        let limits = Limits::default();
        [
            (names(&pre_drain::steps(&limits)), programs::pre_drain::LINES),
            (names(&post_drain::steps(&limits)), programs::post_drain::LINES),
            (names(&single_node::steps(&limits)), programs::single_node::LINES),
        ]
    }

    fn elsewhere() -> [(Vec<&'static str>, &'static [Line]); 4] {
        [
            (names(prepare::STEPS), programs::prepare::LINES),
            (names(cleanup::STEPS), programs::clean_images::LINES),
            (names(skip_manifests::STEPS), programs::skip_manifests::LINES),
            (names(SUSPEND_STEPS), programs::suspend_agent::LINES),
        ]
    }

    fn has(lines: &[Line], step: &str) -> bool {
        lines.iter().any(|(name, _)| *name == step)
    }

    #[test]
    fn every_step_of_a_real_program_has_its_line_and_no_line_is_of_another() {
        let hosts = programs::host::LINES;
        for (steps, lines) in on_nodes() {
            for step in &steps {
                assert!(has(lines, step) != has(hosts, step), "{step} has one line");
            }
            assert!(lines.iter().all(|(name, _)| steps.contains(name)), "{steps:?}");
        }
        for (name, _) in hosts {
            assert!(on_nodes().iter().any(|(steps, _)| steps.contains(name)), "{name}");
        }
        for (steps, lines) in elsewhere() {
            let names: Vec<_> = lines.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, steps);
        }
    }
}
