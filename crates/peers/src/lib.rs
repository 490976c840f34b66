#![doc = include_str!("../README.md")]

mod dictionary;
mod hello;
mod section;
mod wire;

pub use dictionary::Dictionary;
pub use hello::{MAX_HELLO, Status, hello, read_hello};
pub use section::{
    Counts, Fault, HEARTBEAT, PeerReport, PeerSpec, Resync, SILENCE, Section, Shard, SharedTable, TableReport,
};
pub use wire::{Definition, MAX_BODY, Message, MessageError, Update, put_number};
