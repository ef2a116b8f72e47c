//! Whether a step that waits for many objects makes progress: fewer are left than ever before.

use std::time::Duration;

use api::ProgramWait;
use jiff::Timestamp;

use crate::step::StepContext;

/// Progress is shown no more often than this. The manager's deadline for the whole step is half an hour.
const SHOWN: Duration = Duration::from_mins(5);

/// How many objects a step waits for, and when it last reported fewer.
#[derive(Debug)]
pub struct Left {
    /// The name of the wait that shows how many are left.
    what: ProgramWait,
    object: String,
    fewest: usize,
    shown: Option<Timestamp>,
}

impl Left {
    /// Nothing is known yet of what is left. `what` and `object` are those of the wait that says how many are.
    #[must_use]
    pub fn new(what: ProgramWait, object: String) -> Self {
        Self {
            what,
            object,
            fewest: usize::MAX,
            shown: None,
        }
    }

    /// So many are left. When that is fewer than ever before, the step's limit starts again, and what is reported about them
    /// all is waited for since then.
    pub fn sees(&mut self, ctx: StepContext<'_>, left: usize) {
        if left >= self.fewest {
            return;
        }
        self.fewest = left;
        ctx.report.progresses();
        let now = ctx.report.clock.now();
        let shown = *self.shown.get_or_insert(now);
        if now.duration_since(shown).unsigned_abs() >= SHOWN {
            self.shown = Some(now);
            ctx.report.restart_wait(self.what, &self.object);
        }
    }
}
