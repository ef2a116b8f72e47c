//! What was there before an upgrade: read ([`look`]), kept until it is stored ([`Unstored`]), compared at the end, and put in short
//! for the status ([`summary`]). Nothing here decides when.

mod look;
mod summary;
mod unstored;

pub use look::Look;
pub use unstored::Unstored;
