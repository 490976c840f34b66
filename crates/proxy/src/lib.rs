#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod pace;
mod places;
mod rate;
mod told;

pub use places::Places;
pub use rate::Rate;
pub use told::{News, Told};

/// All that makes system calls. What lanes share in it is in the rooms below.
macro_rules! sockets {
    ($($item:item)*) => { $(#[cfg(not(any(loom, manylane_sim)))] $item)* };
}

sockets! {
    pub mod counts;
    mod flow;
    pub mod generation;
    mod http;
    pub mod invalid;
    mod log;
    pub mod pages;
    mod panics;
    mod rules;
    mod run;
    mod server;
    mod session;
    mod tcp;
    mod termination;
    pub mod vitals;

    pub use generation::Generation;
    pub use run::{
        Backlogs, Beside, BindFailure, BoundListener, Local, NotRenamed, Relocated, accept, administer, answer, bind, bind_beside, bind_listener, bound, change, end_stream, end_streams, find, listen_again, panic_stream, set_gate, set_maxconn, set_weight,
        relocate, rename, slice, warn, AtWork, Cursor, Slice,
    };
    pub use termination::{Cause, Phase, Termination};

    /// Lanes of a process at most.
    pub const MOST_LANES: usize = 1024;
}
