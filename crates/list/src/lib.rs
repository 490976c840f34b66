#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // allowed here by name (ARCHITECTURE.md): many threads follow the links

mod owning;
mod pinned;
mod raw;
mod wait;

pub use owning::{AddError, Handle, InsertError, Item, OwningList, UniqueHandle};
pub use pinned::{MtList, Node};
