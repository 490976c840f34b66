//! Peers, end to end: processes that share stick tables, with each other and with HAProxy.

use crate::common;
use crate::tls::Authority;

use common::watch::{Haproxy, ask, until};
use common::{DEFAULTS, Folder, Manylane, check, own_address, status_of};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Tables for each key type, with counters, tags, rates and arrays.
const TABLES: &str = "\
    backend ips\n stick-table type ip size 1k expire 10m peers ps store server_id,gpt0,gpc0,gpc0_rate(10m),\
        conn_cnt,conn_cur,conn_rate(10m),http_req_rate(10m),bytes_out_cnt,glitch_cnt\n\
    backend arrays\n stick-table type ip size 1k expire 10m peers ps store gpt(3),gpc(2),gpc_rate(2,10m)\n\
    backend ip6s\n stick-table type ipv6 size 1k expire 10m peers ps store gpc0\n\
    backend numbers\n stick-table type integer size 1k expire 10m peers ps store gpc0\n\
    backend names\n stick-table type string len 12 size 1k peers ps store gpc0\n\
    backend usual_names\n stick-table type string size 1k peers ps store gpc0\n\
    backend data\n stick-table type binary len 5 size 1k expire 10m peers ps store gpc0\n";

/// One of two peers.
struct Peer {
    folder: Folder,
    name: &'static str,
    web: SocketAddr,
    own: SocketAddr,
    config: String,
    manylane: Option<Manylane>,
    _haproxy: Option<Haproxy>,
}

impl Peer {
    /// A peer `name` at the address `own`; it reaches `other` at the address `at`.
    fn new(name: &'static str, own: SocketAddr, (other, at): (&str, SocketAddr)) -> Self {
        Self::with(name, own, &format!("server {other} {at}"), "")
    }

    /// As [`new`](Self::new), with these lines for the other peers, and these before all peers.
    fn with(name: &'static str, own: SocketAddr, others: &str, first: &str) -> Self {
        let (folder, web) = (Folder::new(), own_address());
        let socket = folder.0.join("control");
        let config = format!(
            "global\n nbthread 2\n localpeer {name}\n stats socket {} level admin\n\
             defaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n\
             peers ps\n {first} peer {name} {own}\n {others}\n\
                 table own type ip size 1k expire 10m store gpc0\n\
             frontend f\n bind {web}\n http-request track-sc0 src table ips\n\
                 http-request track-sc1 url,hex table data if {{ path_beg /data }}\n\
                 http-request return status 200\n{TABLES}",
            socket.display()
        );
        Self { folder, name, web, own, config, manylane: None, _haproxy: None }
    }

    fn socket(&self) -> PathBuf {
        self.folder.0.join("control")
    }

    fn manylane(mut self) -> Self {
        self.manylane = Some(Manylane::start_ready(&self.config));
        self
    }

    /// Starts it as HAProxy; `None` if that is not installed.
    fn haproxy(mut self) -> Option<Self> {
        self._haproxy = Some(Haproxy::start(&self.folder.file("haproxy.cfg", &self.config))?);
        until(|| std::os::unix::net::UnixStream::connect(self.socket()).is_ok());
        Some(self)
    }

    fn ask(&self, line: &str) -> String {
        ask(&self.socket(), line)
    }

    /// Data of an entry as reported, without what is local to a process.
    fn entry(&self, table: &str, key: &str) -> Option<BTreeMap<String, String>> {
        let answer = self.ask(&format!("show table {table}"));
        let line = answer.lines().find(|line| line.contains(&format!(" key={key} ")))?;
        let pairs = line.split(' ').filter_map(|word| word.split_once('='));
        let own = ["key", "use", "exp", "shard", "conn_cur"];
        let kept = pairs.filter(|(name, _)| !own.contains(name));
        Some(kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Waits until an entry has this value.
    fn keeps(&self, table: &str, key: &str, (name, value): (&str, &str)) {
        until(|| self.entry(table, key).is_some_and(|entry| entry.get(name).is_some_and(|own| own == value)));
    }

    fn set(&self, table: &str, key: &str, data: &str) {
        assert_eq!(self.ask(&format!("set table {table} key {key} {data}")).trim(), "");
    }

    /// Waits until the other peer is connected.
    fn is_connected(&self) {
        until(|| self.ask("show info").contains("ConnectedPeers: 1"));
    }
}

/// Two peers that know each other's addresses.
fn two() -> (Peer, Peer) {
    let (one, two) = (own_address(), own_address());
    (Peer::new("one", one, ("two", two)), Peer::new("two", two, ("one", one)))
}

/// Counts before and after the connection reach both peers.
fn share(one: &Peer, two: &Peer) {
    let all = [
        (
            "ips",
            "192.0.2.1",
            "gpc0",
            "data.gpt0 5 data.gpc0 300 data.server_id 2 data.conn_cnt 70000 \
            data.http_req_rate 33 data.bytes_out_cnt 9000000000 data.glitch_cnt 4",
        ),
        ("arrays", "192.0.2.2", "gpc1", "data.gpc[1] 300 data.gpt[2] 8 data.gpc_rate[0] 100"),
        ("ip6s", "2001:db8::1", "gpc0", "data.gpc0 300"),
        ("numbers", "65538", "gpc0", "data.gpc0 300"),
        ("names", "hello", "gpc0", "data.gpc0 300"),
        ("usual_names", "hello", "gpc0", "data.gpc0 300"),
        ("ps/own", "192.0.2.3", "gpc0", "data.gpc0 300"),
    ];
    for (from, to, last) in [(one, two, "2"), (two, one, "3")] {
        for (table, key, name, data) in all {
            let key = format!("{}{last}", &key[..key.len() - 1]);
            from.set(table, &key, data);
            to.keeps(table, &key, (name, "300"));
            assert_eq!(from.entry(table, &key), to.entry(table, &key), "{table}");
        }
        // Each counts one request of the same client. The second counts behind what it has heard of the
        // first: if both counted at once, each would take the other's count for the newer one.
        assert_eq!(status_of(from.web), Ok(200));
        let entry = |peer: &Peer| peer.entry("ips", "127.0.0.1").unwrap_or_default();
        until(|| !entry(from).is_empty() && entry(from) == entry(to));
    }
}

#[test]
fn two_processes_know_what_either_counts() {
    let (one, two) = two();
    let one = one.manylane();
    one.set("ips", "192.0.2.77", "data.gpc0 7");
    let two = two.manylane();
    // A peer that starts later requests everything.
    two.keeps("ips", "192.0.2.77", ("gpc0", "7"));
    share(&one, &two);
    // Only requests create binary keys.
    request(one.web, "/data");
    until(|| one.ask("show table data").contains("used:1"));
    let key = |peer: &Peer| {
        let shown = peer.ask("show table data");
        shown.split(" key=").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned)
    };
    until(|| key(&two).is_some() && key(&one) == key(&two));
}

/// Options for TLS with certificates of both sides, which `authority` has signed.
fn encrypted(authority: &Authority) -> String {
    let (own, all) = (authority.bundle("peer.pem", &["peer.example"]), authority.file());
    format!(
        "default-bind ssl crt {0} verify required ca-file {1}\n \
         default-server ssl crt {0} verify required verifyhost peer.example ca-file {1}\n",
        own.display(),
        all.display()
    )
}

#[test]
fn peers_speak_tls_with_each_other_and_with_haproxy() {
    let authority = Authority::new();
    let lines = encrypted(&authority);
    for with_haproxy in [false, true] {
        let (at_one, at_two) = (own_address(), own_address());
        let one = Peer::with("one", at_one, &format!("server two {at_two}"), &lines).manylane();
        let two = Peer::with("two", at_two, &format!("server one {at_one}"), &lines);
        let two = match with_haproxy {
            false => two.manylane(),
            true => match two.haproxy() {
                Some(two) => two,
                None => return no_haproxy(),
            },
        };
        share(&one, &two);
        // Who speaks plain TCP, or has another certificate, is not heard.
        let mut plain = common::connect(at_one);
        let _ = plain.write_all(b"HAProxyS 2.1\none\ntwo 1 1\n");
        assert!(!common::read_all(&mut plain).contains("200"), "it is no TLS");
        let stranger = Authority::new();
        let certificate = stranger.bundle("peer.pem", &["peer.example"]);
        let (port, file) = (at_one.to_string(), certificate.display().to_string());
        let output = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &port, "-quiet", "-cert", &file, "-key", &file])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success(), "a certificate of another authority");
        one.is_connected();
        // After a reload the connection is made again.
        one.set("ips", "192.0.2.9", "data.gpc0 1");
        assert!(one.ask("reload").contains("Reloaded"));
        one.set("ips", "192.0.2.9", "data.gpc0 9");
        two.keeps("ips", "192.0.2.9", ("gpc0", "9"));
    }
}

/// A reload takes new certificates for connections to come, though the section goes on.
#[test]
fn peers_show_new_certificates_after_a_reload() {
    let authority = Authority::new();
    let lines = encrypted(&authority);
    let at = own_address();
    let one = Peer::with("one", at, "", &lines).manylane();
    let shown = || {
        let output = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &at.to_string(), "-showcerts"])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, certificate) = text.split_once("-----BEGIN CERTIFICATE-----").expect("one is shown");
        certificate.split_once("-----END").unwrap().0.to_owned()
    };
    let before = shown();
    assert_eq!(shown(), before);
    authority.bundle("peer.pem", &["peer.example"]); // another key in the same file
    assert!(one.ask("reload").contains("Reloaded"));
    until(|| shown() != before);
}

/// Each key goes to the peer whose part it is in, the same one that HAProxy chooses.
#[test]
fn keys_are_divided_among_peers_as_haproxy_divides_them() {
    let keys = |number: usize| {
        [
            ("ips", format!("192.0.2.{number}")),
            ("ip6s", format!("2001:db8::{number}")),
            ("numbers", number.to_string()),
            ("names", format!("name{number}")),
        ]
    };
    let divide = |start: &dyn Fn(Peer) -> Option<Peer>| {
        let at = [own_address(), own_address(), own_address()];
        let others = format!("server two {} shard 1\n server three {} shard 2", at[1], at[2]);
        let one = start(Peer::with("one", at[0], &others, "shards 2\n"))?;
        let two = Peer::with("two", at[1], &format!("server one {}", at[0]), "").manylane();
        let three = Peer::with("three", at[2], &format!("server one {}", at[0]), "").manylane();
        until(|| one.ask("show info").contains("ConnectedPeers: 2"));
        let mut found = Vec::new();
        for (table, key) in (1..=8).flat_map(keys) {
            one.set(table, &key, "data.gpc0 1");
            let has = |peer: &Peer| peer.entry(table, &key).is_some();
            until(|| has(&two) || has(&three));
            let part = if has(&two) { 1 } else { 2 };
            found.push((table, key, part));
        }
        let both = |(table, key, _): &(&str, String, i32)| {
            two.entry(table, key).is_some() && three.entry(table, key).is_some()
        };
        assert!(!found.iter().any(both), "each key has one part");
        assert!([1, 2].iter().all(|shard| found.iter().any(|(.., of)| of == shard)), "both have some");
        Some(found)
    };
    let ours = divide(&|peer| Some(peer.manylane()));
    match divide(&|peer| peer.haproxy()) {
        None => no_haproxy(),
        theirs => assert_eq!(ours, theirs),
    }
}

/// Returns the answer to a request, which is 200.
fn request(address: SocketAddr, path: &str) -> String {
    let mut client = common::connect(address);
    client
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let answer = common::read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[test]
fn a_process_and_haproxy_know_what_either_counts() {
    for manylane_first in [true, false] {
        let (one, two) = two();
        let (manylane, haproxy) = if manylane_first {
            let manylane = one.manylane();
            manylane.set("ips", "192.0.2.77", "data.gpc0 7");
            let Some(haproxy) = two.haproxy() else { return no_haproxy() };
            haproxy.keeps("ips", "192.0.2.77", ("gpc0", "7"));
            (manylane, haproxy)
        } else {
            let Some(haproxy) = two.haproxy() else { return no_haproxy() };
            haproxy.set("ips", "192.0.2.77", "data.gpc0 7");
            let manylane = one.manylane();
            manylane.keeps("ips", "192.0.2.77", ("gpc0", "7"));
            (manylane, haproxy)
        };
        share(&manylane, &haproxy);
        // Reports may be older than the tables.
        until(|| {
            let shown = manylane.ask("show peers ps");
            let parts = ["id=two(remote,active)", "app_state=RUNNING", "id=ps/own"];
            parts.iter().all(|part| shown.contains(part))
        });
        // HAProxy acknowledges updates.
        until(|| {
            let shown = manylane.ask("show peers");
            let remote = shown.split("id=two").nth(1).unwrap_or_default();
            let names = remote.lines().find(|line| line.contains("last_acked=") && !line.contains("acked=0"));
            names.is_some()
        });
    }
}

/// A table of chosen servers, copied to another table, in a process and HAProxy whose servers have their ids
/// the other way round. Both find the servers of the other's entries by their names.
#[test]
fn servers_that_haproxy_or_a_process_has_chosen_are_known_by_their_names() {
    let stuck = |peer: Peer, servers: [&str; 2]| {
        let web = own_address();
        let [first, second] = servers.map(|name| format!("server {name} {}", peer.web));
        let config = format!(
            "{}backend stuck\n stick on url\n {first}\n {second}\n\
                 stick-table type string len 20 size 1k expire 10m peers ps write-to copy \
                     store server_id,gpt0,gpc0,http_fail_cnt\n\
                 http-response set-header x-server %s\n\
             backend copy\n stick-table type string len 20 size 1k expire 10m \
                 store server_id,server_key,gpt0,gpc0\n\
             frontend w\n bind {web}\n default_backend stuck\n",
            peer.config
        );
        (web, Peer { config, ..peer })
    };
    let (one, two) = two();
    let (at_one, one) = stuck(one, ["one", "two"]);
    let (at_two, two) = stuck(two, ["two", "one"]);
    let one = one.manylane();
    let Some(two) = two.haproxy() else { return no_haproxy() };
    one.is_connected();
    let server = |web: SocketAddr, path: &str| {
        let answer = request(web, path);
        answer.split("x-server: ").nth(1).and_then(|rest| rest.lines().next()).map(str::to_owned)
    };
    let two_ways = [(&one, at_one, &two, at_two, "one"), (&two, at_two, &one, at_one, "two")];
    for (from, web, to, other_web, name) in two_ways {
        for key in 0..6 {
            let path = format!("/{name}{key}");
            let chosen = server(web, &path);
            assert!(chosen.is_some());
            from.keeps("stuck", &path, ("server_key", chosen.as_deref().unwrap_or_default()));
            from.set("stuck", &path, "data.gpc0 7 data.gpt0 8");
            to.keeps("stuck", &path, ("gpc0", "7"));
            assert_eq!(from.entry("stuck", &path), to.entry("stuck", &path));
            let mut copied = to.entry("stuck", &path).unwrap_or_default();
            copied.remove("http_fail_cnt");
            copied.insert("gpc0".into(), "0".into());
            until(|| to.entry("copy", &path).as_ref() == Some(&copied));
            assert_eq!(from.entry("copy", &path), None, "only what comes from peers is copied");
            assert_eq!(server(other_web, &path), chosen);
        }
    }
}

fn no_haproxy() {
    println!("There is no HAProxy 3.2: not compared");
}

/// A killed process gets everything from its peer again, including changes made meanwhile.
fn is_taught_again(one: Peer, two: Peer, start: impl Fn(Peer) -> Peer) {
    let one = one.manylane();
    let two = start(two);
    one.is_connected();
    two.set("ips", "192.0.2.1", "data.gpc0 1");
    one.keeps("ips", "192.0.2.1", ("gpc0", "1"));
    one.set("ips", "192.0.2.2", "data.gpc0 2");
    two.keeps("ips", "192.0.2.2", ("gpc0", "2"));
    let (name, own) = (two.name, two.own);
    drop(two); // killed
    one.set("ips", "192.0.2.3", "data.gpc0 3");
    let two = start(Peer::new(name, own, ("one", one.own)));
    // Its own counts, earlier updates, and what it has missed.
    for (key, number) in [("192.0.2.1", "1"), ("192.0.2.2", "2"), ("192.0.2.3", "3")] {
        two.keeps("ips", key, ("gpc0", number));
    }
    two.set("ips", "192.0.2.4", "data.gpc0 4");
    one.keeps("ips", "192.0.2.4", ("gpc0", "4"));
}

#[test]
fn a_process_that_was_killed_is_sent_all() {
    let (one, two) = two();
    is_taught_again(one, two, Peer::manylane);
}

#[test]
fn haproxy_that_was_killed_is_sent_all() {
    if Haproxy::program().is_none() {
        return no_haproxy();
    }
    let (one, two) = two();
    is_taught_again(one, two, |peer| peer.haproxy().unwrap());
}

/// Relays connections to an address, and can cut them.
struct Relay {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::<Mutex<Vec<TcpStream>>>::default();
        let all = streams.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(target) else { continue };
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                all.lock().unwrap().extend([client, server]);
            }
        });
        Self { address, streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Cuts all connections between a process and its peer, several times. Both continue where they were.
fn continues_after_cuts(start: impl Fn(Peer) -> Peer) {
    let (one, two) = (own_address(), own_address());
    let (to_one, to_two) = (Relay::to(one), Relay::to(two));
    let one = Peer::new("one", one, ("two", to_two.address)).manylane();
    let two = start(Peer::new("two", two, ("one", to_one.address)));
    for round in 1..=3 {
        one.is_connected();
        two.is_connected();
        to_one.cut();
        to_two.cut();
        let number = round.to_string();
        // Other keys each round: HAProxy asks for all entries again, and takes older values of its own.
        for (from, to, kind) in [(&one, &two, 1), (&two, &one, 2)] {
            let key = format!("192.0.2.{kind}{round}");
            from.set("ips", &key, &format!("data.gpc0 {number}"));
            to.keeps("ips", &key, ("gpc0", &number));
        }
    }
}

#[test]
fn connections_that_are_lost_begin_again_where_they_were() {
    continues_after_cuts(Peer::manylane);
}

#[test]
fn connections_to_haproxy_that_are_lost_begin_again_where_they_were() {
    if Haproxy::program().is_none() {
        return no_haproxy();
    }
    continues_after_cuts(|peer| peer.haproxy().unwrap());
}

#[test]
fn a_peer_that_talks_rubbish_is_informed_and_does_no_harm() {
    let (own, other) = (own_address(), common::nobody());
    let one = Peer::new("one", own, ("two", other)).manylane();
    let say = |bytes: &[u8]| {
        let mut client = common::connect(own);
        client.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        answer
    };
    assert_eq!(say(b"GET / HTTP/1.1\r\n\r\n"), b"501\n");
    assert_eq!(say(b"HAProxyS 3.0\none\ntwo 1 1\n"), b"502\n");
    assert_eq!(say(b"HAProxyS 2.1\nsomebody\ntwo 1 1\n"), b"503\n");
    assert_eq!(say(b"HAProxyS 2.1\none\nsomebody 1 1\n"), b"504\n");
    assert_eq!(say(&vec![b'x'; 2000]), b"501\n");
    let hello = b"HAProxyS 2.1\none\ntwo 1 1\n";
    // The answer may contain a resync request, so only its beginning and end are compared.
    let reported = |bytes: &[u8], end: &[u8]| {
        let answer = say(&[hello, bytes].concat());
        assert!(answer.starts_with(b"200\n"), "{answer:?}");
        assert!(answer.ends_with(end), "{answer:?}");
    };
    reported(b"\x0a\x80\xff\xff\xff\x7f", b"\x01\x01"); // exceeds the limit
    reported(b"\x0a\x82\x03\x01\x09x", b"\x01\x00"); // an incomplete name
    // An update without its key.
    reported(b"\x0a\x82\x0b\x01\x03ips\x04\x04\x04\xf0\x97\x1c\x0a\x80\x04\x00\x00\x00\x01", b"\x01\x00");
    let mut rest = vec![0x55; 100_000];
    rest.splice(0..0, *hello);
    assert!(say(&rest).starts_with(b"200\n"));
    until(|| {
        let shown = one.ask("show peers");
        let errors = shown.split("proto_err=").nth(2).and_then(|rest| rest.split(' ').next());
        errors.is_some_and(|errors| errors.parse::<u32>().is_ok_and(|errors| errors >= 3))
    });
    one.set("ips", "192.0.2.1", "data.gpc0 1");
    assert_eq!(status_of(one.web), Ok(200));
}

/// Of connections without a greeting 64 are kept: another closes the oldest, and a peer gets in at once.
#[test]
fn strangers_keep_no_peer_out() {
    let own = own_address();
    let _one = Peer::new("one", own, ("two", common::nobody())).manylane();
    let mut strangers: Vec<TcpStream> = (0..64).map(|_| common::connect(own)).collect();
    let mut another = common::connect(own);
    assert_eq!(common::end_of(&mut strangers[0]), Ok(()), "the oldest is closed");
    strangers[0] = another.try_clone().expect("there are descriptors");
    for stranger in &mut strangers {
        stranger.set_nonblocking(true).unwrap();
        let waits = stranger.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(waits, Err(std::io::ErrorKind::WouldBlock));
    }
    let mut client = common::connect(own);
    let mut answer = [0; 4];
    client.write_all(b"HAProxyS 2.1\none\ntwo 1 1\n").expect("it is open");
    client.read_exact(&mut answer).expect("it is answered");
    assert_eq!(answer, *b"200\n");
    another.set_nonblocking(true).unwrap();
    assert!(another.read(&mut [0]).is_err(), "the youngest stranger is kept");
}

/// A process that takes over gets the tables of the one before.
#[test]
fn entries_go_over_to_the_process_that_takes_over() {
    let one = Peer::new("one", own_address(), ("two", common::nobody())).manylane();
    one.set("ips", "192.0.2.1", "data.gpc0 1");
    one.set("names", "hello", "data.gpc0 2");
    let mut before = one.manylane.expect("it is one");
    let pid = before.pid().to_string();
    let (after, mut said) = Manylane::start_heard(&one.config, &["-V", "-sf", &pid]);
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    std::thread::spawn(move || said.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    let one = Peer { manylane: Some(after), ..one };
    assert_eq!(before.wait().code(), Some(0));
    one.keeps("ips", "192.0.2.1", ("gpc0", "1"));
    one.keeps("names", "hello", ("gpc0", "2"));
}

/// The master tells the worker before to finish, so no word of the command line says that there is one.
#[test]
fn entries_go_over_to_the_next_worker_without_another_peer() {
    let one = Peer::with("one", own_address(), "", "");
    let (mut program, mut said) = Manylane::start_heard(&one.config, &["-W"]);
    let mut hears = |what: &str| while !said.next().unwrap().unwrap().contains(what) {};
    hears("Loading success.");
    for round in 1..=2 {
        let (ip, name, count) = (format!("192.0.2.{round}"), format!("name{round}"), round.to_string());
        one.set("ips", &ip, &format!("data.gpc0 {count}"));
        one.set("names", &name, &format!("data.gpc0 {count}"));
        program.signal(nix::sys::signal::Signal::SIGUSR2);
        hears("Former worker");
        one.keeps("ips", &ip, ("gpc0", &count));
        one.keeps("names", &name, ("gpc0", &count));
        one.keeps("ips", "192.0.2.1", ("gpc0", "1"));
    }
    program.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(program.wait().code(), Some(0));
}

/// After a reload within the process, peers continue where they were.
#[test]
fn peers_stay_in_step_over_a_reload() {
    let (one, two) = two();
    let (one, two) = (one.manylane(), two.manylane());
    one.is_connected();
    for round in 1..=3 {
        let number = round.to_string();
        one.set("ips", "192.0.2.1", &format!("data.gpc0 {number}"));
        let answer = one.ask("reload");
        assert!(answer.contains("Reloaded"), "{answer}");
        two.keeps("ips", "192.0.2.1", ("gpc0", &number));
        two.set("ips", "192.0.2.2", &format!("data.gpc0 {number}"));
        one.keeps("ips", "192.0.2.2", ("gpc0", &number));
    }
}

/// It keeps the tables of others, and serves no clients.
#[test]
fn a_process_with_nothing_but_peers_starts() {
    let (at_one, at_hub) = (own_address(), own_address());
    let one = Peer::new("one", at_one, ("hub", at_hub)).manylane();
    one.set("ips", "192.0.2.1", "data.gpc0 7");
    let hub = format!(
        "global\n nbthread 2\n localpeer hub\npeers ps\n peer hub {at_hub}\n peer one {at_one}\n{TABLES}"
    );
    let folder = Folder::new();
    let file = folder.file("hub.cfg", &hub);
    let checked = |hub: &str| check(hub, &[]).status.code();
    assert_eq!(checked(&hub), Some(0));
    let disabled = hub.replace(" peer hub", " disabled\n peer hub");
    assert_eq!(checked(&disabled), Some(2));
    if let Some(theirs) = Haproxy::program() {
        let mut theirs = std::process::Command::new(theirs);
        assert_eq!(theirs.arg("-c").arg("-f").arg(&file).output().unwrap().status.code(), Some(0));
    }
    let _hub = Manylane::start_ready(&hub);
    one.is_connected();
}

#[test]
fn what_peers_cannot_be_is_reported_at_its_position() {
    for (lines, message) in [
        ("peer one 127.0.0.1:1\n peer two 127.0.0.1:2 weight 1", "of the options of a peer only 'shard'"),
        ("peer one 127.0.0.1:1\n peer two 127.0.0.1:2 ssl verify none sni src", "expects a fixed name"),
        ("bind 127.0.0.1:1 ssl crt /x.pem\n server one", "/x.pem"),
        ("bind 127.0.0.1:1 accept-proxy\n server one", "no proxy stands between peers"),
        ("shards 2\n peer one 127.0.0.1:1\n peer two 127.0.0.1:2 shard 3", "up to that of 'shards', 2"),
        ("peer one 127.0.0.1:1\n peer two 127.0.0.1:2 shard 1", "expects a line 'shards <number>'"),
        ("bind 127.0.0.1:1\n server one\n server two", "peer 'two' expects an address, found none"),
        ("server one", "peers 'ps' expects an address to listen at, found none"),
        ("bind 127.0.0.1:1\n bind 127.0.0.1:2\n server one", "expects one address to listen at, found more"),
        (
            "peer one 127.0.0.1:1\n peer one 127.0.0.1:2",
            "a section expects each peer once, found 'one' again",
        ),
        ("peer one 127.0.0.1", "is an address without a port"),
        ("peer one 127.0.0.1:1\n table t type ip", "'table' expects"),
        ("peer one 127.0.0.1:1\n table t type ip size 1 peers ps", "is shared by its section"),
    ] {
        let config = format!("global\n localpeer one\npeers ps\n {lines}\n{}", DEFAULTS);
        let output = check(&config, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(message), "{lines}: {said}");
    }
    // As in HAProxy: a section without the process itself is not used, with a warning.
    let other =
        format!("global\n localpeer one\npeers ps\n peer two 127.0.0.1:2\n{DEFAULTS}listen l\n bind :1\n");
    let said = String::from_utf8_lossy(&check(&other, &[]).stderr).into_owned();
    assert!(said.contains("none of its peers is named 'one'"), "{said}");
}
