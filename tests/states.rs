//! State changes of servers, end to end: tracking servers, servers whose sessions end with them, and
//! commands. The same steps are run on the installed HAProxy and compared line by line.

use crate::common;

use common::watch::{Played, Syslog, ask, both, until};
use common::{
    DEFAULTS, Folder, Manylane, ONE_LANE, connect, echo, fd, listener, named, nobody, origin, read_all,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn servers_that_track_are_as_what_they_track() {
    let address = named("a");
    let config = |log: &Syslog, socket: &Path| {
        format!(
            "global\n stats socket {} level admin\n log {} local0\n{DEFAULTS} mode http\n log global\n\
             frontend f\n bind {}\nbackend l\n server r {address} check inter 60s\n server nc {address}\n\
             backend b\n server t1 {address} track l/r\n server t2 {address} track t1\n server t3 {address} \
             backup\n",
            socket.display(),
            log.address(),
            socket.with_extension("web").display(),
        )
    };
    let steps = [
        ("set server l/r health down", "b/t2 is DOWN"),
        ("set server l/r state drain", "b/t2 enters drain"),
        ("set server l/r state ready", "b/t2 is DOWN (leaving"),
        ("set server l/r state maint", "b/t2 was DOWN and"),
        ("set server l/r state ready", "b/t2 is UP/READY"),
        ("set server l/r health stopping", "b/t2 is stopping"),
        ("set server l/r health up", "b/t2 is UP"),
        ("set server l/r state drain", "b/t2 enters drain"),
        ("set server b/t1 state drain", "b/t1 remains in forced drain"),
        ("set server l/r state ready", "b/t1 remains in forced drain"),
        ("set server b/t1 state ready", "b/t2 is UP"),
        ("disable server b/t1", "b/t2 is going DOWN"),
        ("disable server l/r", "l/r is going DOWN"),
        ("enable server b/t1", "b/t1 is leaving forced maintenance"),
        ("set server l/r state drain", "b/t2 remains in drain mode"),
        ("set server l/r state ready", "b/t2 is UP"),
        ("disable server b/t1", "b/t2 is going DOWN"),
        ("disable server l/r", "l/r is going DOWN"),
        ("enable server l/r", "b/t1 remains in forced maintenance"),
        ("enable server b/t1", "b/t2 is UP/READY"),
        ("set server l/nc health down", "l/nc is DOWN"),
        ("set server l/nc health up", "l/nc is UP"),
        // Only responses are compared here.
        ("set server b/t1 health up", ""),
        ("set server l/r health x", ""),
        ("enable health l/nc", ""),
        ("disable health l/nc", ""),
        ("disable health l/r", ""),
        ("enable health l/r", ""),
    ];
    let (ours, theirs) = both(config, |played| {
        // Wait for the end of the first check.
        while played.columns("l", "r", &["check_status"]) != ["L4OK"] {
            manylane_tests::look_again();
        }
        let mut observed = Vec::new();
        for (command, last) in steps {
            observed.push(format!("> {command}"));
            let answer = played.ask(command);
            observed.extend(answer.lines().filter(|line| !line.is_empty()).map(str::to_owned));
            if !last.is_empty() {
                observed.extend(played.lines(last));
            }
            for (backend, server) in [("l", "r"), ("l", "nc"), ("b", "t1"), ("b", "t2")] {
                let columns =
                    played.columns(backend, server, &["status", "tracked", "act", "bck", "check_status"]);
                observed.push(format!("{backend}/{server} {columns:?} {:?}", played.state(backend, server)));
            }
        }
        observed
    });
    assert!(
        ours.iter()
            .any(|line| line.starts_with("Server b/t1 is DOWN via l/r. 1 active and 1 backup servers left.")),
        "{ours:#?}"
    );
    assert!(ours.iter().any(|line| line.starts_with("b/t2 [\"MAINT (via b/t1)\", \"b/t1\", ")), "{ours:#?}");
    let Some(theirs) = theirs else { return };
    for (at, (ours_line, theirs_line)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours_line, theirs_line, "after {:#?}", &theirs[at.saturating_sub(8)..at]);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn what_cannot_be_tracked_is_said_with_its_position() {
    for (servers, sentence) in [
        (
            "server a 127.0.0.1:1 track a",
            "'track' of server 'l/a' expects a server with checks, found 'a', which tracks it in turn",
        ),
        (
            "server a 127.0.0.1:1 track b\n server b 127.0.0.1:1 track l/a",
            "'track' of server 'l/b' expects a server with checks, found 'l/a', which tracks it in turn",
        ),
        (
            "server a 127.0.0.1:1 track x/y",
            "'track' expects <backend>/<server>, or a server of the same backend, found 'x/y'",
        ),
        (
            "server a 127.0.0.1:1 track l/y",
            "'track' expects <backend>/<server>, or a server of the same backend, found 'l/y'",
        ),
        ("server a 127.0.0.1:1 track b\n server b 127.0.0.1:1", "found 'l/b'; add 'check' to it"),
        (
            "server a 127.0.0.1:1 check track b\n server b 127.0.0.1:1 check",
            "'track' expects a server without checks, found 'check' of server 'l/a'",
        ),
    ] {
        let output = common::check(&format!("{DEFAULTS}listen l\n bind 127.0.0.1:1\n {servers}\n"), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(sentence) && !output.status.success(), "{servers}: {said}");
    }
}

/// An origin that sends a head and the first bytes of a body, and then waits until the client closes. Also
/// returns the number of requests.
fn unfinished() -> (SocketAddr, Arc<AtomicUsize>) {
    let requested = Arc::new(AtomicUsize::new(0));
    let count = requested.clone();
    let address = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        if stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            count.fetch_add(1, Ordering::Relaxed);
            if bytes.starts_with(b"GET /head") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun");
            }
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    (address, requested)
}

#[test]
fn sessions_end_with_their_server_and_when_an_active_one_is_back() {
    let ((slow, requested), talk) = (unfinished(), echo());
    let (web, tcp) = (std::cell::RefCell::new(None), std::cell::RefCell::new(None));
    let config = |log: &Syslog, socket: &Path| {
        let ((web_socket, web_address), (tcp_socket, tcp_address)) = (listener(), listener());
        let text = format!(
            "global\n nbthread 2\n stats socket {} level admin\n log {} local0\n{DEFAULTS} log global\n \
                retries 0\n\
             frontend web\n mode http\n log-format \"web %ts %ST\"\n bind {}\n default_backend w\n\
             backend w\n mode http\n server a {slow} on-marked-down shutdown-sessions on-marked-up \
             shutdown-backup-sessions\n server s {slow} backup\n\
             listen tcp\n mode tcp\n log-format \"tcp ends %ts\"\n bind {}\n server a {talk} on-marked-down \
             shutdown-sessions\n",
            socket.display(),
            log.address(),
            fd(&web_socket),
            fd(&tcp_socket),
        );
        *web.borrow_mut() = Some((web_socket, web_address));
        *tcp.borrow_mut() = Some((tcp_socket, tcp_address));
        text
    };
    let (ours, theirs) = both(config, |played| {
        let (web, tcp) = (web.borrow().as_ref().unwrap().1, tcp.borrow().as_ref().unwrap().1);
        let mut observed = Vec::new();
        let request = |path: &str, wait: &str| {
            let mut client = connect(web);
            client
                .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
                .unwrap();
            let mut bytes = Vec::new();
            while !bytes.ends_with(wait.as_bytes()) {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                bytes.push(byte[0]);
            }
            client
        };
        requested.store(0, Ordering::Relaxed);
        let busy = |count| until(|| requested.load(Ordering::Relaxed) == count);
        // A client that has the head and one that waits for it, on a server that goes down and on one that
        // enters maintenance.
        for (round, (command, back)) in
            [("health down", "health up"), ("state maint", "state ready")].into_iter().enumerate()
        {
            let mut begun = request("/head", "begun");
            let mut waits = request("/", "");
            busy(3 * round + 2);
            played.ask(&format!("set server w/a {command}"));
            let mut lines = played.lines("web ");
            lines.extend(played.lines("web "));
            lines.sort();
            observed.extend(lines.into_iter().filter(|line| line.starts_with("web ")));
            observed.push(format!("{:?}", read_all(&mut begun)));
            observed.push(read_all(&mut waits).lines().next().unwrap_or_default().to_owned());
            // The backup server is used until the active one is back.
            let mut begun = request("/head", "begun");
            busy(3 * round + 3);
            played.ask(&format!("set server w/a {back}"));
            observed.extend(played.lines("web ").into_iter().filter(|line| line.starts_with("web ")));
            observed.push(format!("{:?}", read_all(&mut begun)));
        }
        let mut client = connect(tcp);
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        played.ask("set server tcp/a health down");
        observed.push(read_all(&mut client));
        let _ = client.shutdown(Shutdown::Both);
        observed.extend(played.lines("tcp ends ").pop());
        observed
    });
    let letters: Vec<&str> =
        ours.iter().filter_map(|line| line.split_once(' ').map(|(_, rest)| rest)).collect();
    assert!(
        letters.starts_with(&["DD 200", "DH 502", "502 Bad Gateway", "UD 200"])
            && letters.ends_with(&["ends D-"]),
        "{ours:#?}"
    );
    // HAProxy 3.2 closes these without a response, and logs all with 500 and the same phase.
    let as_theirs = |line: String| match &*line {
        "HTTP/1.1 502 Bad Gateway" => String::new(),
        "tcp ends D-" => "tcp ends DC".into(),
        _ => line.replace(" DD 200", " DC 500").replace(" DH 502", " DC 500").replace(" UD 200", " UC 500"),
    };
    if let Some(theirs) = theirs {
        assert_eq!(ours.into_iter().map(as_theirs).collect::<Vec<_>>(), theirs);
    }
}

#[test]
fn what_a_reload_hands_over_is_tracked_and_ended_as_before() {
    let (log, folder, talk) = (Syslog::new(), Folder::new(), echo());
    let (socket, (web, address)) = (folder.0.join("control"), listener());
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n log {} local0\n{DEFAULTS} log global\nlisten l\n bind {}\n \
         server r {talk} check inter 60s on-marked-down shutdown-sessions\nbackend b\n server t {talk} track \
         l/r\n",
        socket.display(),
        log.address(),
        fd(&web),
    ));
    let mut client = connect(address);
    client.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    let played = Played { log, socket };
    let tracking = || played.columns("b", "t", &["status", "tracked"]).join(" ");
    played.ask("set server l/r state drain");
    assert_eq!(tracking(), "DRAIN l/r");
    assert!(played.ask("reload").contains("serves"), "it is told that another generation serves");
    assert_eq!(tracking(), "DRAIN l/r");
    played.ask("set server l/r state ready");
    assert_eq!(tracking(), "UP l/r");
    // A session of the earlier generation.
    played.ask("set server l/r health down");
    assert_eq!(read_all(&mut client), "");
    assert_eq!(tracking(), "DOWN l/r");
}

/// Requests each of these paths on a connection of its own.
fn asks(address: SocketAddr, paths: &[&str]) {
    for path in paths {
        let mut client = connect(address);
        client
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .unwrap();
        read_all(&mut client);
    }
}

#[test]
fn errors_of_live_traffic_count_as_haproxy_counts_them() {
    // One lane, since lines of two lanes may come in any order.
    let defaults = ONE_LANE;
    // The check goes to another port, which works.
    let well = named("well");
    let shop = origin(|mut stream| {
        let mut bytes = [0; 4096];
        let _ = stream.read(&mut bytes);
        let path = String::from_utf8_lossy(&bytes).split(' ').nth(1).unwrap_or_default().to_owned();
        let _ = match path.as_str() {
            "/close" => Ok(()),
            "/junk" => stream.write_all(b"junk\r\n\r\n"),
            status => stream.write_all(
                format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", &status[1..])
                    .as_bytes(),
            ),
        };
    });
    let nobody = nobody();
    let cases: &[(&str, &str, &[&str])] = &[
        ("observe layer7 error-limit 3 on-error mark-down", "", &["/500", "/503", "/502"]),
        (
            "observe layer7 error-limit 2 on-error mark-down",
            "",
            &["/500", "/200", "/500", "/404", "/501", "/500", "/junk"],
        ),
        (
            "observe layer7 error-limit 2 on-error fail-check rise 1 fall 2",
            "",
            &["/close", "/close", "/close", "/500"],
        ),
        ("observe layer7 error-limit 1 on-error sudden-death rise 1 fall 5", "", &["/500", "/500"]),
        ("observe layer4 error-limit 2 on-error mark-down", "nobody", &["/200", "/200"]),
    ];
    for (options, place, paths) in cases {
        let web = std::cell::RefCell::new(None);
        let config = |log: &Syslog, socket: &Path| {
            let (listening, address) = listener();
            let endpoint = if place.is_empty() { shop } else { nobody };
            let text = format!(
                "global\n stats socket {} level admin\n log {} local0\n{defaults} mode http\n log global\n \
                    retries 0\n option log-health-checks\n\
                 listen l\n bind {}\n no log\n log {} local0 notice\n server a {endpoint} check inter 60s \
                 port {} {options}\n",
                socket.display(),
                log.address(),
                fd(&listening),
                log.address(),
                well.port(),
            );
            *web.borrow_mut() = Some((listening, address));
            text
        };
        let (ours, theirs) = both(config, |played| {
            let mut observed = played.lines("Health check for server l/a succeeded");
            asks(web.borrow().as_ref().unwrap().1, paths);
            let left = |line: String| {
                line.split(
                    "servers \
                left.",
                )
                .next()
                .unwrap()
                .to_owned()
            }; // the last request may or may not count
            observed.extend(played.lines("l/a is DOWN").into_iter().map(left));
            observed.push(
                played
                    .columns("l", "a", &["status", "hanafail", "check_status", "last_chk", "chkfail"])
                    .join(" "),
            );
            observed
        });
        assert!(
            ours.iter().any(|line| line.contains("is DOWN") || line.contains("Health analyze, info")),
            "{options}: {ours:#?}"
        );
        if let Some(theirs) = theirs {
            assert_eq!(ours, theirs, "{options}");
        }
    }
}

/// Both programs read server state files of either program, and continue alike (R-G8).
#[test]
fn servers_go_on_as_a_state_file_of_either_program_says() {
    let (address, folder) = (named("a"), Folder::new());
    let config = |file: Option<&Path>, socket: &Path| {
        let (global, load) = match file {
            Some(file) => {
                (format!(" server-state-file {}\n", file.display()), " load-server-state-from-file global\n")
            }
            None => (String::new(), ""),
        };
        format!(
            "global\n max-spread-checks 10ms\n stats socket {} level admin\n{global}{DEFAULTS} mode \
                http\n{load}\
             frontend f\n bind {}\nbackend b\n server a {address} weight 10\n server c {address} weight 20 \
             check inter 60s\n \
             server d {address} disabled\n server e {address}\n server f {address} check inter 60s rise 3 \
             fall 4\n server h {address} track b/f\n server i {address} weight 5\n server k {address} \
             disabled\n",
            &socket.display(),
            socket.with_extension("web").display(),
        )
    };
    let checked = |played: &Played, servers: &[&str]| {
        until(|| servers.iter().all(|server| played.columns("b", server, &["check_status"]) == ["L4OK"]));
    };
    let (ours, theirs) = both(
        |_, socket| config(None, socket),
        |played| {
            checked(&played, &["c", "f"]);
            for command in [
                "set weight b/a 50%",
                "set server b/e state drain",
                "set server b/d state ready",
                "set server b/i state maint",
                "disable health b/c",
                "set server b/c check-port 777",
                "set server b/f health down",
            ] {
                played.ask(command);
            }
            until(|| played.columns("b", "f", &["status"]) == ["DOWN"]);
            played.ask("show servers state")
        },
    );
    // Rows of the table, without numbers of the backend, ages, and the health of unchecked servers.
    let rows = |table: &str| -> Vec<String> {
        let row = |line: &str| {
            let mut row: Vec<&str> = line.split(' ').collect();
            if row[13].parse::<u32>().unwrap() & 2 == 0 {
                row[12] = "-";
            }
            row[9] = "-";
            row[3..].join(" ")
        };
        table.lines().filter(|line| line.contains(" b ")).map(row).collect()
    };
    for dumped in [Some(ours), theirs].into_iter().flatten() {
        assert_eq!(rows(&dumped).len(), 8, "{dumped}");
        let file = folder.file("states", &dumped);
        let (ours, theirs) = both(
            |_, socket| config(Some(&file), socket),
            |played| {
                // Its first check succeeded, of three that it needs.
                let column = |row: &str| row.split(' ').nth(9).map(str::to_owned);
                until(|| {
                    let rows = rows(&played.ask("show servers state"));
                    rows.iter().any(|row| row.starts_with("f ") && column(row).as_deref() == Some("1"))
                });
                rows(&played.ask("show servers state"))
            },
        );
        assert!(ours.iter().any(|row| row.starts_with(&format!("a {} 2 0 5 10 ", address.ip()))), "{ours:?}");
        assert!(ours.iter().any(|row| row.starts_with(&format!("f {} 0 0 1 1 ", address.ip()))), "{ours:?}");
        if let Some(theirs) = theirs {
            assert_eq!(ours, theirs, "{dumped}");
        }
    }
}

/// An error in a state file is reported with its line, and the other servers are restored. The file of one
/// backend is in the configured folder.
#[test]
fn a_state_file_that_was_cut_holds_as_far_as_it_goes() {
    let folder = Folder::new();
    let line = |name: &str, weight: u32| {
        format!("2 b 1 {name} 127.0.0.1 2 0 {weight} 10 3 1 0 2 0 0 0 0 - 80 - 0 0 - - 0\n")
    };
    folder.file("b", &format!("1\n{}2 b 2 c 127.0.0.1 2 0\n{}2 b 4 e 127", line("a", 3), line("d", 4)));
    let socket = folder.0.join("cli");
    let lines = |more: &str| {
        format!(
            "global\n stats socket {}\n server-state-base {}\n{more}{DEFAULTS} mode http\nlisten f\n bind \
                {}\n load-server-state-from-file global\n\
             backend b\n load-server-state-from-file local\n{}",
            socket.display(),
            folder.0.display(),
            folder.0.join("web").display(),
            ["a", "c", "d", "e"].map(|name| format!(" server {name} 127.0.0.1:80 weight 10\n")).concat(),
        )
    };
    let program = Manylane::start_ready(&lines(""));
    let table = common::watch::ask(&socket, "show servers state b");
    let weights: Vec<&str> = table.lines().skip(2).filter_map(|line| line.split(' ').nth(7)).collect();
    assert_eq!(weights, ["3", "10", "4", "10"], "{table}");
    drop(program);
    let said = common::check(&lines(" server-state-file nowhere\n"), &[]);
    let (said, code) = (String::from_utf8_lossy(&said.stderr).into_owned(), said.status.code());
    for expected in [
        "line 3: expected at least 20 fields, found 7: the file may have been cut there",
        "line 5: it has no line feed: the file was cut there, and the line is ignored",
        "/nowhere', so servers begin as the configuration says",
        "test.cfg:",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(code, Some(0), "{said}");
    let said = String::from_utf8_lossy(&common::check(&lines(""), &[]).stderr).into_owned();
    assert!(said.contains("does nothing without 'server-state-file'"), "{said}");
}

/// A server whose name cannot be resolved gets its last address.
#[test]
fn a_state_file_has_the_address_that_a_name_had_last() {
    let folder = Folder::new();
    let file = folder.file(
        "states",
        "1\n2 b 1 a 127.0.0.77 2 0 1 1 3 1 0 2 0 0 0 0 no-such-host.invalid 80 - 0 0 - - 0\n",
    );
    let (socket, web) = (folder.0.join("cli"), folder.0.join("web"));
    let config = |load: &str| {
        format!(
            "global\n stats socket {}\n server-state-file {}\n{DEFAULTS} mode http\nfrontend f\n bind {}\n \
                default_backend b\n\
             backend b\n load-server-state-from-file {load}\n server a no-such-host.invalid:81\n",
            socket.display(),
            file.display(),
            web.display(),
        )
    };
    let _program = Manylane::start_ready(&config("global"));
    let table = common::watch::ask(&socket, "show servers state b");
    assert!(table.contains(" a 127.0.0.77 2 0 1 1 "), "{table}");
    let said = common::check(&config("none"), &[]);
    assert_eq!(said.status.code(), Some(1), "{}", String::from_utf8_lossy(&said.stderr));
}

/// Runs commands and returns the lines on standard error after each, without counters.
fn said_to(mut program: std::process::Command, socket: &Path, steps: &[(&str, &str)]) -> Vec<String> {
    let mut child = common::Ended(program.stderr(std::process::Stdio::piped()).spawn().unwrap());
    let pid = format!("({}) : ", child.0.id());
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.0.stderr.take().unwrap()));
    until(|| std::os::unix::net::UnixStream::connect(socket).is_ok());
    let mut said = Vec::new();
    for (command, last) in steps {
        match *command {
            "" => nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(child.0.id() as i32),
                nix::sys::signal::Signal::SIGUSR1,
            )
            .unwrap(),
            line => drop(ask(socket, line)),
        }
        loop {
            let line = lines.next().unwrap().unwrap();
            let over = line.contains(last);
            said.push(line.replace(&pid, ""));
            if over {
                break;
            }
        }
    }
    assert!(child.0.wait().unwrap().success());
    said
}

/// In HAProxy's format and with its severities.
#[test]
fn standard_error_tells_what_happens_to_servers_and_proxies() {
    let folder = Folder::new();
    let address = named("a");
    let config = |name: &str| {
        let socket = folder.0.join(name);
        let text = format!(
            "global\n stats socket {} level admin\n{DEFAULTS} mode http\nfrontend f\n bind {}\n \
                default_backend b\n\
             backend b\n server s {address} check inter 60s\n server t {address} track s\n\
             server u {address} backup\nlisten l\n bind {}\n server v {address}\n",
            socket.display(),
            socket.with_extension("f").display(),
            socket.with_extension("l").display(),
        );
        (folder.file(&format!("{name}.cfg"), &text), socket)
    };
    let steps = [
        ("set server b/s health down", "b/t is DOWN"),
        ("set server b/u state maint", "no server available"),
        ("set server b/s health up", "b/t is UP"),
        ("set server b/t state drain", "b/t enters drain"),
        ("disable server l/v", "no server available"),
        ("disable frontend f", "Paused"),
        ("enable frontend f", "Resumed"),
        ("disable frontend l", "Paused proxy"),
        ("enable frontend l", "Resumed proxy"),
        ("shutdown frontend f", "Proxy f stopped"),
        ("", "Proxy b stopped"),
    ];
    let left = "0 sessions active, 0 requeued, 0 remaining in queue.";
    let expected = [
        &format!(
            "[WARNING]  Server b/s is DOWN, changed from CLI. 1 active and 1 backup servers left. {left}"
        ),
        &format!(
            "[WARNING]  Server b/t is DOWN via b/s. 0 active and 1 backup servers left. Running on backup. \
                {left}"
        ),
        &format!(
            "[WARNING]  Backup Server b/u is going DOWN for maintenance. 0 active and 0 backup servers left. \
                {left}"
        ),
        "[ALERT]    backend 'b' has no server available!",
        "[WARNING]  Server b/s is UP, changed from CLI. 1 active and 0 backup servers online. 0 sessions \
            requeued, 0 total in queue.",
        "[WARNING]  Server b/t is UP via b/s. 2 active and 0 backup servers online. 0 sessions requeued, 0 \
            total in queue.",
        "[WARNING]  Server b/t enters drain state. 1 active and 0 backup servers online. 0 sessions \
            requeued, 0 total in queue.",
        &format!(
            "[WARNING]  Server l/v is going DOWN for maintenance. 0 active and 0 backup servers left. {left}"
        ),
        "[ALERT]    proxy 'l' has no server available!",
        "[WARNING]  Paused frontend f.",
        "[WARNING]  Resumed frontend f.",
        "[WARNING]  Paused proxy l.",
        "[WARNING]  Resumed proxy l.",
        "[WARNING]  Proxy f stopped (cumulated conns: FE: 0, BE: 0).",
        "[WARNING]  Proxy l stopped (cumulated conns: FE: 0, BE: 0).",
        "[WARNING]  Proxy b stopped (cumulated conns: FE: 0, BE: 0).",
    ];
    let (file, socket) = config("ours");
    let mut ours = common::command();
    ours.arg("-f").arg(file);
    assert_eq!(said_to(ours, &socket, &steps), expected);
    if let Some(program) = common::watch::Haproxy::program() {
        let (file, socket) = config("theirs");
        let mut theirs = std::process::Command::new(program);
        theirs.arg("-db").arg("-f").arg(file);
        let mut theirs = said_to(theirs, &socket, &steps);
        theirs[11..].sort(); // the order of proxies differs there
        let mut expected = expected.map(str::to_owned);
        expected[11..].sort();
        assert_eq!(theirs, expected);
    }
}

/// Nothing reads standard error: lanes continue, and lost lines are counted. A quiet process writes nothing.
#[test]
fn standard_error_that_nobody_reads_holds_nobody_up() {
    let config = |socket: &Path, web: &std::net::TcpListener| {
        format!(
            "global\n stats socket {} level admin\n{ONE_LANE} mode http\nfrontend f\n bind {}\n\
             http-request return status 200\nbackend b\n server s 127.0.0.1:1\n",
            socket.display(),
            fd(web)
        )
    };
    let change = "set server b/s state maint;set server b/s state ready;".repeat(50);
    let folder = Folder::new();
    let socket = folder.0.join("s");
    let (web, address) = listener();
    let (_program, _unread) = Manylane::start_heard(&config(&socket, &web), &[]);
    let answers = || {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(read_all(&mut client).starts_with("HTTP/1.1 200 "));
    };
    answers();
    until(|| {
        ask(&socket, &change);
        !ask(&socket, "show info").contains("DroppedLogs: 0\n")
    });
    answers();
    for quiet in [&["-q"][..], &["-dW"]] {
        let socket = folder.0.join(quiet[0]);
        let mut config = config(&socket, &web);
        if quiet == ["-dW"] {
            config = config.replace(" nbthread 1\n", " nbthread 1\n quiet\n");
        }
        let (mut program, mut said) = Manylane::start_heard(&config, quiet);
        until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok());
        ask(&socket, &change);
        program.signal(nix::sys::signal::Signal::SIGUSR1);
        assert!(program.wait().success());
        assert!(said.next().is_none());
    }
}
