//! A generation while lanes serve it.

mod accept;
mod acme;
mod agent;
mod check_words;
mod checks;
mod http_answer;
mod http_client;
mod meter;
mod names;
mod ocsp;
mod peers;
mod program;
mod relocate;
mod watch;

pub use accept::{accept, bound, set_gate};
pub use ocsp::renew_ocsp;
pub use relocate::{NotRenamed, PreviousAddress, relocate, rename};
