//! TLS of servers that are sent lines.

use manylane_sync::atomic::AtomicBool;
use manylane_sync::qsbr::Reader;
use manylane_tls::{ClientContext, ServerName};
use std::cell::RefCell;
use std::fmt;
use std::rc::Weak;

/// TLS with a server.
#[derive(Debug)]
pub struct TargetTls {
    pub(crate) context: ClientContext,
    pub(crate) name: ServerName<'static>,
    /// A failed handshake was reported, and none has succeeded since.
    pub(crate) failing: AtomicBool,
}

impl TargetTls {
    /// Connections as `context` says, to a server of this name.
    pub fn new(context: ClientContext, name: ServerName<'static>) -> Self {
        Self { context, name, failing: AtomicBool::new(false) }
    }

    /// True if connections that the other has made fit this one.
    pub(crate) fn fits_connections_of(&self, other: &Self) -> bool {
        self.name == other.name && self.context.fits_connections_of(&other.context)
    }
}

/// What the tasks of a lane need for TLS.
#[derive(Clone)]
pub struct LaneTls {
    /// The lane's access to published values.
    pub reader: Weak<RefCell<Reader>>,
    /// Takes a sentence about a server with which the handshake fails, until one succeeds.
    pub report: fn(&str),
}

impl fmt::Debug for LaneTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneTls").finish_non_exhaustive()
    }
}
