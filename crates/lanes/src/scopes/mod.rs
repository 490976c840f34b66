//! What a session and its current request leave for later rules and for the log: variables, tracked entries,
//! and the request's memory.

mod bandwidth;
mod links;
mod memory;
mod tracks;

pub use bandwidth::{Limits, Shared};
pub use links::{BackLink, Links};
pub use memory::{CapturesOf, LONGEST_ID, LogLevel, Memory, StreamText, Texts, digits};
pub use tracks::{
    Countable, HeldEntry, LaneTables, SessionTracks, TableView, Tracked, TrackedSlots, Tracks,
    millis as table_millis,
};

use manylane_expr::Variables;
use std::cell::RefCell;
use std::rc::Rc;

/// Variables of a session and of its current request, and the request's memory.
#[derive(Debug, Default)]
pub struct Scopes {
    /// What rules leave for later rules and for the log.
    pub memory: Memory,
    /// Tracked entries of stick tables.
    pub tracks: Tracks,
    /// The session's variables, where its requests come one after another.
    session: RefCell<Variables>,
    /// The session's variables, where it has concurrent streams.
    shared: Option<Rc<RefCell<Variables>>>,
    /// Variables of a request and its response.
    pub transaction: RefCell<Variables>,
    /// Variables of the request, until the response begins.
    pub request: RefCell<Variables>,
    /// Variables of the response.
    pub response: RefCell<Variables>,
}

impl Scopes {
    /// Resets everything that belongs to the previous request. The pattern names each field, so that for a
    /// new one it is decided here whether it ends with the request or with the session.
    #[inline]
    pub fn next_request(&self) {
        let Self { memory, tracks, session: _, shared: _, transaction, request, response } = self;
        memory.clear();
        tracks.end_stream();
        transaction.borrow_mut().clear();
        request.borrow_mut().clear();
        response.borrow_mut().clear();
    }

    /// Drops the variables of the request when the response begins.
    #[inline]
    pub fn begin_response(&self) {
        let mut request = self.request.borrow_mut();
        if !request.is_empty() {
            request.clear();
        }
    }

    /// Returns the session's variables.
    #[inline]
    pub fn session(&self) -> &RefCell<Variables> {
        self.shared.as_deref().unwrap_or(&self.session)
    }

    /// Returns true if the session has state that only its generation understands.
    pub fn has_session(&self) -> bool {
        !self.session().borrow().is_empty() || self.tracks.has_session()
    }

    /// Takes the session's variables, if it has any.
    #[inline]
    pub fn take_session(&self) -> Option<Variables> {
        let mut session = self.session().borrow_mut();
        if session.is_empty() { None } else { Some(std::mem::take(&mut *session)) }
    }

    /// Sets the variables of a session that continues.
    pub fn put_session(&self, variables: Variables) {
        self.session().replace(variables);
    }

    /// Sets the variables that the streams of a session share. A variable that one stream sets or unsets is
    /// set or unset for all of them at once.
    pub fn share_session(&mut self, variables: Rc<RefCell<Variables>>) {
        self.shared = Some(variables);
    }

    /// Bytes that the buffers of all texts have.
    fn capacity(&self) -> usize {
        let variables = [&self.session, &self.transaction, &self.request, &self.response];
        variables.iter().map(|own| own.borrow().capacity()).sum::<usize>() + self.memory.capacity()
    }

    /// Resets everything that belongs to the session.
    fn clear(&mut self) {
        self.next_request();
        let Self { memory: _, tracks, session, shared, transaction: _, request: _, response: _ } = self;
        session.borrow_mut().clear();
        *shared = None;
        drop(tracks.take_session());
    }
}

/// Free list of scopes, with the buffers that their texts have grown to.
#[derive(Debug, Default)]
#[expect(clippy::vec_box)] // sessions own them boxed, so they move between the two without a copy
pub struct Spare(RefCell<Vec<Box<Scopes>>>);

/// Most scopes in the free list. Memory beyond this many concurrent requests is freed.
const SPARE: usize = 1024;

/// Most bytes of buffers that one scope keeps in the free list. Larger ones, which clients can make grow to
/// four times `MAX_SCOPE_BYTES`, are freed.
const SPARE_BYTES: usize = 8192;

impl Spare {
    /// Returns empty scopes.
    pub fn take(&self) -> Box<Scopes> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns scopes to the free list.
    pub fn put(&self, mut scopes: Box<Scopes>) {
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
    use manylane_buf::Chain;
    use manylane_expr::{Captures as _, Direction, LinkError, TableId, Type, Value};
    use manylane_http::{Head, Version};
    use manylane_io::{Driver, DriverChoice, Kind, SocketId};
    use manylane_mux::h2::{self, Conn};
    use manylane_net::Connection;
    use manylane_plan::Side;
    use manylane_plan::clock::now;
    use manylane_plan::generation::{Bandwidth, Captures, FilterId, StickTable, TimeoutOf};
    use manylane_sched::Lane;
    use manylane_stick::{Spec, Table};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    /// Returns the text of each field of a `Debug` output with `{:#?}`.
    fn fields(text: &str) -> Vec<(&str, String)> {
        let mut all: Vec<(&str, String)> = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            match line.split_once(": ") {
                Some((name, value)) if !name.starts_with(' ') => all.push((name, value.to_owned())),
                _ => all.last_mut().expect("a field has a name").1.push_str(line),
            }
        }
        all
    }

    /// Checks that no field is as it is by default: a test that leaves one out does not see that it stays.
    fn assert_all_set<T: std::fmt::Debug + Default>(used: &T) {
        let (used, fresh) = (format!("{used:#?}"), format!("{:#?}", T::default()));
        let (used, fresh) = (fields(&used), fields(&fresh));
        assert!(!fresh.is_empty() && used.len() == fresh.len());
        for (used, fresh) in used.iter().zip(&fresh) {
            assert_eq!(used.0, fresh.0);
            assert_ne!(used.1, fresh.1, "`{}` is not set", used.0);
        }
    }

    /// Sets each field of the links.
    fn use_links(links: &Links, conn: Conn, socket: SocketId) {
        links.set_front(conn);
        links.set_back(BackLink::Single);
        for side in [Side::Client, Side::Server] {
            links.set_socket(side, Some(socket));
            links.set_id(side, 7);
            links.set_reset(side, 8);
        }
        let error = LinkError { code: 1, name: "a", sentence: "b" };
        links.set_front_error(error);
        links.set_back_error(error);
        assert_all_set(links);
    }

    /// Tracks an entry of a table with one counter of the session and one of the stream.
    fn use_tracks(tracks: &Tracks) {
        let spec = Spec {
            key: Type::Int,
            key_bytes: 4,
            size: 8,
            expire: 0,
            nopurge: false,
            data: Vec::new(),
            bytes_factor: std::num::NonZeroU32::MIN,
            turns: false,
        };
        let table = StickTable {
            name: "t".into(),
            table: std::sync::Arc::new(Table::new(spec)),
            by_address: false,
            peers: None,
            receives_only: false,
            write_to: None,
        };
        let tables = LaneTables::new(&[table]);
        for (counter, of_session) in [(0, true), (1, false)] {
            let entry = tables.get(TableId(0)).and_then(|table| table.get_or_make(&[7], 0));
            let number = entry.expect("room").into_number();
            let held = HeldEntry::new(tables.clone(), TableId(0), number);
            tracks.track(of_session, counter, Tracked(held), 0);
        }
        assert_all_set(tracks);
    }

    #[test]
    fn scopes_that_were_used_have_nothing_of_it_for_the_next() {
        let mut lane = Lane::new(manylane_sched::Config::new()).unwrap();
        let here = lane.here();
        let mut driver = Driver::new(here, DriverChoice::Only(Kind::Epoll)).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let socket = SocketId::of(ours.as_fd()).unwrap();
        let connection = Connection::Socket(driver.io().stream(ours).unwrap());
        let conn = Conn::server(connection, Chain::new(), h2::Config::default(), here).unwrap();
        lane.block_on(&mut driver, async move { uses(&conn, socket) }).unwrap();
    }

    fn uses(conn: &Conn, socket: SocketId) {
        let spare = Spare::default();
        let fresh = format!("{:?}", Scopes::default());
        let mut scopes = spare.take();
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
        let head = Head::request(b"GET", b"/a-secret", Version::HTTP_11).unwrap();
        memory.remember_whole(&head, b"", 1024);
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
        memory.server_tls.replace(Some(std::rc::Rc::default()));
        for flag in [&memory.server_h2, &memory.server_reused, &memory.reached_server] {
            flag.set(true);
        }
        for packets in [&memory.client_packets, &memory.server_packets] {
            packets.set(manylane_net::Packets { mark: Some(1), tos: Some(1) });
        }
        let bandwidth = Bandwidth { limit: 1, period: std::time::Duration::from_secs(1), min_size: 0 };
        let limit = FilterId { proxy: 0, index: 0 };
        memory.limits.set(limit, Side::Client, bandwidth, manylane_sched::Time::now());
        use_links(&memory.links, conn.clone(), socket);
        assert_all_set(memory);
        use_tracks(&scopes.tracks);
        let shared = Rc::<RefCell<Variables>>::default();
        assert!(shared.borrow_mut().set(name, Value::Str(b"a secret")));
        scopes.share_session(shared.clone());
        assert_all_set(&*scopes);
        spare.put(scopes);
        assert_eq!(format!("{:?}", spare.take()), fresh);
        // The session's other streams keep what they share.
        assert_eq!(shared.borrow().get(name), Some(Value::Str(b"a secret")));
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

    #[test]
    fn as_many_scopes_are_kept_as_the_bound_says() {
        let spare = Spare::default();
        let used: Vec<_> = (0..1025).map(|_| spare.take()).collect();
        for (number, scopes) in (1_usize..).zip(used) {
            spare.put(scopes);
            assert_eq!(spare.0.borrow().len(), number.min(1024));
        }
    }
}
