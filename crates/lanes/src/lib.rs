#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Its modules make system calls, so models and simulations leave all of them out; the crates below have
// models of the state that lanes share.
#![cfg(not(any(loom, manylane_sim)))]

mod changes;
mod check_report;
mod check_sockets;
mod checks;
mod conn_guard;
mod conn_slot;
mod datagrams;
mod event;
mod h2_counts;
mod host;
mod idle;
mod listen;
mod local;
mod log_servers;
mod look_up;
mod mail;
mod message_buffer;
mod observe;
mod origin;
mod panics;
mod passwords;
mod permit;
mod room;
mod scopes;
mod shared_conns;
mod streams;
mod succeed;
mod timer;
mod traffic;

pub use changes::{
    administer, answer, change, find, log_globally, say, set_maxconn, set_weight, stopped, tell,
    tell_console, warn,
};
pub use check_report::{log_check, reason, tell as tell_of_check};
pub use check_sockets::CheckSockets;
pub use checks::{CheckKind, Checks, checks_beside, find as find_check};
pub use conn_guard::{ConnGuard, SESSION};
pub use datagrams::datagram_listeners;
pub use event::{Event, Waiter, WaiterSlot};
pub use h2_counts::{CountedConn, H2Counters, judge_glitches};
pub use host::{backend_named, current_of};
pub use idle::{Idle, IdleClient, hasher};
pub use listen::{
    Backlogs, BindFailure, BoundListener, ListenersBeside, bind, bind_beside, bind_listener, listen_again,
};
pub use local::{Local, PageServed, offline, replaced};
pub use message_buffer::MessageBuffer;
pub use observe::{Observation, observe};
pub use origin::{Greeting, Peers};
pub use panics::{Growth, caught};
pub use passwords::{Passwords, THREADS, hashing};
pub use permit::{HeadersBeforeTls, NoPermit, ServerPermit, SetTime, Wanted};
pub use room::Room;
pub use scopes::{
    BackLink, CapturesOf, Countable, HeldEntry, LONGEST_ID, LaneTables, Limits, Links, LogLevel, Memory,
    Scopes, SessionTracks, Shared, Spare, StreamText, TableView, Texts, Tracked, TrackedSlots, Tracks,
    digits, table_millis,
};
pub use shared_conns::SETTINGS_TIMEOUT;
pub use streams::{
    Cursor, Slice, StreamReport, StreamStart, Streaming, Streams, end_stream, end_streams, panic_stream,
    slice,
};
pub use succeed::Successor;
pub use timer::Timer;
pub use traffic::Parties;
