//! Names of sockets, and the table of their owners.
//!
//! The table is cut into shards, each under a name lock: the pool of name mutexes of R-A3. Names exist only
//! inside the process, without the file system.

use crate::error::Error;
use crate::locks;
use crate::pcb::{Pcb, PcbRef};
use manylane_sync::{CachePadded, Mutex};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::Arc;

/// Maximum number of bytes of a name: that of a path of the system's own local sockets.
pub const MAX_NAME: usize = 107;

/// Number of shards of the table, so that sockets that bind and connect at the same time seldom collide.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// Name of a socket: 1 to [`MAX_NAME`] bytes of any value. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Creates the name of these bytes.
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; [`Error::Invalid`] for an empty name.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Error> {
        match bytes.as_ref() {
            [] => Err(Error::Invalid("a name of 0 bytes: use one of 1 to 107 bytes")),
            long if long.len() > MAX_NAME => Err(Error::NameTooLong(long.len())),
            bytes => Ok(Self(bytes.into())),
        }
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A bound pcb. Its socket removes it from the table, under the shard's lock, before it releases its own
/// reference.
struct Bound(NonNull<Pcb>);

// SAFETY: any thread may reach a pcb; the shard's lock keeps it alive (see above).
unsafe impl Send for Bound {}

struct Table {
    shards: Vec<CachePadded<Mutex<HashMap<Name, Bound>>>>,
    hasher: RandomState,
}

manylane_sync::lazy_static! {
    static TABLE: Table = Table {
        shards: (0..SHARDS).map(|_| CachePadded::new(Mutex::new(&locks::NAME, HashMap::new()))).collect(),
        hasher: RandomState::new(),
    };
}

impl Table {
    fn shard(&self, name: &Name) -> &Mutex<HashMap<Name, Bound>> {
        &self.shards[self.hasher.hash_one(name) as usize % self.shards.len()]
    }
}

/// Binds `name` to `pcb`, whose socket calls this: takes the name lock, then the pcb's.
pub(crate) fn bind(pcb: &Pcb, name: &Name) -> Result<(), Error> {
    let mut shard = TABLE.shard(name).lock();
    if shard.contains_key(name) {
        return Err(Error::AddressInUse(name.clone()));
    }
    let mut state = pcb.state.lock();
    if state.name.is_some() {
        return Err(Error::Invalid("the socket has a name already, which it keeps until it is closed"));
    }
    state.name = Some(name.clone());
    shard.insert(name.clone(), Bound(NonNull::from(pcb)));
    Ok(())
}

/// Unbinds `name`; the socket that has it calls this as it closes.
pub(crate) fn unbind(name: &Name) {
    TABLE.shard(name).lock().remove(name);
}

/// Returns a reference on the pcb that has `name`.
pub(crate) fn find(name: &Name) -> Result<PcbRef, Error> {
    let shard = TABLE.shard(name).lock();
    let bound = shard.get(name).ok_or(Error::ConnectionRefused)?;
    // SAFETY: it is in the table under the lock that this thread holds, so its socket still has its
    // reference: there is one to copy (R-A5).
    Ok(unsafe { PcbRef::hold(bound.0) })
}
