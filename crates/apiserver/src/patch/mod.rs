//! The patch formats as pure functions: an object and a patch in, the patched object or a refusal out.

mod json;
mod merge;
mod strategic;

pub(crate) use json::apply_json_patch;
pub(crate) use merge::apply_merge_patch;
pub(crate) use strategic::apply_strategic_patch;
