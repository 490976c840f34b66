#![doc = include_str!("../README.md")]

mod entry;
mod key;
mod rate;
mod server_key;
mod shard;
mod share;
mod spec;
mod table;

pub use entry::Entry;
pub use key::{MAX_KEY_BYTES, with_key};
pub use server_key::{MAX_SERVER_KEYS, peer_server_key, server_key, server_key_text};
pub use share::{DataValue, Period};
pub use spec::{Data, MAX_SIZE, Spec};
pub use table::{EntryGuard, ShardClearing, Table};
