#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // one of the rooms where `unsafe` is allowed by name: links that many threads follow

mod owning;
mod pinned;
mod raw;
mod wait;

pub use owning::{AddError, Handle, InsertError, Item, OwningList, UniqueHandle};
pub use pinned::{MtList, Node};
