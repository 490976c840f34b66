//! Names, and who has which.
//!
//! The table is cut into shards, each under a name lock: the pool of name mutexes of R-A3. Names are known
//! inside the process only; the file system has no part in it.

use crate::error::Error;
use crate::locks;
use crate::pcb::{Pcb, PcbRef};
use manylane_sync::{CachePadded, Mutex};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes of a name at most: as many as a path of the system's own local sockets has.
pub const MAX_NAME: usize = 107;

/// Parts of the table: sockets that bind and connect at the same time seldom meet.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// What a socket is called: 1 to [`MAX_NAME`] bytes of any value. Cloning copies a pointer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// The name of these bytes.
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; [`Error::Invalid`] for no bytes at all.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, Error> {
        match bytes.as_ref() {
            [] => Err(Error::Invalid("a name of 0 bytes: use one of 1 to 107 bytes")),
            long if long.len() > MAX_NAME => Err(Error::NameTooLong(long.len())),
            bytes => Ok(Self(bytes.into())),
        }
    }

    /// Its bytes.
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

/// A bound pcb. Its socket takes it out of the table, under the shard's lock, before it gives up its own
/// reference.
struct Bound(NonNull<Pcb>);

// SAFETY: a pcb may be reached from any thread; the shard's lock keeps it alive (see above).
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

/// Gives `name` to `pcb`, whose socket calls this: takes the name lock, then the pcb's.
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

/// Takes `name` from the socket that has it; called by that socket as it closes.
pub(crate) fn unbind(name: &Name) {
    TABLE.shard(name).lock().remove(name);
}

/// The pcb that has `name`, held.
pub(crate) fn find(name: &Name) -> Result<PcbRef, Error> {
    let shard = TABLE.shard(name).lock();
    let bound = shard.get(name).ok_or(Error::ConnectionRefused)?;
    // SAFETY: it is in the table under the lock that we hold, so its socket still has its reference: there is
    // one to copy (R-A5).
    Ok(unsafe { PcbRef::hold(bound.0) })
}
