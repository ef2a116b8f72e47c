//! How far the upgrade is, in a draft: it is written together with other changes and never causes a write of its own.

use rules::progress;

use super::Draft;

impl Draft<'_> {
    /// Updates the progress, if the status changes anyway. The draft begins with the recorded progress, so a draft that changes
    /// nothing equals what is recorded.
    pub(super) fn set_progress(&mut self) {
        let plan = &self.observed.plan;
        if plan.status.as_ref() == Some(&self.status) {
            return;
        }
        let forecast = progress::of_status(self.now, &plan.spec, &self.status, &self.observed.size);
        self.status.progress = Some(forecast.into());
    }
}
