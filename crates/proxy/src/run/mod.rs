//! A generation while lanes serve it.

mod agent;
mod changes;
mod check_sockets;
mod check_words;
mod checks;
mod event;
mod idle;
mod listen;
mod local;
mod meter;
mod names;
mod observe;
mod passwords;
mod peers;
mod program;
mod relocate;
mod shared_conns;
mod streams;
mod succeed;

pub use changes::{administer, answer, change, find, set_maxconn, set_weight, stopped, warn};
pub(crate) use changes::{say, tell, tell_console};
pub(crate) use event::{Event, WaiterSlot};
pub(crate) use idle::{Idle, IdleClient};
pub use listen::{
    Backlogs, Beside, BindFailure, BoundListener, accept, bind, bind_beside, bind_listener, bound,
    listen_again, set_gate,
};
pub(crate) use listen::{ConnGuard, SESSION};
pub use local::Local;
pub(crate) use local::{PageServed, replaced};
pub(crate) use observe::{Observation, observe};
pub(crate) use passwords::hashing;
pub use relocate::{NotRenamed, Relocated, relocate, rename};
pub(crate) use shared_conns::SETTINGS_PATIENCE;
pub use streams::{AtWork, Cursor, Slice, end_stream, end_streams, panic_stream, slice};
pub(crate) use streams::{Begun, Streaming};
