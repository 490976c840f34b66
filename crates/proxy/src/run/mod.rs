//! A generation while lanes serve it.

mod accept;
mod agent;
mod check_words;
mod checks;
mod meter;
mod names;
mod ocsp;
mod peers;
mod program;
mod relocate;

pub use accept::{accept, bound, set_gate};
pub use ocsp::renew_ocsp;
pub use relocate::{NotRenamed, Relocated, relocate, rename};
