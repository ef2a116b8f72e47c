//! What people and scripts see: values in, text out.
//!
//! Pure: no terminal, no clock, no files. The caller knows whether colours are wanted and what time it is.

pub mod forecast;
pub mod junit;
pub mod preflight;
pub mod report;
pub mod status;
pub mod style;
mod table;
