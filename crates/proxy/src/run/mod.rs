//! A generation at work on lanes.

mod event;
mod listen;
mod local;

pub use listen::{BindFailure, BoundListener, accept, bind};
pub(crate) use listen::Ticket;
pub use local::Local;
