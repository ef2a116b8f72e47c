//! What is waited for, as data.

/// One thing a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// In one word: LonghornVolume, VMEvacuation, …
    pub what: &'static str,
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// The same in a sentence that says why.
    pub message: String,
}
