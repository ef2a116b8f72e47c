//! How far the archive is that is being read: in the log, and in what is waited for.

use api::ProgramWait;
use std::time::Duration;

use program::{report::Waiting, step::StepContext};
use release::bundle::{AGENT, Bundle, COMMON, RKE2};

/// How often it is reported.
const INTERVAL: Duration = Duration::from_secs(5);

/// The way of one archive.
pub(super) struct Progress<'a> {
    ctx: StepContext<'a>,
    /// What is done with it: "importing", "saving".
    doing: &'static str,
    /// The archive's path.
    object: String,
    /// Which one it is, of how many.
    number: usize,
    count: usize,
    size: u64,
    said: Option<Duration>,
}

impl<'a> Progress<'a> {
    /// An archive, the `number`th (from one) of `count`.
    pub(super) fn new(ctx: StepContext<'a>, doing: &'static str, object: &str, number: usize, count: usize) -> Self {
        Self {
            ctx,
            doing,
            object: object.to_owned(),
            number,
            count,
            size: 0,
            said: None,
        }
    }

    /// How large it is; it begins now.
    pub(super) fn begins(&mut self, size: u64, from: u64) {
        self.size = size;
        self.said = None;
        self.moved_to(from);
    }

    /// How far it is.
    pub(super) fn moved_to(&mut self, at: u64) {
        let now = self.ctx.report.clock.elapsed();
        if self.said.is_some_and(|said| now.saturating_sub(said) < INTERVAL) {
            return;
        }
        self.said = Some(now);
        let waiting = waiting(&self.object, self.sentence(at));
        self.ctx.report.waiting(&[waiting], Some(self.ctx.deadline));
    }

    /// It is through.
    pub(super) fn ends(&self) {
        tracing::info!(archive = self.object, bytes = self.size, "{}", self.sentence(self.size));
    }

    fn sentence(&self, at: u64) -> String {
        sentence(self.doing, &self.object, (self.number, self.count), at, self.size)
    }
}

/// An archive on its way, as what is waited for.
#[must_use]
pub fn waiting(archive: &str, sentence: String) -> Waiting {
    Waiting {
        what: ProgramWait::ImagePreload,
        object: format!("Archive {archive}"),
        message: sentence,
    }
}

/// The groups of archives that are imported, in order.
pub const IMPORTED: [&str; 2] = [COMMON, RKE2];
/// The groups of archives that are saved, in order.
pub const SAVED: [&str; 2] = [RKE2, AGENT];

/// Which archive of all that are imported, or saved, one of a group is, from one; and how many there are.
#[must_use]
pub fn place(bundle: &Bundle, groups: &[&str], group: &str, index: usize) -> (usize, usize) {
    let count = |groups: &mut dyn Iterator<Item = &&str>| groups.map(|group| bundle.group(group).len()).sum::<usize>();
    let before = count(&mut groups.iter().take_while(|before| **before != group));
    (before + index + 1, count(&mut groups.iter()))
}

/// How far an archive is, which of how many it is, and what is done with it.
#[must_use]
pub fn sentence(doing: &str, archive: &str, (number, count): (usize, usize), at: u64, size: u64) -> String {
    let name = archive.rsplit('/').next().unwrap_or(archive);
    format!(
        "{doing} {name}, archive {number} of {count}: {} of {}",
        in_mebibytes(at),
        in_mebibytes(size)
    )
}

fn in_mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_in_mebibytes() {
        assert_eq!(in_mebibytes(0), "0.0 MiB");
        assert_eq!(in_mebibytes(1_600_000), "1.5 MiB");
        assert_eq!(in_mebibytes(5 << 30), "5120.0 MiB");
    }
}
