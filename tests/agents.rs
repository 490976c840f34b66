//! Agent checks, end to end: each word of an agent, and commands about agents. The same steps are run on the
//! installed HAProxy.

use crate::common;

use common::watch::{Syslog, both, until};
use common::{DEFAULTS, TIMEOUT, named, origin};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

/// The agent's response, the log line to wait for, and the columns `agent_status` and `last_agt` afterwards.
type Step = (&'static str, &'static str, &'static str, &'static str);

const STEPS: &[Step] = &[
    ("up\n", "", "L7OK", "via agent : up"),
    ("50%\n", "", "CHECKED", ""),
    ("down\n", "is DOWN", "L7STS", "via agent : down"),
    ("up\n", "is UP", "L7OK", "via agent : up"),
    ("drain\n", "enters drain", "CHECKED", ""),
    ("ready\n", "leaving forced drain", "CHECKED", ""),
    ("maint\n", "is going DOWN", "CHECKED", ""),
    ("ready up 100%\n", "UP/READY", "L7OK", "via agent : up"),
    ("stopped # gone fishing\n", "is DOWN", "L7STS", "via agent : stopped (gone fishing)"),
    ("UP\r", "is UP", "L7OK", "via agent : UP"),
    ("failed\n", "", "CHECKED", "agent reports an error : failed"),
    ("fail\nup\n", "is DOWN", "L7STS", "via agent : fail"),
    ("up,maxconn:7,foo\n", "is UP", "L7OK", "via agent : up (foo)"),
    ("maxconn:x\n", "", "CHECKED", "agent warns : maxconn string empty or preceded by garbage"),
    ("up 30%x\n", "", "L7OK", "via agent : up (Trailing garbage in weight string)"),
    ("10\n", "", "CHECKED", "agent reports an error : 10"),
    ("", "", "L7RSP", "TCPCHK got an empty response at step 2"),
    ("up 9999999%\n", "", "L7OK", "via agent : up"),
];

#[test]
fn agents_are_obeyed_as_haproxy_obeys_them() {
    let address = named("a");
    // The agent's response, and how often it was sent since it changed.
    let word = Arc::new(Mutex::new((String::new(), 0)));
    let says = word.clone();
    let agent = origin(move |mut stream| {
        let mut bytes = [0; 64];
        let length = stream.read(&mut bytes).unwrap_or(0);
        // Responds only to the expected query.
        let word = if &bytes[..length] == b"hello\n" {
            let mut says = says.lock().unwrap();
            says.1 += 1;
            says.0.clone()
        } else {
            "maint\n".into()
        };
        let _ = stream.write_all(word.as_bytes());
    });
    let say = |what: &str| *word.lock().unwrap() = (what.to_owned(), 0);
    // A second query shows that the first response was processed.
    let is_dealt_with = || word.lock().unwrap().1 > 1;
    let config = |log: &Syslog, socket: &Path| {
        format!(
            "global\n max-spread-checks 100ms\n stats socket {} level admin\n log {} local0\n{DEFAULTS} \
                timeout check 60s\n mode http\n log global\nfrontend f\n bind {}\n\
             backend l\n server r {address} check inter 60s\n \
             server a {address} weight 10 maxconn 100 agent-check agent-addr 127.0.0.1 agent-port {} \
             agent-inter 30ms agent-send \"hello\\n\"\n",
            socket.display(),
            log.address(),
            socket.with_extension("web").display(),
            agent.port(),
        )
    };
    let (ours, theirs) = both(config, |played| {
        let mut observed = Vec::new();
        let columns = [
            "status",
            "weight",
            "uweight",
            "slim",
            "agent_status",
            "agent_code",
            "last_agt",
            "agent_desc",
            "agent_health",
        ];
        for &(says, last, status, reported) in STEPS {
            say(says);
            observed.push(format!("says {says:?}"));

            if !last.is_empty() {
                // HAProxy repeats the line about drain.
                observed.extend(
                    played.lines(last).into_iter().filter(|line| !line.contains("remains in forced drain")),
                );
            }
            until(is_dealt_with);
            // Compare what was read here: the next check may already run.
            let mut row = Vec::new();
            until(|| {
                row = played.columns("l", "a", &columns);
                row[6] = row[6].replace(" )", ")"); // one of HAProxy's texts ends a line there
                (&*row[4], &*row[6]) == (status, reported)
            });
            observed.push(format!("{row:?} {:?}", &played.state("l", "a")[..2]));
        }
        say("up\n");
        until(is_dealt_with);
        until(|| played.columns("l", "a", &["last_agt"]) == ["via agent : up"]);
        for (command, last) in [
            ("disable agent l/a", ""),
            ("set server l/a agent down", ""),
            ("set server l/a agent-port 1", ""),
            ("enable agent l/a", ""),
            ("set server l/a agent up", ""),
            ("set server l/a agent what", ""),
            ("set server l/a agent-addr 1.2.3:4", ""),
            ("set server l/a agent-port 99999", ""),
            ("set server l/r agent up", ""),
            ("set server l/r agent-send x", ""),
            ("set server l/r agent-addr 127.0.0.1", ""),
            ("enable agent l/r", ""),
            ("disable agent l/r", ""),
            ("set server l/a check-port 1", ""),
            ("set server l/r check-port 70000", ""),
            ("set server l/r check-addr ::1 port 7", ""),
            // For any other query the agent responds "maint".
            ("set server l/a agent-send hi", "is going DOWN for maintenance"),
        ] {
            observed.push(format!("> {command}"));
            observed.extend(played.ask(command).lines().filter(|line| !line.is_empty()).map(str::to_owned));
            if !last.is_empty() {
                observed.extend(played.lines(last));
            }
        }
        let answer = played.ask("show servers state");
        let fields = |name: &str| {
            let row: Vec<&str> = answer
                .lines()
                .map(|line| line.split(' ').collect::<Vec<_>>())
                .find(|row| row.len() > 9 && row[3] == name)
                .unwrap();
            row[row.len() - 4..].join(" ")
        };
        observed.push(format!(
            "{} / {}",
            fields("r"),
            fields("a").replace(&agent.port().to_string(), "PORT")
        ));
        observed
    });
    assert!(
        ours.iter()
            .any(|line| line.contains("reason: Layer7 wrong status, code: 0, info: \"via agent : down\"")),
        "{ours:#?}"
    );
    let Some(theirs) = theirs else { return };
    for (at, (ours_line, theirs_line)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours_line, theirs_line, "after {:#?}", &theirs[at.saturating_sub(4)..at]);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// A server line without `maxconn` takes the limit from its agent, and excess requests wait. Item 44 of
/// haproxy-today.
#[test]
fn an_agent_limits_a_server_that_had_no_limit() {
    let config = |address: SocketAddr, agent: SocketAddr, log: &Syslog, socket: &Path| {
        format!(
            "global\n max-spread-checks 100ms\n stats socket {} level admin\n log {} local0\n{DEFAULTS} \
                timeout check 60s\n timeout queue 1h\n mode http\nfrontend f\n bind {}\n \
             default_backend l\nbackend l\n server a {address} agent-check agent-addr 127.0.0.1 agent-port \
             {} agent-inter 30ms\n",
            socket.display(),
            log.address(),
            socket.with_extension("web").display(),
            agent.port(),
        )
    };
    let word = Arc::new(Mutex::new("maxconn:1\n"));
    let says = word.clone();
    let agent = origin(move |mut stream| _ = stream.write_all(says.lock().unwrap().as_bytes()));
    let (reached, at) = mpsc::channel();
    let slow = origin(move |mut stream| {
        let (go, gone) = mpsc::channel::<()>();
        let _ = (stream.read(&mut [0; 4096]), reached.send(go), gone.recv());
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let (ours, theirs) = both(
        |log, socket| config(slow, agent, log, socket),
        |played| {
            *word.lock().unwrap() = "maxconn:1\n";
            let column = |server: &str, name: &str| played.columns("l", server, &[name])[0].clone();
            until(|| column("a", "slim") == "1");
            let web = played.socket.with_extension("web");
            let ask = || {
                let mut client = UnixStream::connect(&web).unwrap();
                client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                client
            };
            // The limit is shown shortly before all lanes apply it: a client of that moment is served and not
            // counted.
            let (mut clients, mut held) = (Vec::new(), Vec::new());
            while column("BACKEND", "qcur") != "1" {
                clients.push(ask());
                until(|| {
                    held.extend(at.try_recv());
                    held.len() == clients.len() || column("BACKEND", "qcur") == "1"
                });
                assert!(clients.len() < 100, "nobody waits");
            }
            // A running check is marked.
            let observed: Vec<String> =
                vec![column("a", "agent_status").trim_start_matches("* ").into(), column("a", "status")];
            *word.lock().unwrap() = "maxconn:2\n";
            held.push(at.recv_timeout(TIMEOUT).unwrap());
            until(|| column("a", "slim") == "2");
            drop(held);
            for mut client in clients {
                client.read_exact(&mut [0; 12]).unwrap();
            }
            observed
        },
    );
    assert_eq!(ours, ["CHECKED", "no check"]);
    assert!(theirs.is_none_or(|theirs| theirs == ours));
}
