//! Streams that a lane has with servers, so that they can be ended from elsewhere: by a server that goes down (`on-marked-down`), an active one that
//! comes back (`on-marked-up`), or an operator (`shutdown sessions server`).
//!
//! # Protocol
//! 1. A stream has an entry on its lane from the moment when it has a [place](crate::server::Hold) on a server until it gives that back. Nobody else
//!    reads or writes it: to note it costs two stores, and no memory once the lane had as many streams at a time.
//! 2. Who wants streams to end asks each lane that serves by its inbox ([`end_streams`]). A lane marks the entries of all its generations, and
//!    wakes their tasks.
//! 3. A stream looks at its mark whenever it is woken while it waits for its server or its client. What is marked ends with that cause, as if the
//!    server had closed: HTTP answers 502 or 503 if nothing was sent yet, and nothing is tried again.

use super::local::Local;
use crate::generation::{Generation, Server, ServerNumber};
use crate::termination::Cause;
use manylane_sched::{Class, Remote, TaskKind};
use manylane_sync::Arc;
use std::cell::RefCell;
use std::task::Waker;

static END: TaskKind = TaskKind::new("end of streams");

/// Streams of a lane's generation that have a place on a server.
#[derive(Debug, Default)]
pub(crate) struct Streams(RefCell<Entries>);

#[derive(Debug, Default)]
struct Entries {
    all: Vec<Entry>,
    /// The first of those that are free, which are linked by their `server`.
    free: u32,
}

#[derive(Debug)]
struct Entry {
    /// Its number among all servers; of a free entry, the next free one.
    server: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    Free,
    /// It was not waited for yet.
    New,
    Waits(Waker),
    Ended(Cause),
}

impl Streams {
    /// A stream is with that server now. Its entry.
    pub(crate) fn begin(&self, server: usize) -> u32 {
        let mut entries = self.0.borrow_mut();
        let entry = Entry { server: server as u32, state: State::New };
        let place = entries.free as usize;
        match entries.all.get_mut(place) {
            Some(free) => {
                let next = std::mem::replace(free, entry).server;
                entries.free = next;
            }
            None => {
                entries.all.push(entry);
                entries.free = entries.all.len() as u32;
            }
        }
        place as u32
    }

    /// It is not any more.
    pub(crate) fn leave(&self, entry: u32) {
        let mut entries = self.0.borrow_mut();
        let next = std::mem::replace(&mut entries.free, entry);
        entries.all[entry as usize] = Entry { server: next, state: State::Free };
    }

    /// Why the stream has to end, if it has to; else the task of `waker` is woken when it has to.
    pub(crate) fn poll(&self, entry: u32, waker: &Waker) -> Option<Cause> {
        match &mut self.0.borrow_mut().all[entry as usize].state {
            State::Ended(cause) => Some(*cause),
            // A session is one task from its beginning to its end.
            State::Waits(_) | State::Free => None,
            new @ State::New => {
                *new = State::Waits(waker.clone());
                None
            }
        }
    }

    /// Ends all streams with that server. How many.
    pub(crate) fn end(&self, server: usize, cause: Cause) -> usize {
        let mut woken = Vec::new();
        let mut entries = self.0.borrow_mut();
        let of = |entry: &&mut Entry| entry.server == server as u32 && matches!(entry.state, State::New | State::Waits(_));
        let mut count = 0;
        for entry in entries.all.iter_mut().filter(of) {
            count += 1;
            if let State::Waits(waker) = std::mem::replace(&mut entry.state, State::Ended(cause)) {
                woken.push(waker);
            }
        }
        drop(entries); // who is woken may look
        woken.into_iter().for_each(Waker::wake);
        count
    }
}

/// Ends the streams that all lanes have with a server of `local`'s generation, and with the same one of generations before it.
pub fn end_streams(local: &Local, server: ServerNumber, cause: Cause) {
    for &lane in local.lane_ids.borrow().iter() {
        let generation = local.generation.clone();
        let make = move |_| async move { end_here(&generation, server, cause) };
        // A lane that has ended has no streams.
        let _ = Remote::new(lane).spawn_with(&END, Class::Urgent, make);
    }
}

fn end_here(generation: &Arc<Generation>, server: ServerNumber, cause: Cause) {
    let (backend, wanted) = generation.server(server);
    for local in Local::all() {
        let same: Option<&Server> = if std::ptr::eq(&*local.generation, &**generation) {
            Some(wanted)
        } else {
            let own = local.generation.backend_named(&backend.name).filter(|own| own.mode == backend.mode);
            own.and_then(|own| own.server_like(wanted))
        };
        if let Some(server) = same {
            local.streams.end(server.number, cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counted(AtomicUsize);

    impl std::task::Wake for Counted {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn streams_of_one_server_end_and_the_others_go_on() {
        let counted = std::sync::Arc::new(Counted(AtomicUsize::new(0)));
        let waker = Waker::from(counted.clone());
        let streams = Streams::default();
        let entries: Vec<u32> = [7, 8, 7, 7].into_iter().map(|server| streams.begin(server)).collect();
        streams.leave(entries[0]);
        for entry in &entries[1..3] {
            assert_eq!(streams.poll(*entry, &waker), None);
        }
        assert_eq!(streams.end(7, Cause::ServerDown), 2, "one was left, and one is another's");
        assert_eq!(counted.0.load(Ordering::Relaxed), 1, "one of them waits");
        let ended: Vec<_> = entries[1..].iter().map(|entry| streams.poll(*entry, &waker)).collect();
        assert_eq!(ended, [None, Some(Cause::ServerDown), Some(Cause::ServerDown)]);
        assert_eq!(streams.end(7, Cause::Killed), 0, "the first cause holds");
        assert_eq!(streams.begin(9), entries[0], "places are used again");
        assert_eq!(streams.poll(entries[0], &waker), None);
        assert_eq!(streams.begin(9), 4);
    }
}
