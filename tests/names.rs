//! Names of servers, end to end (R-G9): name servers whose answers change, are wrong or stop; commands. The
//! same steps are run on the installed HAProxy and compared line by line where both behave alike.

use crate::common;

use common::dns::{Dns, Lie};
use common::watch::{Played, Syslog, ask, both, until};
use common::{DEFAULTS, Ended, Folder, Manylane};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sections that query often and wait long for answers: a name server that hangs for a second does not count
/// as silent.
fn section(servers: &[SocketAddr]) -> String {
    let servers: String =
        servers.iter().enumerate().map(|(n, at)| format!(" nameserver dns{} {at}\n", n + 1)).collect();
    format!(
        "resolvers names\n{servers} resolve_retries 2\n timeout retry 1s\n timeout resolve 50ms\n hold valid \
            50ms\n \
         hold nx 0s\n hold refused 0s\n hold other 0s\n hold timeout 60s\n"
    )
}

/// For rules: HAProxy lets them wait for `timeout resolve`, also on a busy machine.
fn patient(servers: &[SocketAddr]) -> String {
    section(servers)
        .replace("timeout resolve 50ms", "timeout resolve 10s")
        .replace("resolve_retries 2", "resolve_retries 1")
        .replace("timeout retry 1s", "timeout retry 2s")
}

fn global(log: &Syslog, socket: &Path) -> String {
    format!(
        "global\n stats socket {} level admin\n log {} local0\n{DEFAULTS} mode http\n log global\nfrontend \
            f\n bind {}\n",
        socket.display(),
        log.address(),
        socket.with_extension("front").display()
    )
}

fn shown(played: &Played, servers: &[(&str, &str)]) -> Vec<String> {
    let state = played.ask("show servers state");
    let rows: Vec<Vec<&str>> = state.lines().map(|line| line.split(' ').collect()).collect();
    servers
        .iter()
        .map(|(backend, server)| {
            let row =
                rows.iter().find(|row| row.len() > 9 && row[1] == *backend && row[3] == *server).unwrap();
            let of_stat = played.columns(backend, server, &["status", "addr", "weight"]);
            // Address, states, weight, name, port, service.
            format!(
                "{backend}/{server} {} {} {} {} {} {} {} {of_stat:?}",
                row[4], row[5], row[6], row[7], row[17], row[18], row[19]
            )
        })
        .collect()
}

fn compare(ours: &[String], theirs: Option<Vec<String>>) {
    let Some(theirs) = theirs else { return };
    for (at, (ours_line, theirs_line)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours_line, theirs_line, "after {:#?}", &theirs[at.saturating_sub(8)..at]);
    }
    assert_eq!(ours.len(), theirs.len(), "{ours:#?} {theirs:#?}");
}

#[test]
fn servers_follow_their_names_as_those_of_haproxy() {
    let dns = Dns::new();
    let config = |log: &Syslog, socket: &Path| {
        dns.code(0);
        for (name, addresses) in
            [("a.test", &["127.0.0.31"][..]), ("both.test", &["127.0.0.40", "::1"]), ("six.test", &["::1"])]
        {
            dns.addresses(name, addresses);
        }
        format!(
            "{}{}backend b\n default-server resolvers names init-addr none\n server s a.test:81 \
                resolve-prefer ipv4\n\
             backend c\n server v4 both.test:82 resolvers names init-addr none resolve-prefer ipv4\n\
             backend d\n server v6 both.test:83 resolvers names init-addr none\n\
             backend e\n server other six.test:84 resolvers names init-addr none resolve-prefer ipv4\n\
             backend f\n server fixed 127.0.0.1:85 resolvers names\n server none no.test:86 init-addr none\n\
             server given no.test:87 init-addr 127.0.0.87\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let all =
        [("b", "s"), ("c", "v4"), ("d", "v6"), ("e", "other"), ("f", "fixed"), ("f", "none"), ("f", "given")];
    let (ours, theirs) = both(config, |played| {
        let settled = |server: (&str, &str), what: &str| {
            until(|| played.columns(server.0, server.1, &["status"]) == [what])
        };
        for server in [("b", "s"), ("c", "v4"), ("d", "v6"), ("e", "other")] {
            settled(server, "no check");
        }
        ["a.test", "both.test", "six.test"].iter().for_each(|name| dns.is_dealt_with(name));
        let mut observed = shown(&played, &all);
        // Lines of the start come in the order of the answers.
        let mut started = Vec::new();
        while started.iter().filter(|line: &&String| line.contains("administratively READY")).count() < 4 {
            started.extend(played.lines("administratively READY"));
        }
        started.sort();
        observed.extend(started);
        let steps: [(&[&str], u8, &str, &str); 6] = [
            (&["127.0.0.32"], 0, "IP changed", "no check"),
            (&["127.0.0.33", "127.0.0.32"], 0, "", "no check"),
            (&[], 0, "b/s is going DOWN", "MAINT (resolution)"),
            (&["127.0.0.34"], 0, "b/s administratively READY", "no check"),
            (&["127.0.0.34"], 5, "b/s is going DOWN", "MAINT (resolution)"),
            (&["127.0.0.35"], 0, "b/s administratively READY", "no check"),
        ];
        for (addresses, code, last, status) in steps {
            dns.addresses_and_code("a.test", addresses, code);
            observed.push(format!("> {addresses:?} {code}"));
            while !last.is_empty() {
                let lines = played.lines("");
                let of_it = lines.iter().filter(|line| line.contains("b/s"));
                observed.extend(of_it.map(|line| line.split(". ").next().unwrap_or_default().to_owned()));
                if lines[0].contains(last) {
                    break;
                }
            }
            settled(("b", "s"), status);
            dns.is_dealt_with("a.test");
            observed.extend(shown(&played, &all[..1]));
        }
        observed
    });
    assert!(
        ours.iter()
            .any(|line| line.starts_with("b/s: IP changed from '(none)' to '127.0.0.31' by 'names/dns1'.")),
        "{ours:#?}"
    );
    assert!(
        ours.iter().any(|line| line.contains("is going DOWN for maintenance (DNS refused status)")),
        "{ours:#?}"
    );
    compare(&ours, theirs);
}

#[test]
fn servers_of_a_backend_do_not_share_an_address_unless_they_may() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.41", "127.0.0.42"]);
    dns.addresses("net.test", &["127.0.0.43", "127.1.0.44"]);
    let config = |log: &Syslog, socket: &Path| {
        let options = "resolvers names init-addr none resolve-prefer ipv4";
        format!(
            "{}{}backend b\n server-template s 3 a.test:81 {options}\nbackend c\n server-template s 3 \
                a.test:81 {options} resolve-opts allow-dup-ip\n\
             backend d\n server s net.test:81 {options} resolve-net 127.1.0.0/16\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let (ours, theirs) = both(config, |played| {
        until(|| ["s1", "s2", "s3"].iter().all(|s| played.columns("c", s, &["status"]) == ["no check"]));
        let mut addresses: Vec<String> =
            ["s1", "s2", "s3"].iter().map(|s| played.columns("b", s, &["addr"]).concat()).collect();
        addresses.sort();
        until(|| played.columns("d", "s", &["status"]) == ["no check"]);
        addresses.extend(played.columns("d", "s", &["addr"]));
        addresses
    });
    assert_eq!(ours, ["", "127.0.0.41:81", "127.0.0.42:81", "127.1.0.44:81"]);
    compare(&ours, theirs);
}

/// Servers at two ports of one address are different servers.
#[test]
fn servers_at_other_ports_do_not_take_each_others_addresses() {
    let dns = Dns::new();
    let config = |log: &Syslog, socket: &Path| {
        dns.addresses("a.test", &["127.0.0.41"]);
        let options = "resolvers names init-addr none resolve-prefer ipv4";
        format!(
            "{}{}backend b\n server-template s 2 a.test:81 {options}\n server x a.test:82 {options} \
                resolve-opts allow-dup-ip\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let (ours, theirs) = both(config, |played| {
        let addresses = || {
            let mut templates = ["s1", "s2"].map(|server| played.columns("b", server, &["addr"]).concat());
            templates.sort();
            [&templates[..], &played.columns("b", "x", &["addr"])].concat()
        };
        until(|| addresses() == ["", "127.0.0.41:81", "127.0.0.41:82"]);
        dns.is_dealt_with("a.test");
        let mut observed = addresses();
        dns.addresses("a.test", &["127.0.0.41", "127.0.0.42"]);
        until(|| addresses()[..2] == ["127.0.0.41:81", "127.0.0.42:81"]);
        dns.is_dealt_with("a.test");
        observed.extend(addresses());
        observed
    });
    assert_eq!(ours[3..], ["127.0.0.41:81", "127.0.0.42:81", "127.0.0.41:82"]);
    compare(&ours, theirs);
}

#[test]
fn an_address_that_an_operator_gave_stays_until_the_answer_is_another_one() {
    let dns = Dns::new();
    let config = |log: &Syslog, socket: &Path| {
        dns.addresses("a.test", &["127.0.0.31", "127.0.0.32"]);
        format!(
            "{}{}backend b\n server n a.test:81 resolvers names init-addr none resolve-prefer ipv4\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let (ours, theirs) = both(config, |played| {
        let address = || played.columns("b", "n", &["addr"]).concat();
        until(|| ["127.0.0.31:81", "127.0.0.32:81"].contains(&&*address()));
        dns.is_dealt_with("a.test");
        played.ask("set server b/n addr 127.0.0.99");
        dns.is_dealt_with("a.test");
        let mut observed = vec![address()];
        dns.addresses("a.test", &["127.0.0.32", "127.0.0.31"]);
        dns.is_dealt_with("a.test");
        observed.push(address());
        dns.addresses("a.test", &["127.0.0.33"]);
        until(|| address() == "127.0.0.33:81");
        observed
    });
    assert_eq!(ours, ["127.0.0.99:81", "127.0.0.99:81"]);
    compare(&ours, theirs);
}

#[test]
fn counters_of_name_servers_begin_anew_when_they_are_cleared() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.31"]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("cli");
    let section = section(&[dns.address()]).replace("timeout resolve 50ms", "timeout resolve 1h");
    let servers = "backend b\n server n a.test:81 resolvers names init-addr none resolve-prefer ipv4\n";
    let _program = Manylane::start_ready(&format!("{}{section}{servers}", global(&log, &socket)));
    let valid = |count: u8| {
        ask(&socket, "show resolvers")
            .lines()
            .any(|line| line.split_whitespace().eq(["valid:", &count.to_string()]))
    };
    until(|| valid(1));
    ask(&socket, "clear counters all");
    assert!(valid(0), "{}", ask(&socket, "show resolvers"));
}

/// `add server` and a reload create a generation, which continues the queries of the one before.
#[test]
fn sections_go_on_where_they_are_when_servers_come_and_the_file_is_read_again() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.31"]);
    dns.addresses("rule.test", &["127.0.0.32"]);
    dns.service("_s._tcp.test", &[(1, 8001, "s.test", Some("127.0.0.51"))]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let (socket, web) = (folder.0.join("cli"), folder.0.join("web"));
    let section = section(&[dns.address()])
        .replace("resolve_retries 2", "resolve_retries 20")
        .replace("timeout resolve 50ms", "timeout resolve 1h")
        .replace("hold valid 50ms", "hold valid 1h");
    let _program = Manylane::start_ready(&format!(
        "{}{section}listen l\n bind {}\n http-request do-resolve(txn.a,names,ipv4) hdr(host)\n \
         http-request return status 200 content-type text/plain lf-string \"%[var(txn.a)]\"\n\
         backend b\n balance roundrobin\n server n a.test:81 resolvers names init-addr none resolve-prefer \
         ipv4\n \
         server-template t 1 _s._tcp.test resolvers names\n",
        global(&log, &socket),
        web.display()
    ));
    let played = Played { log, socket };
    let addresses = || [played.columns("b", "n", &["addr"]), played.columns("b", "t1", &["addr"])].concat();
    until(|| addresses() == ["127.0.0.31:81", "127.0.0.51:8001"]);
    assert_eq!(get(&web, "rule.test"), "127.0.0.32");
    let requested = || ["a.test", "_s._tcp.test", "rule.test"].map(|name| dns.queries(name));
    let before = requested();
    for (command, answer) in
        [("add server b/new 127.0.0.9:80", "New server registered"), ("reload", "Reloaded")]
    {
        // A rule that waits meanwhile still gets its address.
        let name = if command == "reload" { "late2.test" } else { "late1.test" };
        dns.addresses(name, &["127.0.0.33"]);
        dns.lie(Lie::Silent);
        let waits = std::thread::spawn({
            let web = web.clone();
            move || get(&web, name)
        });
        until(|| dns.queries(name) > 0);
        let said = played.ask(command);
        assert!(said.contains(answer), "{said}");
        dns.lie(Lie::None);
        assert_eq!(waits.join().unwrap(), "127.0.0.33", "{command}");
        // Another query by the new generation.
        let next = format!("next-{name}");
        dns.addresses(&next, &["127.0.0.34"]);
        assert_eq!(get(&web, &next), "127.0.0.34", "{command}");
        assert_eq!(get(&web, "rule.test"), "127.0.0.32", "{command}");
        assert_eq!(requested(), before, "{command}");
        assert_eq!(addresses(), ["127.0.0.31:81", "127.0.0.51:8001"]);
    }
}

/// R-G8: state files of both programs have names that a command or a service has set; both programs use them
/// before any name server has answered.
#[test]
fn servers_have_the_names_of_a_state_file_of_either_program() {
    let dns = Dns::new();
    let folder = Folder::new();
    let config = |file: Option<&Path>, log: &Syslog, socket: &Path| {
        dns.addresses("a.test", &["127.0.0.31"]);
        dns.addresses("b.test", &["127.0.0.32"]);
        dns.service("_s._tcp.test", &[(1, 8001, "s.test", Some("127.0.0.51"))]);
        let (own, load) = match file {
            Some(file) => (
                format!("global\n server-state-file {}\n", file.display()),
                " load-server-state-from-file global\n",
            ),
            None => (String::new(), ""),
        };
        format!(
            "{own}{}{}backend b\n{load} server n a.test:81 resolvers names init-addr last,none \
                resolve-prefer ipv4\n \
             server-template t 2 _s._tcp.test resolvers names resolve-prefer ipv4\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let all = [("b", "n"), ("b", "t1"), ("b", "t2")];
    let (ours, theirs) = both(
        |log, socket| config(None, log, socket),
        |played| {
            until(|| played.columns("b", "n", &["addr"]) == ["127.0.0.31:81"]);
            played.ask("set server b/n fqdn b.test");
            until(|| played.columns("b", "n", &["addr"]) == ["127.0.0.32:81"]);
            until(|| played.columns("b", "t1", &["status", "addr"]) == ["no check", "127.0.0.51:8001"]);
            played.ask("show servers state")
        },
    );
    for dumped in [Some(ours), theirs] {
        let Some(dumped) = dumped else { continue };
        let file = folder.file("states", &dumped);
        dns.lie(Lie::Silent);
        let (ours, theirs) =
            both(|log, socket| config(Some(&file), log, socket), |played| shown(&played, &all));
        dns.lie(Lie::None);
        let n: Vec<&str> = ours[0].split(' ').collect();
        assert_eq!((n[1], n[5]), ("127.0.0.32", "b.test"), "{ours:#?} {dumped}");
        assert!(
            ours[1].starts_with("b/t1 127.0.0.51 2 64 1 s.test 8001 _s._tcp.test "),
            "{ours:#?} {dumped}"
        );
        // HAProxy forgets with the next start that a command has set the name.
        let same = |lines: Vec<String>| {
            lines.iter().map(|line| line.replacen(" 2 64 1 ", " 2 0 1 ", 1)).collect::<Vec<_>>()
        };
        compare(&same(ours), theirs.map(same));
    }
}

#[test]
fn a_template_is_filled_emptied_and_moved_as_the_records_of_its_service_change() {
    let dns = Dns::new();
    let name = "_http._tcp.x.test";
    let a = (257, 8001, "a.test", Some("127.0.0.51"));
    let b = (1, 8002, "b.test", Some("127.0.0.52"));
    let config = |log: &Syslog, socket: &Path| {
        dns.service(name, &[a]);
        dns.addresses("c.test", &["127.0.0.53"]);
        format!(
            "{}{}backend b\n server-template s 2 {name} resolvers names resolve-prefer ipv4\n\
             backend c\n server-template s 1 {name} resolvers names resolve-prefer ipv4 resolve-opts \
             ignore-weight weight 7\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let all = [("b", "s1"), ("b", "s2"), ("c", "s1")];
    let (ours, theirs) = both(config, |played| {
        let address = |server: &str, port: &str| {
            let wanted = if port.is_empty() { String::new() } else { port.to_owned() };
            until(|| played.columns("b", server, &["addr"]).concat() == wanted);
        };
        let mut observed = Vec::new();
        let mut next = |what: &str| {
            dns.is_dealt_with(name);
            observed.push(format!("> {what}"));
            observed.extend(shown(&played, &all[..2]));
        };
        address("s1", "127.0.0.51:8001");
        next("one");
        dns.service(name, &[a, b]);
        address("s2", "127.0.0.52:8002");
        next("two");
        dns.service(name, &[(1025, a.1, a.2, a.3), b]);
        until(|| played.columns("b", "s1", &["weight"]) == ["5"]);
        next("weight");
        dns.service(name, &[b]);
        address("s1", "");
        next("one left");
        // The answer has no address of the target, so it is queried.
        dns.service(name, &[b, (512, 8003, "c.test", None)]);
        address("s1", "127.0.0.53:8003");
        until(|| played.columns("b", "s1", &["status"]) == ["no check"]);
        next("another took its place");
        until(|| played.columns("c", "s1", &["status"]) == ["no check"]);
        observed.push(played.columns("c", "s1", &["weight"]).concat());
        observed
    });
    assert_eq!(ours.last().unwrap(), "7");
    compare(&ours, theirs);
}

/// R-G9. HAProxy 3.2.26 takes the servers out at each of the three codes, too. A record that comes back takes
/// the first free server here; there, of two servers, it took the other one each time.
#[test]
fn servers_of_a_service_that_is_gone_are_gone_and_come_back() {
    let dns = Dns::new();
    let name = "_http._tcp.x.test";
    dns.service(name, &[(1, 8001, "a.test", Some("127.0.0.51"))]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("cli");
    let servers = format!("backend b\n server-template s 2 {name} resolvers names\n");
    let _program =
        Manylane::start_ready(&format!("{}{}{servers}", global(&log, &socket), section(&[dns.address()])));
    let played = Played { log, socket };
    for code in [3, 5, 2] {
        until(|| played.columns("b", "s1", &["addr"]) == ["127.0.0.51:8001"]);
        dns.code(code);
        played.log.wait("Server b/s1 is going DOWN for maintenance (entry removed from SRV record)");
        until(|| played.columns("b", "s1", &["status", "addr"]) == ["MAINT (resolution)", ""]);
        dns.code(0);
    }
    until(|| played.columns("b", "s1", &["addr"]) == ["127.0.0.51:8001"]);
}

#[test]
fn servers_whose_name_servers_are_silent_are_gone_after_their_time() {
    let dns = Dns::new();
    let name = "_http._tcp.x.test";
    dns.service(name, &[(1, 8001, "a.test", Some("127.0.0.51"))]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("cli");
    let servers = format!("backend b\n server-template s 2 {name} resolvers names\n");
    let section = section(&[dns.address()]).replace("hold timeout 60s", "hold timeout 0s");
    let _program = Manylane::start_ready(&format!("{}{section}{servers}", global(&log, &socket)));
    log.wait("b/s1: IP changed from '(none)' to '127.0.0.51'");
    dns.lie(Lie::Silent);
    log.wait("Server b/s1 is going DOWN for maintenance (entry removed from SRV record)");
}

#[test]
fn lies_change_nothing_and_cut_answers_come_over_tcp() {
    for (lie, counter) in [
        (Lie::Silent, "timeout"),
        (Lie::Garbage, "invalid"),
        (Lie::OtherId, "outdated"),
        (Lie::OtherQuestion, "invalid"),
        (Lie::AlwaysTruncated, "truncated"),
        (Lie::Counts, "invalid"),
        (Lie::Loop, "invalid"),
        (Lie::First, "invalid"),
        (Lie::Truncated, "truncated"),
        (Lie::Full, "truncated"),
    ] {
        let (liar, honest) = (Dns::new(), Dns::new());
        liar.lie(lie);
        liar.addresses("a.test", &["127.0.0.66"]);
        let (log, folder) = (Syslog::new(), Folder::new());
        let socket = folder.0.join("cli");
        let servers = "backend b\n server s a.test:81 resolvers names init-addr none resolve-prefer ipv4\n";
        // A late answer does no harm: the next query is enough.
        let name_servers =
            section(&[liar.address(), honest.address()]).replace("timeout retry 1s", "timeout retry 100ms");
        let _program = Manylane::start_ready(&format!("{}{name_servers}{servers}", global(&log, &socket)));
        let played = Played { log, socket };
        let count = |what: &str| -> u64 {
            let answer = played.ask("show resolvers names");
            let own = answer
                .lines()
                .find_map(|line| line.trim().strip_prefix(&format!("{what}:")).map(str::to_owned));
            own.unwrap().trim().parse().unwrap()
        };
        until(|| count(counter) > 0);
        let address = || played.columns("b", "s", &["addr"]).concat();
        match lie {
            Lie::First | Lie::Truncated => until(|| address() == "127.0.0.66:81"),
            Lie::Full => until(|| address().starts_with("127.64.")),
            _ => {
                // The other server says that the name does not exist.
                assert_eq!(address(), "", "{lie:?}");
                honest.addresses("a.test", &["127.0.0.1"]);
                until(|| address() == "127.0.0.1:81");
            }
        }
    }
}

/// Response to a request over a Unix socket.
fn get(socket: &Path, host: &str) -> String {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    client
        .write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").map_or(answer.clone(), |(_, body)| body.to_owned())
}

/// Starts servers at 127.0.0.2 and 127.0.0.3 that respond with `first` and `second`; returns their common
/// port.
fn two_addresses() -> u16 {
    let serve = |listener: TcpListener, name: &'static str| {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
                        let _ = stream.write_all(
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len())
                                .as_bytes(),
                        );
                    }
                });
            }
        });
    };
    let (first, second) = loop {
        let first = TcpListener::bind("127.0.0.2:0").unwrap();
        if let Ok(second) = TcpListener::bind(("127.0.0.3", first.local_addr().unwrap().port())) {
            break (first, second);
        }
    };
    let port = first.local_addr().unwrap().port();
    serve(first, "first");
    serve(second, "second");
    port
}

#[test]
fn requests_go_where_the_name_leads_and_not_where_it_led() {
    let port = two_addresses();
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.2"]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let (socket, web) = (folder.0.join("cli"), folder.0.join("web"));
    let _program = Manylane::start_ready(&format!(
        "{}{}listen l\n bind {}\n http-reuse always\n server s a.test:{port} resolvers names init-addr none \
            check inter 1s fastinter 20ms\n\
         backend x\n server none no.test:82 init-addr none\n",
        global(&log, &socket),
        section(&[dns.address()]),
        web.display()
    ));
    let played = Played { log, socket };
    until(|| played.columns("l", "s", &["status", "check_status"]) == ["UP", "L4OK"]);
    assert_eq!((get(&web, "x"), get(&web, "x")), ("first".into(), "first".into()));
    dns.addresses("a.test", &["127.0.0.3"]);
    played.log.wait("IP changed from '127.0.0.2' to '127.0.0.3'");
    until(|| get(&web, "x") == "second");
    for _ in 0..10 {
        assert_eq!(get(&web, "x"), "second", "an idle connection leads to where it was");
    }
    // A server without an address can get one from a command; HAProxy leaves that to the file.
    assert_eq!(
        played.ask("set server x/none addr 127.0.0.82").trim(),
        "IP changed from '(none)' to '127.0.0.82' by 'stats socket command'"
    );
    assert_eq!(played.columns("x", "none", &["status", "addr"]), ["no check", "127.0.0.82:82"]);
    // Checks use the new address, where nothing listens.
    dns.addresses("a.test", &["127.0.0.4"]);
    played.log.wait("Server l/s is DOWN");
    assert_eq!(
        played.ask("set server l/s addr 127.0.0.2").trim(),
        "IP changed from '127.0.0.4' to '127.0.0.2' by 'stats socket command'"
    );
}

/// Sends requests for as many names, until the name server has as many questions as may be open.
fn ask_for_many(dns: &Dns, web: &Path, count: usize) -> Vec<UnixStream> {
    let name = |n: usize| format!("n{n}.evil");
    let ask = |n: usize| {
        let mut client = UnixStream::connect(web).unwrap();
        client.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", name(n)).as_bytes()).unwrap();
        client
    };
    let clients = (0..count).map(ask).collect();
    until(|| (0..count).filter(|n| dns.queries(&name(*n)) > 0).count() >= 256);
    clients
}

/// Clients choose the names that a rule queries, and perhaps how long the name servers of these are silent.
#[test]
fn questions_of_rules_do_not_keep_servers_from_their_addresses() {
    let dns = Dns::new();
    dns.lie(Lie::Unsaid);
    dns.addresses("a.test", &["127.0.0.31"]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let (socket, web) = (folder.0.join("cli"), folder.0.join("web"));
    let section = section(&[dns.address()]).replace("timeout retry 1s", "timeout retry 300s");
    let _program = Manylane::start_ready(&format!(
        "{}{section}listen l\n bind {}\n http-request do-resolve(txn.a,names,ipv4) hdr(host)\n \
         server n a.test:81 resolvers names init-addr none\n",
        global(&log, &socket),
        web.display()
    ));
    let _clients = ask_for_many(&dns, &web, 300);
    dns.is_dealt_with("a.test");
}

/// Names without an answer free their places for waiting ones, however long `timeout retry` is.
#[test]
fn names_without_an_answer_do_not_keep_other_rules_from_theirs() {
    let dns = Dns::new();
    dns.lie(Lie::Unsaid);
    dns.addresses("a.test", &["127.0.0.31"]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let (socket, web) = (folder.0.join("cli"), folder.0.join("web"));
    let section = section(&[dns.address()]).replace("timeout retry 1s", "timeout retry 300s");
    let _program = Manylane::start_ready(&format!(
        "{}{section}listen l\n bind {}\n http-request do-resolve(txn.a,names,ipv4) hdr(host)\n \
         http-request return status 200 content-type text/plain lf-string \"%[var(txn.a)]\"\n",
        global(&log, &socket),
        web.display()
    ));
    let _clients = ask_for_many(&dns, &web, 600);
    assert_eq!(get(&web, "a.test"), "127.0.0.31");
}

#[test]
fn rules_ask_for_addresses_as_those_of_haproxy() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.71"]);
    dns.addresses("six.test", &["::7"]);
    let config = |log: &Syslog, socket: &Path| {
        format!(
            "{}{}listen l\n bind {}\n http-request do-resolve(txn.a,names,ipv4) hdr(host),host_only\n \
                http-request do-resolve(txn.b,names) hdr(host),host_only\n \
             http-request return status 200 content-type text/plain lf-string \"%[var(txn.a)] \
             %[var(txn.b)]\"\n",
            global(log, socket),
            patient(&[dns.address()]),
            socket.with_extension("web").display()
        )
    };
    let (ours, theirs) = both(config, |played| {
        let web = played.socket.with_extension("web");
        until(|| UnixStream::connect(&web).is_ok());
        ["a.test", "a.test:80", "six.test", "no.test", "a..b"]
            .map(|host| format!("{host}: {}", get(&web, host)))
            .to_vec()
    });
    assert_eq!(
        ours,
        [
            "a.test: 127.0.0.71 127.0.0.71",
            "a.test:80: 127.0.0.71 127.0.0.71",
            "six.test: ::7 ::7",
            "no.test:  ",
            "a..b:  "
        ]
    );
    compare(&ours, theirs);
}

/// Behind an answer the list continues with its next rule; it does not begin again.
#[test]
fn rules_for_bytes_ask_for_addresses_as_those_of_haproxy() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.2"]);
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"there");
        }
    });
    let config = |log: &Syslog, socket: &Path| {
        format!(
            "{}{}listen l\n mode tcp\n bind {}\n tcp-request inspect-delay 30s\n \
             tcp-request content reject if {{ var(sess.a) -m found }}\n \
             tcp-request content do-resolve(sess.a,names,ipv4) req.payload(0,6) if {{ req.len ge 6 }}\n \
             tcp-request content reject if !{{ var(sess.a) -m found }}\n \
             tcp-request content set-dst var(sess.a)\n server s 0.0.0.0:{port}\n",
            global(log, socket),
            patient(&[dns.address()]),
            socket.with_extension("web").display()
        )
    };
    let (ours, theirs) = both(config, |played| {
        let web = played.socket.with_extension("web");
        until(|| UnixStream::connect(&web).is_ok());
        ["a.test", "b.test", "a..b.c"]
            .map(|name| {
                let mut client = UnixStream::connect(&web).unwrap();
                client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
                client.write_all(name.as_bytes()).unwrap();
                let mut answer = String::new();
                let _ = client.read_to_string(&mut answer);
                format!("{name}: {answer}")
            })
            .to_vec()
    });
    assert_eq!(ours, ["a.test: there", "b.test: ", "a..b.c: "]);
    compare(&ours, theirs);
}

/// The same rules in HTTP mode, where they read the request.
#[test]
fn rules_for_contents_of_requests_ask_for_addresses_as_those_of_haproxy() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.71"]);
    let config = |log: &Syslog, socket: &Path| {
        format!(
            "{}{}frontend l\n bind {}\n tcp-request inspect-delay 30s\n tcp-request content \
                do-resolve(txn.a,names,ipv4) hdr(host),host_only\n \
             tcp-request content reject if {{ hdr(host) -m beg bad }}\n default_backend own\nbackend own\n \
             tcp-request inspect-delay 30s\n \
             tcp-request content do-resolve(txn.b,names,ipv4) hdr(host),host_only\n \
             http-request return status 200 content-type text/plain lf-string \"%[var(txn.a)] \
             %[var(txn.b)]\"\n",
            global(log, socket),
            patient(&[dns.address()]),
            socket.with_extension("web").display()
        )
    };
    let (ours, theirs) = both(config, |played| {
        let web = played.socket.with_extension("web");
        until(|| UnixStream::connect(&web).is_ok());
        ["a.test", "no.test", "a..b"].map(|host| format!("{host}: {}", get(&web, host))).to_vec()
    });
    assert_eq!(ours, ["a.test: 127.0.0.71 127.0.0.71", "no.test:  ", "a..b:  "]);
    compare(&ours, theirs);
}

#[test]
fn an_operator_moves_and_renames_servers_as_those_of_haproxy() {
    let dns = Dns::new();
    let config = |log: &Syslog, socket: &Path| {
        dns.addresses("a.test", &["127.0.0.31"]);
        dns.addresses("b.test", &["127.0.0.32"]);
        dns.service("_s._tcp.test", &[]);
        format!(
            "{}{}backend b\n server s 127.0.0.9:80\n server n a.test:81 resolvers names init-addr none \
                resolve-prefer ipv4\n server-template t 1 _s._tcp.test resolvers names\n",
            global(log, socket),
            section(&[dns.address()])
        )
    };
    let (ours, theirs) = both(config, |played| {
        until(|| played.columns("b", "n", &["addr"]) == ["127.0.0.31:81"]);
        let mut observed = Vec::new();
        for command in [
            "set server b/s addr 127.0.0.98",
            "set server b/s addr 127.0.0.98",
            "set server b/s addr 127.0.0.97 port 8080",
            "set server b/s addr 127.0.0.97 port 8080",
            "set server b/s addr 127.0.0.97 port x",
            "set server b/s addr foo",
            "set server b/s addr",
            "set server b/s addr ::1",
            "set server b/s fqdn a.test",
            "set server b/n fqdn",
            "set server b/t1 fqdn a.test",
            "set server b/n fqdn a.test",
            "set server b/n fqdn b.test",
            "show resolvers nobody",
        ] {
            observed.push(format!("> {command}"));
            observed.extend(played.ask(command).lines().filter(|line| !line.is_empty()).map(str::to_owned));
            // HAProxy moves the server a moment after its response.
            let moved = match command {
                "set server b/s addr 127.0.0.98" => "127.0.0.98:80",
                "set server b/s addr 127.0.0.97 port 8080" => "127.0.0.97:8080",
                _ => continue,
            };
            until(|| played.columns("b", "s", &["addr"]) == [moved]);
        }
        until(|| played.columns("b", "n", &["addr"]) == ["127.0.0.32:81"]);
        dns.is_dealt_with("b.test");
        for server in ["s", "n"] {
            observed.push(format!("{:?}", played.columns("b", server, &["status", "addr"])));
        }
        let resolvers = played.ask("show resolvers names");
        observed.extend(
            resolvers
                .lines()
                .map(|line| line.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned()),
        );
        observed
    });
    compare(&ours, theirs);
}

/// A request that waits during a reload goes to the server's current address, not to that at the time of the
/// reload.
fn goes_where_the_server_is(moves: impl Fn(&Dns, &Played)) {
    let port = two_addresses();
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.2"]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let (socket, web) = (folder.0.join("cli"), folder.0.join("web"));
    // One lane: what it began before a command is done a few commands later.
    let _program = Manylane::start_ready(&format!(
        "{} nbthread 1\n{}{}listen l\n bind {}\n http-request wait-for-body time 1h at-least 2\n timeout \
            client 1h\n \
         server s a.test:{port} resolvers names init-addr none\n",
        "global\n",
        global(&log, &socket),
        section(&[dns.address()]),
        web.display()
    ));
    let played = Played { log, socket };
    until(|| played.columns("l", "s", &["addr"]) == [format!("127.0.0.2:{port}")]);
    let mut client = UnixStream::connect(&web).unwrap();
    client.set_read_timeout(Some(common::TIMEOUT)).unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n")
        .unwrap();
    until(|| played.ask("show sess").contains("fe=l "));
    let answer = played.ask("reload");
    assert!(answer.contains("Reloaded"), "{answer}");
    moves(&dns, &played);
    until(|| played.columns("l", "s", &["addr"]) == [format!("127.0.0.3:{port}")]);
    for _ in 0..50 {
        played.ask("show version");
    }
    client.write_all(b"ok").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("second"), "{answer}");
}

#[test]
fn requests_of_before_a_reload_hear_where_servers_went() {
    goes_where_the_server_is(|dns, _| dns.addresses("a.test", &["127.0.0.3"]));
}

#[test]
fn requests_of_before_a_reload_hear_where_operators_send_servers() {
    goes_where_the_server_is(|_, played| {
        let answer = played.ask("set server l/s addr 127.0.0.3");
        assert!(answer.contains("IP changed from '127.0.0.2' to '127.0.0.3'"), "{answer}");
    });
}

#[test]
fn a_reload_goes_on_with_what_is_known() {
    let dns = Dns::new();
    dns.addresses("a.test", &["127.0.0.31"]);
    dns.service("_s._tcp.test", &[(1, 8001, "a.test", Some("127.0.0.51"))]);
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("cli");
    let servers = "backend b\n server n a.test:81 resolvers names init-addr none resolve-prefer ipv4\n \
        server-template t 1 _s._tcp.test resolvers names\n";
    let _program =
        Manylane::start_ready(&format!("{}{}{servers}", global(&log, &socket), section(&[dns.address()])));
    let played = Played { log, socket };
    let addresses = || [played.columns("b", "n", &["addr"]), played.columns("b", "t1", &["addr"])].concat();
    until(|| addresses() == ["127.0.0.31:81", "127.0.0.51:8001"]);
    dns.lie(Lie::Silent); // no answer can restore the address
    let answer = ask(&played.socket, "reload");
    assert!(answer.contains("Reloaded"), "{answer}");
    assert_eq!(addresses(), ["127.0.0.31:81", "127.0.0.51:8001"]);
    dns.lie(Lie::None);
    dns.addresses("a.test", &["127.0.0.32"]);
    until(|| addresses() == ["127.0.0.32:81", "127.0.0.51:8001"]);
}

#[test]
fn what_cannot_be_requested_is_said_with_its_position() {
    for (line, sentence) in [
        ("server s a.test:80 resolvers nobody", "nobody"),
        (
            "server s a.test:80 resolvers names init-addr none resolve-net 1.2.3.4/33",
            "'resolve-net' expects networks",
        ),
        (
            "server s a.test:80 resolvers names init-addr none resolve-opts x",
            "'resolve-opts' expects allow-dup-ip",
        ),
        (
            "server s a.test:80 resolvers names init-addr none hash-key addr",
            "the server's address cannot change, since its 'hash-key'",
        ),
        (
            "server s 127.0.0.1:80 init-addr bogus",
            "'init-addr' expects last, libc, none or an address, found 'bogus'",
        ),
        (
            "server s a.test:80 init-addr none,bogus",
            "'init-addr' expects last, libc, none or an address, found 'bogus'",
        ),
        ("server s 127.0.0.1:80 resolvers names resolve-net bogus", "'resolve-net' expects networks"),
        ("server s 127.0.0.1:80 resolve-opts bogus", "'resolve-opts' expects allow-dup-ip"),
        (
            "http-request do-resolve(txn.a,nobody) str(a)",
            "expects the name of a 'resolvers' section, found 'nobody'",
        ),
        (
            "http-request do-resolve(txn.a,names,ipv5) str(a)",
            "expects (<variable>,<resolvers>[,ipv4|ipv6]), found 'do-resolve(txn.a,names,ipv5)'",
        ),
    ] {
        let folder = Folder::new();
        let config = format!(
            "{DEFAULTS} mode http\nresolvers names\n nameserver a 127.0.0.1:53\nlisten l\n bind \
                127.0.0.1:0\n {line}\n"
        );
        let file = folder.file("test.cfg", &config);
        let output = common::command().args(["-c", "-f"]).arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(sentence) && !output.status.success(), "{line}: {said}");
    }
}

/// A dnsmasq process, killed when dropped.
struct Dnsmasq {
    command: Command,
    running: Ended,
}

impl Dnsmasq {
    /// Starts it with these lines; `None` if it is not installed.
    fn start(folder: &Folder, at: SocketAddr, lines: &str) -> Option<Self> {
        let program =
            ["/usr/sbin/dnsmasq", "/usr/bin/dnsmasq"].into_iter().find(|path| Path::new(path).exists())?;
        let text = format!(
            "port={}\nlisten-address={}\nbind-interfaces\nno-resolv\nno-hosts\nkeep-in-foreground\n\
                pid-file=\nlog-facility=-\nlocal=/test/\n{lines}",
            at.port(),
            at.ip()
        );
        let file = folder.file("dnsmasq.conf", &text);
        let mut command = Command::new(program);
        command.arg("-C").arg(file).arg("--user=").stdin(Stdio::null()).stderr(Stdio::null());
        let running = Ended(command.spawn().unwrap());
        Some(Self { command, running })
    }

    /// Restarts it after it was killed. Each TCP query is a process of its own, which keeps the port until it
    /// is done.
    fn again(&mut self) {
        if self.running.0.try_wait().unwrap().is_some() {
            self.running = Ended(self.command.spawn().unwrap());
        }
    }
}

#[test]
fn a_real_name_server_is_believed() {
    let (log, folder) = (Syslog::new(), Folder::new());
    let socket = folder.0.join("cli");
    let at = TcpListener::bind((common::own_ip(), 0)).unwrap().local_addr().unwrap();
    let many: String = (1..200).map(|n| format!("host-record=many.test,127.9.0.{n}\n")).collect();
    let first = format!(
        "host-record=a.test,127.0.0.21\nsrv-host=_s._tcp.test,a.test,8001,1,512\ncname=c.test,a.test\n{many}"
    );
    let Some(dnsmasq) = Dnsmasq::start(&folder, at, &first) else {
        println!("dnsmasq is not there: left out");
        return;
    };
    let servers = "backend b\n default-server resolvers names init-addr none resolve-prefer ipv4\n server a \
        a.test:81\n \
                   server c c.test:82\n server many many.test:83\n server-template t 2 _s._tcp.test\n";
    let _program = Manylane::start_ready(&format!("{}{}{servers}", global(&log, &socket), section(&[at])));
    let played = Played { log, socket };
    let addresses = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| played.columns("b", name, &["addr"]).concat()).collect()
    };
    until(|| addresses(&["a", "c", "t1", "t2"]) == ["127.0.0.21:81", "127.0.0.21:82", "127.0.0.21:8001", ""]);
    until(|| addresses(&["many"])[0].starts_with("127.9.0."));
    assert!(!played.ask("show resolvers").contains("truncated:   0\n"), "199 addresses came over TCP");
    // Names are queried periodically, so clear more than once.
    until(|| played.ask("clear counters all; show resolvers").contains("truncated:   0\n"));
    until(|| played.columns("b", "t1", &["weight"]) == ["2"]);
    drop(dnsmasq);
    let second = "host-record=a.test,127.0.0.22\nhost-record=b.test,127.0.0.23\n\
        srv-host=_s._tcp.test,b.test,8002,1,1024\n";
    let mut dnsmasq = Dnsmasq::start(&folder, at, second).unwrap();
    until(|| {
        dnsmasq.again();
        addresses(&["a", "c", "many", "t1", "t2"]) == ["127.0.0.22:81", "", "", "127.0.0.23:8002", ""]
    });
}
