#![doc = include_str!("../README.md")]

mod entry;
mod key;
mod rate;
mod shard;
mod spec;
mod table;

pub use entry::Entry;
pub use key::{MAX_KEY_BYTES, with_key};
pub use spec::{Data, MAX_SIZE, Spec};
pub use table::{Held, Table};
