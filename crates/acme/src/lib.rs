#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg(not(any(loom, manylane_sim)))] // no model explores it, and it needs the arithmetic of TLS

mod account;
mod answer;
mod certificate;
mod encode;
mod order;
mod schedule;

pub use account::{AccountKey, BindingAlgorithm, ExternalAccount, KeyKind};
pub use answer::{Answer, Failure, LONGEST_ANSWER};
pub use certificate::{CertificateInfo, NewKey, now};
pub use order::{Challenge, Method, Proof, Request, Transport, Wanted, obtain};
pub use schedule::{
    Running, State, ask, begin, due, expect, is_ready, is_requested, obtained, retain, set_ready, state,
};
