//! A generation at work on lanes.

mod event;
mod listen;
mod local;

pub use listen::{BindFailure, BoundListener, accept, bind, bind_listener};
pub(crate) use listen::Ticket;
pub(crate) use local::Idle;
pub use local::Local;
