//! What a session and its current request leave for later rules and for the log: variables, tracked entries,
//! and the request's memory.

mod bandwidth;
mod links;
mod memory;
mod tracks;

pub(crate) use bandwidth::{Limits, Shared};
pub(crate) use links::{BackLink, Links};
pub(crate) use memory::{CapturesOf, LONGEST_ID, LogLevel, Memory, StreamText, digits};
pub(crate) use tracks::{
    Countable, HeldEntry, LaneTables, SessionTracks, TableView, Tracked, Tracks, millis as table_millis,
};

use manylane_expr::Variables;
use std::cell::RefCell;

/// Variables of a session and of its current request, and the request's memory.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    pub(crate) memory: Memory,
    /// Tracked entries of stick tables.
    pub(crate) tracks: Tracks,
    pub(crate) session: RefCell<Variables>,
    pub(crate) transaction: RefCell<Variables>,
    pub(crate) request: RefCell<Variables>,
    pub(crate) response: RefCell<Variables>,
}

impl Scopes {
    /// Resets everything that belongs to the previous request. The pattern names each field, so that for a
    /// new one it is decided here whether it ends with the request or with the session.
    pub(crate) fn next_request(&self) {
        let Self { memory, tracks, session: _, transaction, request, response } = self;
        memory.clear();
        tracks.end_stream();
        transaction.borrow_mut().clear();
        request.borrow_mut().clear();
        response.borrow_mut().clear();
    }

    /// Drops the variables of the request when the response begins.
    pub(crate) fn begin_response(&self) {
        let mut request = self.request.borrow_mut();
        if !request.is_empty() {
            request.clear();
        }
    }

    /// Returns true if the session has state that only its generation understands.
    pub(crate) fn has_session(&self) -> bool {
        !self.session.borrow().is_empty() || self.tracks.has_session()
    }

    /// Takes the session's variables, if it has any.
    pub(crate) fn take_session(&self) -> Option<Variables> {
        let mut session = self.session.borrow_mut();
        if session.is_empty() { None } else { Some(std::mem::take(&mut *session)) }
    }

    /// Sets the variables of a session that continues.
    pub(crate) fn put_session(&self, variables: Variables) {
        self.session.replace(variables);
    }

    /// Bytes that the buffers of all texts have.
    fn capacity(&self) -> usize {
        let variables = [&self.session, &self.transaction, &self.request, &self.response];
        variables.iter().map(|own| own.borrow().capacity()).sum::<usize>() + self.memory.capacity()
    }

    /// Resets everything that belongs to the session.
    fn clear(&self) {
        self.next_request();
        let Self { memory: _, tracks, session, transaction: _, request: _, response: _ } = self;
        session.borrow_mut().clear();
        drop(tracks.take_session());
    }
}

/// Free list of scopes, with the buffers that their texts have grown to.
#[derive(Debug, Default)]
#[expect(clippy::vec_box)] // sessions own them boxed, so they move between the two without a copy
pub(crate) struct Spare(RefCell<Vec<Box<Scopes>>>);

/// Most scopes in the free list. Memory beyond this many concurrent requests is freed.
const SPARE: usize = 1024;

/// Most bytes of buffers that one scope keeps in the free list. Larger ones, which clients can make grow to
/// four times `MAX_SCOPE_BYTES`, are freed.
const SPARE_BYTES: usize = 8192;

impl Spare {
    /// Returns empty scopes.
    pub(crate) fn take(&self) -> Box<Scopes> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns scopes to the free list.
    pub(crate) fn put(&self, scopes: Box<Scopes>) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < SPARE && scopes.capacity() <= SPARE_BYTES {
            scopes.clear();
            spare.push(scopes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_expr::{Captures as _, Direction, Value};
    use manylane_http::Version;
    use manylane_plan::clock::now;
    use manylane_plan::generation::{Captures, TimeoutOf};

    #[test]
    fn scopes_that_were_used_have_nothing_of_it_for_the_next() {
        let spare = Spare::default();
        let fresh = format!("{:?}", Scopes::default());
        let scopes = spare.take();
        let name = manylane_expr::VariableNames::default().resolve(b"sess.name").unwrap();
        for scope in [&scopes.session, &scopes.transaction, &scopes.request, &scopes.response] {
            assert!(scope.borrow_mut().set(name, Value::Str(b"a secret")));
        }
        let memory = &scopes.memory;
        let slots = Captures { request: vec![9], response: vec![9], ..Captures::default() };
        let captures = CapturesOf { slots: &slots, memory };
        for direction in [Direction::Request, Direction::Response] {
            assert!(captures.store(direction, 0, b"a secret"));
        }
        memory.texts.borrow_mut().set(StreamText::UniqueId as usize, b"a secret");
        memory.response.set(Some((Version::HTTP_11, 200)));
        memory.server_status.set(200);
        memory.begun.set(now());
        memory.number.set(7);
        memory.log_level.set(LogLevel::Silent);
        for timeout in TimeoutOf::ALL {
            memory.timeout(timeout).set(Some(std::time::Duration::ZERO));
        }
        memory.priority_class.set(1);
        memory.priority_offset.set(1);
        memory.retries.set(Some(1));
        memory.no_repetition.set(true);
        memory.last_rule.set(Some(1));
        memory.link.set((Some(([192, 0, 2, 1], 80).into()), None));
        for address in [&memory.source, &memory.destination] {
            address.set(Some(([192, 0, 2, 1], 80).into()));
        }
        for packets in [&memory.client_packets, &memory.server_packets] {
            packets.set(manylane_net::Packets { mark: Some(1), tos: Some(1) });
        }
        assert_ne!(format!("{scopes:?}"), fresh);
        spare.put(scopes);
        assert_eq!(format!("{:?}", spare.take()), fresh);
        // A session that continues keeps only its own variables.
        let scopes = spare.take();
        assert!(scopes.take_session().is_none());
        assert!(scopes.session.borrow_mut().set(name, Value::Int(1)));
        let kept = scopes.take_session().unwrap();
        assert_eq!(format!("{scopes:?}"), fresh);
        scopes.put_session(kept);
        assert_eq!(scopes.session.borrow().get(name), Some(Value::Int(1)));
    }

    #[test]
    fn scopes_with_large_buffers_are_freed() {
        let name = manylane_expr::VariableNames::default().resolve(b"txn.name").unwrap();
        for (bytes, kept) in [(SPARE_BYTES / 2, 1), (SPARE_BYTES + 1, 0)] {
            let spare = Spare::default();
            let scopes = spare.take();
            assert!(scopes.transaction.borrow_mut().set(name, Value::Str(&vec![b'x'; bytes])));
            spare.put(scopes);
            assert_eq!(spare.0.borrow().len(), kept, "{bytes} bytes");
        }
    }
}
