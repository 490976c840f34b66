//! The way to a server: which one, with which tries, and what is counted of it.

mod connect;
mod header;
mod hold;
mod leaving;

pub(crate) use connect::{
    Attempt, NotReached, Pains, Shelved, Tried, at_once, connect, enter, remember_link, remember_place,
};
pub(crate) use header::header;
pub(crate) use hold::{Hold, Wanted};
