//! A generation at work on lanes.

mod agent;
mod changes;
mod check_sockets;
mod check_words;
mod checks;
mod event;
mod idle;
mod listen;
mod local;
mod names;
mod observe;
mod older;
mod pace;
mod relocate;
mod streams;
mod passwords;
mod program;
mod succeed;

pub use changes::{administer, answer, change, find, warn};
pub(crate) use changes::say;
pub(crate) use event::{Event, Place};
pub(crate) use idle::{Idle, IdleClient};
pub use listen::{Backlogs, Beside, BindFailure, BoundListener, accept, bind, bind_beside, bind_listener, bound, listen_again, set_gate};
pub(crate) use listen::Ticket;
pub use local::Local;
pub(crate) use local::{PageServed, replaced};
pub(crate) use observe::{Seen, observe};
pub use relocate::{NotRenamed, Relocated, relocate, rename};
pub(crate) use older::{others_look_again, others_look_again_behind};
pub use older::{set_maxconn, set_weight};
pub use streams::{AtWork, Cursor, Slice, end_stream, end_streams, panic_stream, slice};
pub(crate) use streams::{Begun, Streaming};
pub(crate) use passwords::hashing;
