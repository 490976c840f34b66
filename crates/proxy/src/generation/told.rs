//! What a generation was told of servers after it was replaced.

use super::{Backend, Server};
use manylane_sync::{LockClass, Mutex};
use std::collections::HashMap;
use std::fmt;

static TOLD: LockClass = LockClass::new("what a generation was told of servers", LockClass::LEAF);

/// By the names of the backend and the server.
type Last = HashMap<(Box<str>, Box<str>), u64>;

/// The number of the last news of each server that a generation was told after it was replaced.
pub(crate) struct Told(Mutex<Last>);

impl Default for Told {
    fn default() -> Self {
        Self(Mutex::new(&TOLD, HashMap::new()))
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

impl Told {
    /// Whether nobody has told these or later ones of the same server: who did has read what the server was then.
    pub(crate) fn are_new(&self, (backend, server): (&Backend, &Server), news: u64) -> bool {
        let mut told = self.0.lock();
        let last = told.entry((backend.name.clone(), server.name.clone())).or_default();
        let are_new = *last < news;
        *last = news.max(*last);
        are_new
    }
}
