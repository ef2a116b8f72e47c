//! Limits of our HTTP servers: one table ([`limits`]), which connections are served ([`places`]), and the
//! loop that serves HTTP within them ([`http`]). Knows no server in particular, and never ends because of a client.
//!
//! The rules, the same for all: a connection is always accepted. One that finds all places taken takes the place of the
//! oldest that is not being answered, first of its own address, then of the address that has most. Where all are being
//! answered, it is accepted briefly: a probe is answered, anything else gets 503.

mod body;
pub mod http;
pub mod limits;
mod phase;
pub mod places;
mod stream;

pub use body::{RequestBody, TooSlow};
pub use limits::Limits;
pub use places::{Place, Places};
