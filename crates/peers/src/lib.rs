#![doc = include_str!("../README.md")]

mod hello;
mod section;
mod wire;

pub use hello::{MAX_HELLO, Status, hello, read_hello};
pub use section::{Counts, Fault, HEARTBEAT, PeerReport, Resync, SILENCE, Section, SharedTable, TableReport};
pub use wire::{Definition, MAX_BODY, Message, Update, Wrong, put_number};
