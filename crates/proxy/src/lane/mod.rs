//! A lane's state of a generation, and what the lanes do with servers.

mod changes;
mod check_report;
mod check_sockets;
mod checks;
mod conn_guard;
mod conn_slot;
mod datagrams;
mod event;
mod host;
mod idle;
mod listen;
mod local;
mod log_servers;
mod look_up;
mod mail;
mod observe;
mod passwords;
mod permit;
mod room;
mod shared_conns;
mod streams;
mod succeed;
mod timer;

pub use changes::{administer, answer, change, find, set_maxconn, set_weight, stopped, warn};
pub use changes::{log_globally, say};
pub(crate) use changes::{tell, tell_console};
pub use check_report::{log_check, reason, tell as tell_of_check};
pub use check_sockets::CheckSockets;
pub use checks::{CheckKind, Checks, checks_beside, find as find_check};
pub use conn_guard::{ConnGuard, SESSION};
pub(crate) use datagrams::datagram_listeners;
pub use event::Event;
pub(crate) use event::WaiterSlot;
pub(crate) use host::backend_named;
pub use host::current_of;
pub use idle::Idle;
pub(crate) use idle::{IdleClient, hasher};
pub use listen::{
    Backlogs, BindFailure, BoundListener, ListenersBeside, bind, bind_beside, bind_listener, listen_again,
};
pub use local::{Local, offline};
pub(crate) use local::{PageServed, replaced};
pub(crate) use observe::{Observation, observe};
pub use passwords::{THREADS, hashing};
pub(crate) use permit::{HeadersBeforeTls, NoPermit, ServerPermit, SetTime, Wanted};
pub(crate) use room::Room;
pub(crate) use shared_conns::SETTINGS_TIMEOUT;
pub use streams::{Cursor, Slice, StreamReport, end_stream, end_streams, panic_stream, slice};
pub(crate) use streams::{StreamStart, Streaming};
pub(crate) use timer::Timer;
