//! A generation at work on lanes.

mod checks;
mod event;
mod idle;
mod listen;
mod local;
mod succeed;

pub(crate) use checks::say;
pub(crate) use event::{Event, Place};
pub(crate) use idle::Idle;
pub use listen::{Backlogs, Beside, BindFailure, BoundListener, accept, bind, bind_beside, bind_listener};
pub(crate) use listen::Ticket;
pub use local::Local;
