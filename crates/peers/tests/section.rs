//! Processes that send each other changes, without IO and without a clock.

use manylane_expr::{DataType, Type, Value};
use manylane_peers::{Fault, HEARTBEAT, PeerSpec, Resync, SILENCE, Section, Shard, SharedTable};
use manylane_stick::{Data, Spec, Table, server_key, server_key_text, with_key};
use manylane_sync::Arc;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A process with one table of counters by number.
struct Process {
    table: Arc<Table>,
    section: Section,
}

fn table() -> Arc<Table> {
    let data = vec![
        Data { kind: DataType::Gpc0, count: 1, period: 0 },
        Data { kind: DataType::HttpReqRate, count: 1, period: 10_000 },
    ];
    let (key, key_bytes, size, expire, nopurge) = (Type::Int, 0, 5_000, 60_000, false);
    Arc::new(Table::new(Spec {
        key,
        key_bytes,
        size,
        expire,
        nopurge,
        data,
        bytes_factor: std::num::NonZeroU32::MIN,
        turns: false,
    }))
}

impl Process {
    fn new(peers: usize, now: u64) -> Self {
        Self::with(table(), vec![false; peers], false, now)
    }

    fn with(table: Arc<Table>, peers: Vec<bool>, follows: bool, now: u64) -> Self {
        let section = Section::new(
            [SharedTable { name: "t".into(), table: table.clone(), receives_only: false, write_to: None }],
            peers.into_iter().map(|is_local| PeerSpec { is_local, shard: None }),
            follows,
            now,
        );
        Self { table, section }
    }

    fn set(&self, key: i64, to: u64, now: u64) {
        with_key(self.table.spec(), Value::Int(key), |words| {
            let entry = self.table.get_or_make(words, now).expect("there is room");
            entry.set(DataType::Gpc0, to, now);
        });
    }

    fn all(&self, now: u64) -> BTreeMap<i64, u64> {
        let mut all = BTreeMap::new();
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.table.each(from, now, |entry| {
                if let Value::Int(key) = entry.key(&mut []) {
                    all.insert(key, entry.get(DataType::Gpc0, now).expect("it is kept"));
                }
                true
            });
        }
        all
    }

    /// The output for a peer.
    fn sends(&mut self, peer: usize, now: u64) -> Vec<u8> {
        let mut out = Vec::new();
        self.section.tick(now);
        while self.section.transmit(peer, now, &mut out) {}
        out
    }
}

/// Exchanges output until neither side has any. Each is the other's only peer.
fn settle(one: &mut Process, two: &mut Process, now: u64) {
    loop {
        let (there, back) = (one.sends(0, now), two.sends(0, now));
        if there.is_empty() && back.is_empty() {
            return;
        }
        assert_eq!(two.section.receive(0, &there, now), Ok(there.len()));
        assert_eq!(one.section.receive(0, &back, now), Ok(back.len()));
    }
}

fn connect(one: &mut Process, two: &mut Process, now: u64) {
    one.section.begin(0, now);
    two.section.begin(0, now);
}

#[test]
fn who_comes_later_is_sent_all_and_who_is_connected_what_changes() {
    let now = 1_000;
    let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
    (0..3_000).for_each(|key| one.set(key, key as u64 + 7, now));
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    assert_eq!(one.all(now).len(), 3_000);
    assert_eq!(one.all(now), two.all(now));
    two.set(5, 1, now);
    one.set(6, 2, now);
    settle(&mut one, &mut two, now);
    assert_eq!((one.all(now)[&5], two.all(now)[&6]), (1, 2));
    // Neither had everything until the time limit passed.
    assert!(matches!(one.section.resync(), Resync::Remote(_)));
    one.section.tick(now + 10_000);
    assert_eq!(one.section.resync(), Resync::Finished);
}

/// Rule 2: learned changes are not sent back.
/// However much there is to tell, one call writes 16 KiB and the message that was begun, to a peer that is
/// taught everything and to one that is told changes.
#[test]
fn what_a_peer_is_sent_at_once_has_a_bound() {
    const FILL: usize = 16_384;
    const MESSAGE: usize = 64; // of this table: a key and two numbers
    let now = 1_000;
    let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
    for taught in [true, false] {
        let reported = |one: &mut Process, two: &mut Process| {
            let (mut sizes, mut more) = (Vec::new(), true);
            while more {
                let mut out = Vec::new();
                more = one.section.transmit(0, now, &mut out);
                assert_eq!(two.section.receive(0, &out, now), Ok(out.len()));
                sizes.push(out.len());
            }
            sizes
        };
        let sizes = match taught {
            true => {
                (0..3_000).for_each(|key| one.set(key, 7, now));
                connect(&mut one, &mut two, now);
                let asks = two.sends(0, now);
                assert_eq!(one.section.receive(0, &asks, now), Ok(asks.len()));
                reported(&mut one, &mut two)
            }
            false => {
                settle(&mut one, &mut two, now);
                (0..3_000).for_each(|key| one.set(key, 8, now));
                one.section.tick(now);
                reported(&mut one, &mut two)
            }
        };
        assert!(sizes.iter().all(|&size| size < FILL + MESSAGE), "taught: {taught}, {sizes:?}");
        assert!(sizes.iter().filter(|&&size| size >= FILL).count() >= 2, "taught: {taught}, {sizes:?}");
    }
}

/// However often an entry changes while a peer is away, the peer is told one change of it.
#[test]
fn a_peer_that_was_away_is_told_one_change_an_entry() {
    let reported = |changes: u64| {
        let now = 1_000;
        let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
        (0..2).for_each(|key| one.set(key, 1, now));
        connect(&mut one, &mut two, now);
        settle(&mut one, &mut two, now);
        let now = now + 10_000;
        for own in [&mut one, &mut two] {
            own.section.tick(now);
            assert_eq!(own.section.resync(), Resync::Finished);
            own.section.end(0, now);
        }
        for n in 0..changes {
            one.set(5, 2 + n % 7, now);
            one.section.tick(now);
        }
        connect(&mut one, &mut two, now);
        let out = one.sends(0, now);
        assert_eq!(two.section.receive(0, &out, now), Ok(out.len()));
        assert_eq!(two.all(now).get(&5).copied(), changes.checked_sub(1).map(|n| 2 + n % 7));
        out.len()
    };
    assert!(reported(0) < reported(1));
    assert_eq!(reported(1), reported(1_000));
}

#[test]
fn what_a_peer_has_sent_does_not_come_back() {
    let now = 1_000;
    let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    one.set(5, 1, now);
    let reported = one.sends(0, now);
    two.section.receive(0, &reported, now).expect("it is right");
    let back = two.sends(0, now);
    assert_eq!(back.len(), 8, "an acknowledgement alone: {back:?}");
}

/// Rule 1: a connection begins at what the peer has acknowledged.
#[test]
fn what_was_sent_and_not_acknowledged_is_sent_again() {
    let now = 1_000;
    let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    one.set(5, 1, now);
    settle(&mut one, &mut two, now);
    one.set(6, 2, now);
    assert!(!one.sends(0, now).is_empty(), "lost on its way");
    connect(&mut one, &mut two, now);
    let again = one.sends(0, now);
    two.section.receive(0, &again, now).expect("it is right");
    assert_eq!(two.all(now), [(5, 1), (6, 2)].into());
    assert!(again.windows(4).all(|bytes| bytes != [0, 0, 0, 5]), "{again:?}");
}

/// Rule 4.
#[test]
fn a_process_that_follows_another_learns_from_it_first() {
    let now = 1_000;
    let mut old = Process::with(table(), vec![true], false, now);
    old.set(5, 1, now);
    let mut new = Process::with(table(), vec![true], true, now);
    new.section.tick(now);
    assert!(matches!(new.section.resync(), Resync::Local(_)));
    connect(&mut old, &mut new, now);
    assert!(!old.section.has_taught(0));
    settle(&mut old, &mut new, now);
    assert!(old.section.has_taught(0));
    assert_eq!(new.all(now), [(5, 1)].into());
    // Without an old process, it continues after a time limit.
    let mut alone = Process::with(table(), vec![true, false], true, now);
    alone.section.tick(now + 5_000);
    assert!(matches!(alone.section.resync(), Resync::Remote(_)));
    alone.section.tick(now + 10_000);
    assert_eq!(alone.section.resync(), Resync::Finished);
}

/// Rule 3: a peer without a resynchronisation of its own says so, and the next is asked.
#[test]
fn another_peer_is_asked_where_the_first_lacks_something() {
    let now = 1_000;
    let mut asks = Process::new(2, now);
    let mut lacks = Process::new(1, now);
    let mut knows = Process::new(1, now + 20_000);
    knows.section.tick(now + 40_000); // the time limits passed without a peer: it counts as complete
    knows.set(5, 1, now);
    asks.section.begin(0, now);
    lacks.section.begin(0, now);
    asks.section.begin(1, now);
    knows.section.begin(0, now);
    for _ in 0..6 {
        for (number, other) in [&mut lacks, &mut knows].into_iter().enumerate() {
            let (there, back) = (asks.sends(number, now), other.sends(0, now));
            other.section.receive(0, &there, now).expect("it is right");
            asks.section.receive(number, &back, now).expect("it is right");
        }
    }
    assert_eq!(asks.section.resync(), Resync::Finished);
    assert_eq!(asks.all(now), [(5, 1)].into());
}

/// Rule 3: a peer that was asked and only sends heartbeats is passed over.
#[test]
fn another_peer_is_asked_where_the_first_sends_no_entries() {
    let mut now = 1_000;
    let mut asks = Process::new(2, now);
    let mut knows = Process::new(1, now + 20_000);
    knows.section.tick(now + 40_000); // it counts as complete
    knows.set(5, 1, now);
    asks.section.begin(0, now);
    asks.section.begin(1, now);
    knows.section.begin(0, now);
    let requested = asks.sends(0, now);
    assert!(!requested.is_empty());
    for _ in 0..4 {
        now += HEARTBEAT;
        asks.section.receive(0, &[0, 4], now).expect("it is a heartbeat");
        let (there, back) = (asks.sends(1, now), knows.sends(0, now));
        knows.section.receive(0, &there, now).expect("it is right");
        asks.section.receive(1, &back, now).expect("it is right");
    }
    assert_eq!(asks.section.resync(), Resync::Finished);
    assert_eq!(asks.all(now), [(5, 1)].into());
}

#[test]
fn heartbeats_are_sent_into_silence_and_missed() {
    let now = 1_000;
    let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    let later = now + HEARTBEAT;
    assert_eq!(one.sends(0, later), [0, 4]);
    assert_eq!(two.section.receive(0, &[0, 4], later), Ok(2));
    assert!(!two.section.is_silent(0, now + SILENCE) && one.section.is_silent(0, now + SILENCE));
}

/// A rate is sent with the age of its period.
#[test]
fn rates_go_on_where_they_were() {
    let now = 100_000;
    let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
    connect(&mut one, &mut two, now);
    for step in 0..30 {
        let at = now + step * 500;
        with_key(one.table.spec(), Value::Int(1), |words| {
            one.table.get_or_make(words, at).expect("there is room").add(DataType::HttpReqRate, 3, at);
        });
    }
    let at = now + 15_000;
    settle(&mut one, &mut two, at);
    let rate = |process: &Process, at| {
        with_key(process.table.spec(), Value::Int(1), |words| {
            process.table.peek(words, at, |entry| entry.get(DataType::HttpReqRate, at))
        })
    };
    for at in [at, at + 3_000, at + 12_000] {
        assert_eq!(rate(&one, at), rate(&two, at));
        assert!(at > now + 25_000 || rate(&one, at) > Some(Some(Some(20))));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(bool, i64, u64),
    Send(bool, usize),
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), 0..20_i64, 1..1000_u64).prop_map(|(who, key, to)| Step::Set(who, key, to)),
        4 => (any::<bool>(), 1..2_000_usize).prop_map(|(who, part)| Step::Send(who, part)),
        1 => Just(Step::Reconnect),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    /// With any cuts, losses and repetitions, both sides end with the values set last, if only one of them
    /// sets each key.
    #[test]
    fn both_have_the_same_in_the_end(steps in steps()) {
        let now = 1_000;
        let mut both = [Process::new(1, now), Process::new(1, now)];
        let mut expected = BTreeMap::new();
        let mut on_their_way = [Vec::new(), Vec::new()];
        let connect = |both: &mut [Process; 2]| both.iter_mut().for_each(|own| own.section.begin(0, now));
        connect(&mut both);
        for step in steps {
            match step {
                Step::Set(who, key, to) => {
                    let key = key * 2 + i64::from(who);
                    both[usize::from(who)].set(key, to, now);
                    expected.insert(key, to);
                }
                Step::Send(who, part) => {
                    let (from, to) = (usize::from(who), usize::from(!who));
                    let more = both[from].sends(0, now);
                    on_their_way[from].extend(more);
                    let part = part.min(on_their_way[from].len());
                    let used = both[to].section.receive(0, &on_their_way[from][..part], now);
                    prop_assert!(used.is_ok());
                    on_their_way[from].drain(..used.unwrap_or(0));
                }
                Step::Reconnect => {
                    on_their_way.iter_mut().for_each(Vec::clear);
                    connect(&mut both);
                }
            }
        }
        connect(&mut both);
        let [one, two] = &mut both;
        settle(one, two, now);
        prop_assert_eq!(one.all(now), expected.clone());
        prop_assert_eq!(two.all(now), expected);
    }

    /// Any input causes at most an error, and no more entries than there is room for.
    #[test]
    fn any_bytes_of_a_peer_do_no_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        body in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let now = 1_000;
        let (mut one, mut two) = (Process::new(1, now), Process::new(1, now));
        two.set(5, 1, now);
        connect(&mut one, &mut two, now);
        let mut said = two.sends(0, now);
        said.extend([10, 128, body.len() as u8]);
        said.extend(body);
        said.extend(bytes);
        match one.section.receive(0, &said, now) {
            Ok(used) => prop_assert!(used <= said.len()),
            Err(Fault::Message(_) | Fault::Blamed) => {}
        }
        prop_assert!(one.table.used() <= one.table.spec().size);
        one.sends(0, now);
    }
}

/// Peers with a part of the keys get these and nothing else, by a resynchronisation and by changes, and what
/// they do not get is not kept for them.
#[test]
fn a_peer_with_a_shard_gets_its_part_of_the_keys() {
    let now = 1_000;
    let parts = [Some(Shard { number: 1, of: 2 }), Some(Shard { number: 2, of: 2 }), None];
    let own = table();
    let shared = SharedTable { name: "t".into(), table: own.clone(), receives_only: false, write_to: None };
    let specs = parts.map(|shard| PeerSpec { is_local: false, shard });
    let mut here = Process { section: Section::new([shared], specs, false, now), table: own };
    let mut others = [Process::new(1, now), Process::new(1, now), Process::new(1, now)];
    here.set(1, 1, now); // before any connection: part of a resynchronisation
    for (peer, other) in others.iter_mut().enumerate() {
        here.section.begin(peer, now);
        other.section.begin(0, now);
    }
    for key in 2..=100 {
        here.set(key, 1, now);
        here.section.tick(now);
        for (peer, other) in others.iter_mut().enumerate() {
            for _ in 0..3 {
                let (mut forth, mut back) = (Vec::new(), Vec::new());
                other.section.tick(now);
                other.section.transmit(0, now, &mut back);
                here.section.receive(peer, &back, now).expect("it is the protocol");
                here.section.transmit(peer, now, &mut forth);
                other.section.receive(0, &forth, now).expect("it is the protocol");
            }
        }
    }
    let [one, two, all] = others.map(|other| other.all(now));
    assert_eq!(all, here.all(now));
    assert!(one.len() > 20 && two.len() > 20, "{} {}", one.len(), two.len());
    assert!(one.keys().all(|key| !two.contains_key(key)));
    assert_eq!(one.len() + two.len(), all.len());
    let known = here.section.report(now).iter().map(|peer| peer.tables[0].known).collect::<Vec<_>>();
    assert!(known.iter().all(|known| *known > 90), "what a peer does not get counts as known: {known:?}");
}

fn table_of_servers() -> Arc<Table> {
    let data = [DataType::ServerId, DataType::Gpt0, DataType::Gpc0, DataType::ServerKey].map(|kind| Data {
        kind,
        count: 1,
        period: 0,
    });
    Arc::new(Table::new(Spec { data: data.to_vec(), ..table().spec().clone() }))
}

/// Two processes with one table each, of servers and counts. The second writes what it learns to another
/// table.
fn with_servers(now: u64) -> (Process, Process, Arc<Table>) {
    let copy = table_of_servers();
    let process = |write_to: Option<Arc<Table>>| {
        let table = table_of_servers();
        let shared = SharedTable { name: "t".into(), table: table.clone(), receives_only: false, write_to };
        Process { section: Section::new([shared], [PeerSpec::default()], false, now), table }
    };
    (process(None), process(Some(copy.clone())), copy)
}

/// What an entry keeps: its server's id and name, its tag and counter.
fn server_in(table: &Table, key: i64, now: u64) -> Option<(u64, Option<&'static str>, u64, u64)> {
    with_key(table.spec(), Value::Int(key), |words| {
        table.peek(words, now, |entry| {
            let get = |data| entry.get(data, now).expect("it is kept");
            let name = server_key_text(get(DataType::ServerKey));
            (get(DataType::ServerId), name, get(DataType::Gpt0), get(DataType::Gpc0))
        })
    })?
}

/// More names than a dictionary has numbers, each sent in full as rarely as possible.
#[test]
fn names_of_servers_are_sent_as_numbers_of_a_connection() {
    const NAMES: i64 = 300;
    let now = 1_000;
    let (mut one, mut two, _) = with_servers(now);
    let name = |key: i64| format!("server with the number {key}");
    let set = |process: &Process, key: i64, name: &str| {
        with_key(process.table.spec(), Value::Int(key), |words| {
            let entry = process.table.get_or_make(words, now).expect("there is room");
            entry.set(DataType::ServerId, key as u64, now);
            let number = server_key(name).expect("there are numbers left");
            entry.set(DataType::ServerKey, number.into(), now);
        });
    };
    set(&one, 0, &name(0)); // part of the resynchronisation
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    let times =
        |bytes: &[u8], text: &str| bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count();
    for round in 0..2 {
        // The same server for 10 keys in turn.
        (0..NAMES).for_each(|key| set(&one, key, &name((key / 10 + round) % 30)));
        let out = one.sends(0, now);
        assert_eq!(two.section.receive(0, &out, now), Ok(out.len()));
        for key in 0..NAMES {
            let server = name((key / 10 + round) % 30);
            let sent = times(&out, &format!("{}{server}", char::from(server.len() as u8)));
            assert_eq!(sent, usize::from(round == 0 && server != name(0)), "{server} {round}");
            let shown = server_in(&two.table, key, now).map(|(id, shown, ..)| (id, shown.map(str::to_owned)));
            assert_eq!(shown, Some((key as u64, Some(server))));
        }
    }
    (0..NAMES).for_each(|key| set(&one, key, &name(key)));
    // Another connection begins with empty dictionaries.
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    for key in 0..NAMES {
        assert_eq!(server_in(&two.table, key, now), server_in(&one.table, key, now));
        let shown = server_in(&two.table, key, now).and_then(|(_, shown, ..)| shown);
        assert_eq!(shown, Some(&*name(key)));
    }
}

/// All tables of a connection share the numbers of names, also those that only the sender has.
#[test]
fn names_of_servers_in_updates_of_unknown_tables_count() {
    const NAMES: i64 = 128; // numbers of a connection
    let now = 1_000;
    let (_, mut two, _) = with_servers(now);
    let tables = ["more", "t"].map(|name| SharedTable {
        name: name.into(),
        table: table_of_servers(),
        receives_only: false,
        write_to: None,
    });
    let [more, table] = [&tables[0], &tables[1]].map(|shared| shared.table.clone());
    let section = Section::new(tables, [PeerSpec::default()], false, now);
    let mut one = Process { section, table };
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    let name = |round: i64, key: i64| format!("server {key} of round {round}");
    for (table, round) in [(&one.table.clone(), 0), (&more, 1), (&one.table.clone(), 1)] {
        for key in 0..NAMES {
            with_key(table.spec(), Value::Int(key), |words| {
                let entry = table.get_or_make(words, now).expect("there is room");
                let number = server_key(&name(round, key)).expect("there are numbers left");
                entry.set(DataType::ServerKey, number.into(), now);
            });
        }
        settle(&mut one, &mut two, now);
    }
    for key in 0..NAMES {
        let shown = server_in(&two.table, key, now).and_then(|(_, shown, ..)| shown);
        assert_eq!(shown, Some(&*name(1, key)));
    }
}

/// A peer may define tables without end.
#[test]
fn definitions_of_unknown_tables_are_bounded() {
    let now = 1_000;
    let (_, mut two, _) = with_servers(now);
    let many = (0..1000).map(|number| SharedTable {
        name: format!("unknown {number}").into(),
        table: table_of_servers(),
        receives_only: false,
        write_to: None,
    });
    let many: Vec<SharedTable> = many.collect();
    let tables: Vec<Arc<Table>> = many.iter().map(|shared| shared.table.clone()).collect();
    let mut one =
        Process { section: Section::new(many, [PeerSpec::default()], false, now), table: tables[0].clone() };
    connect(&mut one, &mut two, now);
    for table in &tables {
        with_key(table.spec(), Value::Int(1), |words| {
            table.get_or_make(words, now).expect("there is room").set(DataType::ServerId, 1, now);
        });
    }
    settle(&mut one, &mut two, now);
    let kept = format!("{:?}", two.section).matches("PeerTable {").count();
    assert_eq!(kept, 64);
}

/// `write-to`: as in HAProxy, servers and tags go to the other table, and nothing that is added up.
#[test]
fn what_peers_send_is_written_to_another_table() {
    let now = 1_000;
    let (mut one, mut two, copy) = with_servers(now);
    let set = |table: &Table, key: i64, counter: u64| {
        with_key(table.spec(), Value::Int(key), |words| {
            let entry = table.get_or_make(words, now).expect("there is room");
            let name = u64::from(server_key("copied").expect("there are numbers left"));
            let all = [DataType::ServerId, DataType::Gpt0, DataType::Gpc0, DataType::ServerKey];
            for (kind, to) in all.into_iter().zip([4, 5, counter, name]) {
                entry.set(kind, to, now);
            }
        });
    };
    set(&one.table, 1, 6); // part of a resynchronisation
    connect(&mut one, &mut two, now);
    settle(&mut one, &mut two, now);
    set(&copy, 2, 9);
    set(&one.table, 2, 6);
    set(&two.table, 3, 6);
    settle(&mut one, &mut two, now);
    assert_eq!(server_in(&two.table, 1, now), Some((4, Some("copied"), 5, 6)));
    assert_eq!(server_in(&copy, 1, now), Some((4, Some("copied"), 5, 0)));
    assert_eq!(server_in(&copy, 2, now), Some((4, Some("copied"), 5, 9)), "its own count stays");
    assert_eq!(server_in(&copy, 3, now), None, "this process has set it");
    // The entry lives as long as that of the peer's.
    let later = now + copy.spec().expire / 2;
    set(&one.table, 2, 7);
    settle(&mut one, &mut two, later);
    assert_eq!(server_in(&copy, 2, now + copy.spec().expire - 1), Some((4, Some("copied"), 5, 9)));
    assert_eq!(server_in(&copy, 1, now + copy.spec().expire), None);
}
