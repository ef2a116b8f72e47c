//! Finalize: what was changed is restored, what was created is removed, then the plan has ended.

use api::reasons;

use crate::{
    decision::Decision,
    draft::{Draft, Outcome},
    undo::{self, Ending},
};

/// After the last phase.
pub fn leave(draft: &mut Draft<'_>) -> Outcome {
    undo::restore(draft, Ending::Success)
}

/// After a failure. The reason stays what it was.
pub fn fail(mut draft: Draft<'_>) -> Decision {
    let why = draft
        .observed
        .plan
        .condition(reasons::PROGRESSING)
        .map(|condition| condition.message.clone());
    match undo::restore(&mut draft, Ending::Failure) {
        Outcome::Done => draft.finish((false, reasons::EXECUTED, reasons::EXECUTED_MESSAGE), false, why),
        _ => draft.finish((true, reasons::EXECUTABLE, ""), true, why),
    }
}
