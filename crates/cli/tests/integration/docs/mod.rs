//! The documentation is true: its commands run, its links lead somewhere, and nothing that can be set is left out.

mod console;
mod crates;
mod fragilities;
mod links;
mod listed;
mod page;
pub(crate) use page::root;
mod row_index;
mod rows;
mod run;
mod troubles;
mod typed_errors;
mod words;
mod world;
