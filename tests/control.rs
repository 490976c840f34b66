//! The run-time interface, end to end.

use crate::common;

use common::watch::{Syslog, both};
use common::{DEFAULTS, Folder, Manylane, ONE_LANE, TIMEOUT, connect, fd, listener, origin};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A program with two servers, and the path of its socket.
struct Controlled {
    _folder: Folder,
    program: Manylane,
    address: std::net::SocketAddr,
    socket: PathBuf,
}

/// Origins that respond with their name.
fn named(name: &'static str) -> std::net::SocketAddr {
    origin(move |mut stream| {
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    })
}

impl Controlled {
    fn new(socket_options: &str) -> Self {
        let folder = Folder::new();
        let socket = folder.file("unused", "").with_file_name("control");
        let (web, address) = listener();
        let program = Manylane::start(&format!(
            "global\n stats socket {} {socket_options}\n nbthread 2\n{DEFAULTS} mode http\nfrontend front\n \
                bind {}\n default_backend back\n\
             backend back\n server a {} weight 3\n server b {} backup disabled maxconn 7\n\
             backend fixed\n balance source\n hash-type map-based\n server c unix@/nowhere weight 9\n",
            socket.display(),
            fd(&web),
            named("a"),
            named("b"),
        ));
        Self { _folder: folder, program, address, socket }
    }

    fn client(&self) -> UnixStream {
        // The program binds before it reports that it has started; an inherited listener accepts before that.
        let until = std::time::Instant::now() + TIMEOUT;
        let stream = loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
            }
            manylane_tests::look_again();
        };
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Returns the response to a line.
    fn ask(&self, line: &str) -> String {
        let mut client = self.client();
        client.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self) -> String {
        let mut client = connect(self.address);
        client.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        common::read_all(&mut client)
    }

    /// Waits until the server has no session: a client may have its whole response before that.
    fn rests(&self) {
        common::watch::until(|| common::watch::columns(&self.socket, "back", "a", &["scur"]) == ["0"]);
    }
}

#[test]
fn answers_end_with_an_empty_line_and_the_connection_with_the_answers() {
    let program = Controlled::new("level admin");
    assert_eq!(program.ask("show cli level"), "admin\n\n");
    assert_eq!(program.ask("user; show cli level; set weight back/a 1"), "\nuser\n\nPermission denied\n\n");
    let marked = program.ask("set severity-output number; get weight back/a; show cli level");
    assert_eq!(marked, "\n3 (initial 3)\n\n[6]: admin\n\n");
    assert_eq!(program.ask("echo a  b\\;c; show cli level; echo"), "a b;c\n\nadmin\n\n\n");
    assert_eq!(program.ask("set severity-output number; echo x"), "\n[6]: x\n\n");
    // Without a prompt only one line is read.
    assert_eq!(program.ask("show cli level\nuser; show cli level"), "admin\n\n");
    assert_eq!(program.ask("show backend"), "# name\nback\nfixed\n\n");
}

/// Rule 4: an empty line ends an answer, so no answer has one inside. Clients that send several commands part
/// their answers by it.
#[test]
fn no_answer_has_an_empty_line_before_its_end() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let (web, address) = listener();
    let program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n localpeer here\npeers first\n peer here {}\n \
         table shared type ip size 10 store gpc0\npeers second\n peer here {}\nring lines\n format raw\n\
         resolvers names\n nameserver a 127.0.0.1:9\n{DEFAULTS} mode http\n log ring@lines local0\n\
         frontend front\n bind {}\n stick-table type ip size 10 store gpc0\n http-request track-sc0 src\n \
         default_backend back\nbackend back\n server a {}\n server b {} disabled\n",
        socket.display(),
        common::own_address(),
        common::own_address(),
        fd(&web),
        named("a"),
        named("b"),
    ));
    let program = Controlled { _folder: folder, program, address, socket };
    assert!(program.get().ends_with("\r\n\r\na"));
    let mut wrong = connect(address);
    wrong.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nbad field: x\r\n\r\n").unwrap();
    assert!(common::read_all(&mut wrong).starts_with("HTTP/1.1 400 "));
    common::watch::until(|| program.ask("show errors").contains("invalid request"));
    let more = ["show events lines", "show profiling all", "show peers first", "show table front", "wait 1"];
    let rows = commands().into_iter().map(|(command, _)| command);
    let all = rows.filter(|command| *command != "prompt").chain(WITH_ARGUMENTS.map(|row| row.0)).chain(more);
    // Its own end is the only one of a reload, which is last.
    let (reloads, all): (Vec<_>, Vec<_>) = all.partition(|command| *command == "reload");
    let mut with_empty_lines = Vec::new();
    for command in all.into_iter().chain(reloads) {
        let answers = program.ask(&format!("expert-mode on; experimental-mode on; {command}"));
        let answer = answers.strip_prefix("\n\n").unwrap_or_else(|| panic!("{command}: {answers}"));
        if command == "quit" {
            assert_eq!(answer, "");
            continue;
        }
        let lines = answer.strip_suffix('\n').unwrap_or_else(|| panic!("{command}: {answer}"));
        assert!(lines.is_empty() || lines.ends_with('\n'), "{command}: {answer}");
        if lines.lines().any(str::is_empty) {
            with_empty_lines.push((command, lines.to_owned()));
        }
    }
    // Parts of the file are parted so, by HAProxy, too.
    with_empty_lines.retain(|(command, _)| *command != "dump stats-file");
    assert_eq!(with_empty_lines, []);
}

/// Levels of clients, from the lowest one.
const LEVELS: [&str; 3] = ["user", "operator", "admin"];

/// Commands, and the index of the lowest level that may use each, by the table of the README. A test of that
/// crate compares the table with the program.
fn commands() -> Vec<(&'static str, usize)> {
    let rows = include_str!("../crates/control/README.md").lines().filter_map(|line| {
        let (command, level) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((command, LEVELS.iter().position(|name| *name == level)?))
    });
    rows.collect()
}

/// Each command at each level is denied exactly where the table of the README says.
#[test]
fn each_command_needs_its_level() {
    let programs = LEVELS.map(|level| Controlled::new(&format!("level {level}")));
    let rows = commands();
    for &(command, needs) in &rows {
        for (level, program) in programs.iter().enumerate() {
            // A prompt keeps the connection open.
            let ended = if command == "prompt" { "prompt; quit" } else { command };
            let answer = program.ask(ended);
            // Experimental commands say so first, at any level.
            let denied = level < needs && command != "set var";
            assert_eq!(
                answer.starts_with("Permission denied\n"),
                denied,
                "{command} at {}: {answer}",
                LEVELS[level]
            );
            assert!(!answer.starts_with("Unknown command"), "{command}: {answer}");
            // A lowered level is like the lower one.
            if level == 2 {
                for (lower, name) in LEVELS.iter().enumerate().take(2) {
                    let modes = "expert-mode on; experimental-mode on";
                    let answer = program.ask(&format!("{modes}; {name}; {ended}"));
                    let denied = answer.contains("Permission denied\n");
                    assert_eq!(denied, lower < needs, "{command} lowered to {name}: {answer}");
                }
            }
        }
    }
    assert!(rows.len() > 60, "{rows:?}");
}

/// Commands with arguments that are complete, so that a program must ask for the level before it does
/// anything.
const WITH_ARGUMENTS: [(&str, usize); 34] = [
    ("clear table back", 1),
    ("clear counters all", 2),
    ("debug dev log here", 2),
    ("disable agent back/a", 2),
    ("disable frontend front", 2),
    ("disable health back/a", 2),
    ("disable server back/a", 2),
    ("enable agent back/a", 2),
    ("enable frontend front", 2),
    ("enable health back/a", 2),
    ("enable server back/a", 2),
    ("get var proc.a", 1),
    ("get weight back/a", 0),
    ("set maxconn frontend front 100", 2),
    ("set maxconn global 100", 2),
    ("set maxconn server back/a 100", 2),
    ("set rate-limit connections global 100", 2),
    ("set server back/a addr 127.0.0.1", 2),
    ("set server back/a state ready", 2),
    ("set server back/a weight 1", 2),
    ("set ssl ocsp-response YQ==", 2),
    ("set ssl tls-key a YQ==", 2),
    ("set table back key a data.gpc0 1", 1),
    ("set timeout cli 10", 0),
    ("set var proc.a expr int(1)", 2),
    ("set weight back/a 1", 2),
    ("show env HOME", 1),
    ("show errors back", 1),
    ("show sess all", 1),
    ("show servers state back", 0),
    ("show stat back", 0),
    ("show table back", 0),
    ("dump ssl cert a", 2),
    ("update ssl ocsp-response a", 2),
];

/// The same, with arguments and without, beside HAProxy, as far as it knows the command: no level may do more
/// than there.
#[test]
fn each_command_needs_the_level_that_haproxy_says() {
    /// Commands that HAProxy 3.2 lets lower levels use, too (docs/migrating.md); it also looks at missing
    /// arguments before it asks for the level.
    const STRICTER: [&str; 41] = [
        "add acl",
        "add map",
        "clear acl",
        "clear counters server",
        "clear map",
        "clear table",
        "commit acl",
        "commit map",
        "debug dev log",
        "del acl",
        "del map",
        "dump ssl cert",
        "get acl",
        "get map",
        "prepare acl",
        "prepare map",
        "set map",
        "set ssl ocsp-response",
        "set ssl tls-key",
        "set table",
        "set var",
        "show acl",
        "show dev",
        "show events",
        "show map",
        "show ssl ca-file",
        "show ssl cert",
        "show ssl crl-file",
        "show ssl ocsp-response",
        "show ssl ocsp-updates",
        "show ssl sni",
        "show tasks",
        "show threads",
        "show tls-keys",
        "update ssl ocsp-response",
        "debug dev log here",
        "set ssl ocsp-response YQ==",
        "set ssl tls-key a YQ==",
        "set var proc.a expr int(1)",
        "dump ssl cert a",
        "update ssl ocsp-response a",
    ];
    let config = |_: &Syslog, socket: &Path| {
        format!(
            "global\n stats socket {} level admin\n{DEFAULTS} mode http\nfrontend front\n bind {}\n \
             default_backend back\nbackend back\n stick-table type string size 10 store gpc0\n server a \
             127.0.0.1:9 agent-check agent-port 9\n",
            socket.display(),
            common::own_address()
        )
    };
    let rows: Vec<(&str, usize)> = commands()
        .into_iter()
        // These end the program, load another file, or take time.
        .filter(|(command, _)| !["debug dev panic", "reload", "wait"].contains(command))
        .chain(WITH_ARGUMENTS)
        .collect();
    // Of each command, whether it is known, and denied at each level.
    let (ours, theirs) = both(config, |played| {
        let walk = |command: &str| {
            let answers = ["user; ", "operator; ", ""].map(|lowered| {
                // Modes are for `admin`, and do not end with the level.
                played.ask(&format!("expert-mode on; experimental-mode on; {lowered}{command}; quit"))
            });
            let known = !answers[2].contains("Unknown command");
            (known, answers.map(|answer| answer.contains("Permission denied")))
        };
        rows.iter().map(|(command, _)| walk(command)).collect::<Vec<_>>()
    });
    let mut compared = 0;
    let mut stricter = Vec::new();
    for (n, (command, needs)) in rows.iter().enumerate() {
        let expected = (true, [0, 1, 2].map(|level| level < *needs));
        assert_eq!(ours[n], expected, "{command}");
        let Some((true, theirs)) = theirs.as_ref().map(|theirs| theirs[n]) else { continue };
        compared += 1;
        assert!(theirs <= expected.1, "HAProxy is stricter: {command}");
        if theirs != expected.1 {
            stricter.push(*command);
        }
    }
    println!("{compared} of {} commands are compared", rows.len());
    if theirs.is_some() {
        // A later 3.2 may ask for more.
        assert!(stricter.iter().all(|command| STRICTER.contains(command)), "{stricter:?}");
        assert!(compared > 100, "{compared}");
    }
}

#[test]
fn a_prompt_keeps_the_connection_until_quit() {
    let program = Controlled::new("");
    let mut client = program.client();
    let mut expect = |line: &str, answer: &str| {
        client.write_all(line.as_bytes()).unwrap();
        let mut bytes = vec![0; answer.len()];
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), answer);
    };
    expect("prompt\n", "\n> ");
    expect("show cli level\n", "operator\n\n> ");
    expect("\n", "> ");
    expect("get weight nope/a\n", "No such backend.\n\n> ");
    client.write_all(b"quit\n").unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

/// `prompt i` keeps the connection without a prompt, `prompt timed` has the time in it, `prompt n` ends it.
#[test]
fn words_of_prompt_say_how_a_client_is_served() {
    let program = Controlled::new("");
    let answers = |lines: &str| {
        let mut client = program.client();
        client.write_all(lines.as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    };
    let twice = "show cli level\nshow cli level\nquit\n";
    assert_eq!(answers(&format!("prompt i\n{twice}")), "\noperator\n\noperator\n\n");
    assert_eq!(answers(&format!("prompt p\n{twice}")), "\n> operator\n\n> operator\n\n> ");
    assert_eq!(answers(&format!("prompt p i\n{twice}")), "\noperator\n\noperator\n\n");
    assert_eq!(answers(&format!("prompt n\n{twice}")), "\n");
    assert_eq!(answers("prompt\nprompt i\nprompt p\nprompt n\nshow cli level\n"), "\n> \n\n> \n");
    let timed = answers("prompt timed\nprompt timed\nquit\n");
    let (time, rest) = timed.strip_prefix("\n[0:00:").unwrap_or_else(|| panic!("{timed}")).split_at(5);
    assert_eq!(rest, "]> \n> ", "{timed}");
    assert!(time.bytes().all(|byte| byte == b':' || byte.is_ascii_digit()), "{timed}");
    for wrong in ["prompt bogus", "prompt p bogus", "prompt help"] {
        // The mode is as before: the connection ends.
        let answer = answers(&format!("{wrong}\n{twice}"));
        assert!(answer.contains("[help | n | i | p | timed]*") && answer.ends_with("'n'.\n\n"), "{answer}");
    }
}

#[test]
fn servers_are_stopped_and_started_and_weighed() {
    let program = Controlled::new("level admin");
    assert!(program.get().ends_with("\r\n\r\na"));
    assert_eq!(program.ask("set server back/b state ready"), "\n");
    assert_eq!(program.ask("disable server back/a"), "\n");
    assert!(program.get().ends_with("\r\n\r\nb"), "a backup serves when no other does");
    assert!(program.ask("show stat").contains("\nback,a,0,"));
    assert!(
        program.ask("show stat").lines().any(|line| line.starts_with("back,a,") && line.contains(",MAINT,"))
    );
    assert_eq!(program.ask("enable server back/a"), "\n");
    assert!(program.get().ends_with("\r\n\r\na"));
    for (line, answer) in [
        ("set weight back/a 5", "\n"),
        ("get weight back/a", "5 (initial 3)\n\n"),
        ("set weight back/a 50%", "\n"),
        ("get weight #3/#1", "1 (initial 3)\n\n"),
        ("set weight back/a 257", "Absolute weight can only be between 0 and 256 inclusive.\n\n"),
        ("set weight back/a 1000%", "\n"),
        ("get weight back/a", "30 (initial 3)\n\n"),
        ("set weight back/a 1x", "Trailing garbage in weight string\n\n"),
        ("set weight back/a -1", "Absolute weight can only be between 0 and 256 inclusive.\n\n"),
        ("set weight back/a 99999999999", "Absolute weight can only be between 0 and 256 inclusive.\n\n"),
        ("set weight back/a -5%", "Relative weight must be positive.\n\n"),
        ("set weight back/a x", "Empty weight string empty or preceded by garbage\n\n"),
        ("set weight back/a", "Require <weight> or <weight%>.\n\n"),
        ("set weight back", "Require 'backend/server'.\n\n"),
        ("set weight back/x 1", "No such server.\n\n"),
        ("set server back/a state off", "'set server <srv> state' expects 'ready', 'drain' and 'maint'.\n\n"),
        (
            "set server back/a name z",
            "'set server <b>/<s> name' is a command of HAProxy that this program refuses: add a server with \
                the new name; HAProxy 3.2 does not have it either.\n\n",
        ),
    ] {
        assert_eq!(program.ask(line), answer, "{line}");
    }
}

#[test]
fn numbers_are_shown_in_three_forms() {
    let program = Controlled::new("level operator");
    let _ = program.get();
    let info = program.ask("show info");
    assert!(info.starts_with("Name: Manylane\nVersion: "), "{info}");
    assert!(info.contains("\nNbthread: 2\n") && info.contains("\nCumReq: 1\n"), "{info}");
    assert!(program.ask("show info typed").contains("\n3.Nbthread.1:CGS:u32:2\n"));
    let stat = program.ask("show stat");
    let columns: Vec<&str> = stat.lines().next().unwrap().strip_prefix("# ").unwrap().split(',').collect();
    for line in stat.lines().skip(1).filter(|line| !line.is_empty()) {
        assert_eq!(line.split(',').count(), columns.len(), "{line}");
    }
    let of = |stat: &str, server: &str, column: &str| {
        let at = columns.iter().position(|name| *name == column).unwrap();
        let line = stat.lines().find(|line| line.starts_with(server)).unwrap().to_owned();
        line.split(',').nth(at).unwrap().to_owned()
    };
    assert_eq!(of(&stat, "front,FRONTEND", "hrsp_2xx"), "1");
    assert_eq!(of(&stat, "back,a", "stot"), "1");
    assert_eq!(of(&stat, "back,b", "slim"), "7");
    assert_eq!(of(&stat, "back,BACKEND", "algo"), "roundrobin");
    // Without 'fullconn': a tenth of the connections that may arrive.
    let most: u64 = of(&stat, "front,FRONTEND", "slim").parse().unwrap();
    assert_eq!(of(&stat, "back,BACKEND", "slim"), most.div_ceil(10).to_string());
    assert!(
        program.ask("show stat typed").contains("S.3.1.7.stot.1:MCP:u64:1\n"),
        "{}",
        program.ask("show stat typed")
    );
    for line in ["show stat json", "show info json"] {
        let text = program.ask(line);
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_array(), "{line}");
    }
    let only = program.ask("show stat back 4 1");
    assert_eq!(only.lines().filter(|line| line.starts_with("back,")).count(), 1, "{only}");
    assert!(!program.ask("show stat up").contains("\nback,b,"));
    assert!(
        program
            .ask("show stat nonsense")
            .starts_with("Expected one of typed, json, desc, up, no-maint, found 'nonsense'.")
    );
}

#[test]
fn what_is_not_built_is_refused_by_name_and_what_is_unknown_gets_proposals() {
    let program = Controlled::new("level admin");
    let answer = program.ask("show anon");
    assert_eq!(
        answer,
        "'show anon' is a command of HAProxy that this program refuses: answers are not made anonymous.\n\n"
    );
    let answer = program.ask("show nothing");
    assert!(
        answer.starts_with("Unknown command: 'show', but maybe") && answer.contains("show info"),
        "{answer}"
    );
    let answer = program.ask("help show");
    assert!(answer.contains("show stat") && !answer.contains("set weight"), "{answer}");
}

#[test]
fn half_a_command_is_not_run_and_what_is_too_long_is_reported() {
    let program = Controlled::new("level admin");
    let mut client = program.client();
    client.write_all(b"set weight back/a 1").unwrap(); // an incomplete line, perhaps of `100`
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
    assert_eq!(program.ask("get weight back/a"), "3 (initial 3)\n\n");
    let mut client = program.client();
    // The program may close the connection before everything is written.
    let _ = client.write_all("x".repeat(20_000).as_bytes());
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "The line has more than 16384 bytes; nothing was done.\n\n");
    assert!(program.ask("show env \u{e4}").starts_with("Variable not found"));
    let mut client = program.client();
    client.write_all(b"show \xff\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("A command expects text in UTF-8"), "{answer}");
}

/// Lines of a payload, of these many bytes in all.
pub(crate) fn lines(mut bytes: usize) -> String {
    let mut text = String::new();
    while bytes > 0 {
        let line = bytes.min(1024);
        text += &format!("{}\n", "x".repeat(line - 1));
        bytes -= line;
    }
    text
}

#[test]
fn a_line_has_a_bound() {
    let program = Controlled::new("level admin");
    let command = "show env ";
    for (bytes, expected) in [
        (16_384, "Variable not found"),
        (16_385, "The line has more than 16384 bytes; nothing was done.\n\n"),
    ] {
        let answer = program.ask(&format!("{command}{}", "x".repeat(bytes - command.len())));
        assert!(answer.starts_with(expected), "{bytes}: {answer}");
    }
}

#[test]
fn a_payload_has_a_bound() {
    let program = Controlled::new("level admin");
    for (bytes, fits) in [(65_536, true), (65_536 + 2, false)] {
        let answer = program.ask(&format!("add map nothing <<\n{}", lines(bytes)));
        let expected = if fits { "Unknown map" } else { "The payload did not come whole" };
        assert!(answer.starts_with(expected), "{bytes}: {answer}");
    }
}

/// As HAProxy's management guide has it: empty lines and commands within are part of the payload.
#[test]
fn a_pattern_ends_a_payload() {
    let program = Controlled::new("level admin");
    let lines = "prompt\nadd map nothing <<%EOF%\na b\n\nget weight back/a\n%EOF%\nget weight back/b\nquit\n";
    let answer = program.ask(lines);
    assert!(answer.contains("Unknown map"), "{answer}");
    assert_eq!(answer.matches("(initial ").count(), 1, "{answer}");
    let answer = program.ask("prompt\nadd map nothing <<%EOF%678\nget weight back/a\n%EOF%678\nquit\n");
    assert!(answer.contains("at most 7 bytes") && !answer.contains("(initial "), "{answer}");
    // However a line is wrong, what follows may be its payload.
    let long = "word ".repeat(66);
    let answer = program.ask(&format!("prompt\nadd map nothing {long}<<\nget weight back/a\n\nquit\n"));
    assert!(answer.contains("more than 64 words") && !answer.contains("(initial "), "{answer}");
}

/// What comes behind a line that is too long is thrown away, 1 MiB of it. Then the connection ends.
#[test]
fn who_goes_on_behind_a_line_that_is_too_long_is_left() {
    const DISCARDED: usize = 1 << 20;
    // The line, the socket's buffer, a read, and what io_uring has received.
    const BESIDE: usize = (16 << 10) + (256 << 10) + (64 << 10) + (128 << 10);
    let program = Controlled::new("level admin");
    let (mut client, mut sent) = (program.client(), 0);
    while let Ok(n) = client.write(&[b'x'; 4096]) {
        sent += n;
        assert!(sent <= DISCARDED + BESIDE, "what nobody needs is read without end");
    }
    assert!(sent >= DISCARDED, "{sent} bytes only");
}

/// Returns a client that reads nothing, and whose responses fill its socket.
fn deaf(program: &Controlled) -> UnixStream {
    let mut client = program.client();
    client.write_all(b"prompt\n").unwrap();
    client.set_write_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
    while client.write_all(b"show stat typed;show stat typed;help\n").is_ok() {}
    client
}

#[test]
fn a_client_that_is_silent_or_does_not_read_holds_nobody_up() {
    let program = Controlled::new("level admin");
    let (_silent, _deaf) = (program.client(), deaf(&program));
    assert!(program.get().ends_with("\r\n\r\na"));
    assert_eq!(program.ask("show cli level"), "admin\n\n");
}

#[test]
fn a_client_that_does_not_read_is_closed_for_the_next() {
    let program = Controlled::new("level admin\n stats maxconn 1\n stats timeout 2s");
    let deaf = deaf(&program);
    assert_eq!(program.ask("show cli level"), "admin\n\n");
    drop(deaf);
}

/// Returns true if the program needs less than `bound` bytes more during `work`. Tries three times: if a lane
/// is not scheduled for 100 ms, its stack is reported, and reading the debug symbols for that takes 100 MB.
fn needs_less_than(bound: usize, start: impl Fn() -> Controlled, work: impl Fn(&Controlled)) -> bool {
    let most = |program: &Controlled| -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.program.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    };
    (0..3).any(|_| {
        let program = start();
        let _ = program.ask("x;x"); // for what is needed anyway
        let before = most(&program);
        work(&program);
        let more = most(&program) - before;
        println!("{more} bytes more, of {bound}");
        more < bound
    })
}

#[test]
fn answers_to_many_commands_of_a_line_are_not_held_together() {
    const ANSWERS: usize = 32 << 20;
    // The commands and the memory of the allocator stay below this; all responses together would not.
    assert!(needs_less_than(
        ANSWERS / 4 * 3,
        || Controlled::new("level admin"),
        |program| assert!(program.ask(&"x;".repeat(8000)).len() > ANSWERS),
    ));
}

/// Other clients of a lane are served between two commands of a client, however many it has sent.
#[test]
fn a_long_script_yields_at_each_command() {
    const COMMANDS: usize = 4000;
    let program = Controlled::new("level admin");
    let polls = || -> usize {
        let rows = program.ask("show lanes");
        rows.lines()
            .skip(1)
            .filter_map(|row| row.split(' ').nth(4))
            .map(|polls| polls.parse::<usize>().unwrap())
            .sum()
    };
    assert!(program.ask("show lanes").starts_with("# lane live queued rounds polls "));
    for script in [
        "show version\n".repeat(COMMANDS),
        format!("{}\n", "show version;".repeat(1000)).repeat(COMMANDS / 1000),
    ] {
        let before = polls();
        let mut client = program.client();
        let mut writes = client.try_clone().unwrap();
        let script = std::thread::spawn(move || {
            writes.write_all(format!("prompt\n{script}quit\n").as_bytes()).unwrap()
        });
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        script.join().unwrap();
        assert_eq!(said.matches(env!("CARGO_PKG_VERSION")).count(), COMMANDS);
        assert!(polls() - before > COMMANDS, "{} turns", polls() - before);
    }
}

#[test]
fn an_answer_of_many_parts_comes_whole_and_is_never_held_whole() {
    const SERVERS: usize = 3000;
    let start = || {
        Controlled::new(&format!(
            "level admin\nbackend many\n server-template s {SERVERS} 127.0.0.1:9 disabled\nglobal"
        ))
    };
    let program = start();
    let names = |answer: &str, before: &str, behind: char| -> Vec<usize> {
        let numbers = answer.lines().filter_map(|line| line.split_once(before)?.1.split(behind).next());
        numbers.map(|number| number.parse().unwrap()).collect()
    };
    let all: Vec<usize> = (1..=SERVERS).collect();
    let table = program.ask("show stat");
    assert_eq!(names(&table, "many,s", ','), all);
    assert!(table.ends_with(",\n\n"), "{}", &table[table.len() - 40..]);
    assert_eq!(program.ask("show stat many 4 17").lines().count(), 3, "the header, one server and the end");
    assert_eq!(program.ask("show stat no-maint").matches("many,").count(), 1, "the backend");
    let typed = program.ask("show stat typed");
    assert_eq!(names(&typed, "svname.1:KNS:str:s", '\n'), all);
    assert!(needs_less_than(typed.len() / 2, start, |program| drop(program.ask("show stat typed"))));
    let json = program.ask("show stat many 4 -1 json");
    assert!(json.starts_with('[') && json.ends_with("]\n\n"));
    assert_eq!(json.matches("\"value\":\"127.0.0.1:9\"").count(), SERVERS);
}

#[test]
fn a_line_that_comes_byte_by_byte_holds_no_buffer_for_each() {
    let program = Controlled::new("level admin");
    let mut client = program.client();
    let used = || {
        let pools = program.ask("show pools");
        let total = pools.lines().find(|line| line.starts_with("Total: ")).unwrap();
        let used = total.split(", ").nth(2).unwrap().split(' ').next().unwrap();
        used.parse::<u64>().unwrap()
    };
    // Each response to `used` means that the lane has run once and received what was there. Twice, since with
    // io_uring a lane allocates its ring of buffers at the first receive.
    let mut grown = || {
        let before = used();
        for _ in 0..200 {
            client.write_all(b"x").unwrap();
            used();
        }
        used().saturating_sub(before)
    };
    let (first, second) = (grown(), grown());
    assert!(first.min(second) < 100_000, "{first} and {second} bytes more");
}

#[test]
fn a_line_of_commands_is_followed_by_a_prompt() {
    let program = Controlled::new("level admin");
    let mut client = program.client();
    client.write_all(b"prompt;show cli level;get weight back/a\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "\nadmin\n\n3 (initial 3)\n\n> ");
}

/// The responses of HAProxy 3.2.26 to the same commands.
#[test]
fn words_and_columns_are_those_of_haproxy() {
    let program = Controlled::new("level admin");
    let static_weight =
        "Backend is using a static LB algorithm and only accepts weights '0%' and '100%'.\n\n";
    assert_eq!(program.ask("set weight fixed/c 5"), static_weight);
    assert_eq!(program.ask("set weight fixed/c 0"), "\n");
    let sockets = format!("\n# socket lvl processes\nunix@{} admin all\n\n", program.socket.display());
    assert_eq!(program.ask("user; show cli sockets"), sockets);
    // Address, states, weights. 4 means disabled by the file, whatever commands did since.
    let state = |server: &str| {
        let answer = program.ask("show servers state");
        let line = answer.lines().find(|line| line.split(' ').nth(3) == Some(server)).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        [words[4], words[5], words[6], words[13], words[18]].join(" ")
    };
    assert!(state("a").starts_with("127.0.0.1 2 0 0 "), "{}", state("a"));
    assert_eq!(state("c"), "- 2 0 0 0");
    for (command, expected) in [
        ("", "127.0.0.1 0 5 8 "),
        ("set server back/b state ready", "127.0.0.1 2 4 8 "),
        ("set server back/b state drain", "127.0.0.1 2 12 8 "),
        ("set server back/b state maint", "127.0.0.1 0 5 8 "),
        ("set server back/a state maint", "127.0.0.1 0 5 8 "),
    ] {
        program.ask(command);
        assert!(state("b").starts_with(expected), "{command}: {}", state("b"));
    }
    assert!(state("a").starts_with("127.0.0.1 0 1 0 "), "{}", state("a"));
    program.ask("set server back/a state ready");
    let rows = |line: &str| -> Vec<String> {
        let answer = program.ask(line);
        let rows = answer.lines().skip(1).filter(|line| !line.is_empty());
        rows.map(|row| row.split(',').take(2).collect::<Vec<_>>().join("/")).collect()
    };
    assert_eq!(rows("show stat 3 -1 1"), ["back/a", "back/BACKEND"]);
    assert_eq!(rows("show stat 2 -1 1"), ["front/FRONTEND"]);
    assert_eq!(rows("show stat -1 4 -1"), ["back/a", "back/b", "fixed/c"]);
    assert!(program.ask("show stat back 2 -1 up").contains(",UP (1/2),"));
    assert!(program.ask("show stat back 2 -1").contains(",UP,"));
    let typed = program.ask("show stat typed");
    assert!(
        typed.contains("B.3.0.19.act.1:MGP:u32:1\n") && typed.contains("S.3.1.19.act.1:SGP:u32:1\n"),
        "{typed}"
    );
    assert!(typed.contains("S.4.1.73.addr.1:CGS:str:unix\n"), "{typed}");
}

/// `show activity` has all values, the sums, or those of one lane, as its word says.
#[test]
fn activity_is_that_of_all_lanes_or_of_one() {
    let program = Controlled::new("");
    let loops = |words: &str| {
        let answer = program.ask(&format!("show activity{words}"));
        let find = |name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{answer}")).to_owned()
        };
        (find("thread_id: "), find("loops: "))
    };
    for words in ["", " -1"] {
        let (thread, loops) = loops(words);
        assert_eq!(thread, "1 (1..2)");
        let [sum, "[", first, second, "]"] = *loops.split(' ').collect::<Vec<_>>() else { panic!("{loops}") };
        let number = |word: &str| word.parse::<u64>().unwrap();
        assert_eq!(number(sum), number(first) + number(second));
    }
    for (words, shown) in [(" 0", "1 (1..2)"), (" 1", "1 (1..2)"), (" 2", "2 (1..2)")] {
        let (thread, loops) = loops(words);
        assert_eq!(thread, shown);
        assert!(loops.parse::<u64>().is_ok(), "{words}: {loops}");
    }
    for wrong in ["-2", "3", "x"] {
        let answer = program.ask(&format!("show activity {wrong}"));
        assert_eq!(answer, "Thread ID number must be between -1 and nbthread\n\n", "{wrong}");
    }
}

#[test]
fn peaks_are_forgotten_when_the_answer_is_there() {
    let program = Controlled::new("level admin");
    let peak = || {
        let stat = program.ask("show stat");
        let line = stat.lines().find(|line| line.starts_with("back,a,")).unwrap();
        line.split(',').nth(5).unwrap().to_owned()
    };
    let _ = program.get();
    assert_ne!(peak(), "0");
    program.rests();
    assert_eq!(program.ask("clear counters"), "\n");
    assert_eq!(peak(), "0");
    assert!(
        program
            .ask("show stat")
            .lines()
            .any(|line| line.starts_with("back,a,") && line.split(',').nth(7) != Some("0"))
    );
    assert_eq!(program.ask("clear counters all"), "\n");
    assert!(
        program
            .ask("show stat")
            .lines()
            .any(|line| line.starts_with("back,a,") && line.split(',').nth(7) == Some("0"))
    );
}

/// Counters of one server are cleared (items 2 and 49 of haproxy-today).
#[test]
fn counters_of_one_server_begin_anew() {
    let program = Controlled::new("level admin");
    let column = |name: &str, at: usize| {
        let stat = program.ask("show stat");
        let line = stat.lines().find(|line| line.starts_with(name)).unwrap();
        line.split(',').nth(at).unwrap().to_owned()
    };
    let _ = program.get();
    program.rests();
    assert_ne!((column("back,a,", 5), column("back,a,", 7)), ("0".into(), "0".into()));
    assert_eq!(program.ask("clear counters server none/a"), "No such backend.\n\n");
    assert_eq!(program.ask("clear counters server back/none"), "No such server.\n\n");
    assert_ne!(column("back,a,", 7), "0");
    assert_eq!(program.ask("clear counters server back/a"), "Server counters cleared.\n\n");
    assert_eq!((column("back,a,", 5), column("back,a,", 7)), ("0".into(), "0".into()));
    assert_ne!(column("back,BACKEND,", 7), "0");
}

/// Lanes do not wait for the system's files.
#[test]
fn what_the_system_says_is_read_aside_of_lanes() {
    let program = Controlled::new("level admin");
    // How often the thread for long work has run: a job that it sleeps before wakes it.
    let runs = || -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", program.program.pid())).unwrap();
        let threads = tasks.flatten().map(|task| task.path());
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        threads
            .filter(|task| read(task.join("comm")).trim() == "aside")
            .filter_map(|task| read(task.join("schedstat")).split_whitespace().nth(2)?.parse::<u64>().ok())
            .sum()
    };
    for command in ["show dev", "show libs"] {
        let mut before = 0;
        // What the start left to do has ended.
        common::watch::until(|| {
            before = runs();
            program.ask("help");
            runs() == before
        });
        program.ask(command);
        assert!(runs() > before, "{command}");
    }
}

/// Item 70 of haproxy-today.
#[test]
fn program_and_machine_are_shown_for_a_report_of_a_defect() {
    let program = Controlled::new("level admin");
    let shown = program.ask("show dev");
    for part in ["Manylane version ", "\n  OS name: Linux\n", "\nProcess info\n  pid: ", "\n  cmdline: /"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let libraries = program.ask("show libs");
    assert!(libraries.lines().any(|line| line.ends_with("/manylane")), "{libraries}");
    assert!(libraries.contains("/libc.so"), "{libraries}");
}

#[test]
fn a_file_may_have_nothing_but_a_socket_for_commands() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let _program = Manylane::start_ready(&format!("global\n stats socket {}\n", socket.display()));
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"show info\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("CurrConns: "), "{answer}");
}

#[test]
fn what_was_said_of_the_files_can_be_requested() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let (web, address) = listener();
    let program = Manylane::start(&format!(
        "global\n stats socket {}\n tune.recv_enough 5k\n{DEFAULTS} mode http\nlisten l\n bind {}\n",
        socket.display(),
        fd(&web),
    ));
    let program = Controlled { _folder: folder, program, address, socket };
    let said = program.ask("show startup-logs");
    assert!(said.starts_with("[NOTICE]") && said.contains("tune.recv_enough"), "{said}");
}

/// A server that never responds, and a channel that reports each request at it.
fn silent_server() -> (std::net::SocketAddr, std::sync::mpsc::Receiver<()>) {
    let (sender, requests) = std::sync::mpsc::channel();
    let silent = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            let _ = sender.send(()); // the test may have ended
        }
    });
    (silent, requests)
}

/// A program whose server never responds, and a channel that reports each request at the server.
fn with_a_silent_server() -> (Controlled, std::sync::mpsc::Receiver<()>) {
    with_a_silent_server_of("", "")
}

/// The same, with options for the server and lines for the backend.
fn with_a_silent_server_of(options: &str, lines: &str) -> (Controlled, std::sync::mpsc::Receiver<()>) {
    let (silent, requests) = silent_server();
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let (web, address) = listener();
    let program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n{DEFAULTS} mode http\nfrontend front\n bind {}\n \
            default_backend back\n\
         backend back\n retries 0\n{lines} server a {silent}{options}\n",
        socket.display(),
        fd(&web),
    ));
    (Controlled { _folder: folder, program, address, socket }, requests)
}

#[test]
fn an_operator_ends_what_a_server_serves() {
    let (program, requests) = with_a_silent_server();
    let address = program.address;
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(program.ask("shutdown sessions server back/a"), "\n");
    let answer = common::read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
}

/// A request that leaves the queue without a server counts as a connection error, and the backend responds.
#[test]
fn who_leaves_a_queue_is_an_error_of_its_backend() {
    let (program, requests) = with_a_silent_server_of(" maxconn 1", " timeout queue 10ms\n");
    let mut first = connect(program.address);
    first.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    let mut second = connect(program.address);
    second.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let answer = common::read_all(&mut second);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let names = ["svname", "econ", "hrsp_5xx", "bout"];
    let length = answer.len().to_string();
    common::watch::until(|| {
        common::watch::columns(&program.socket, "back", "BACKEND", &names) == ["BACKEND", "1", "1", &length]
    });
}

/// A server without `maxconn` gets a limit from a command. A reload keeps it, and 0 removes it.
#[test]
fn an_operator_limits_a_server_that_had_no_limit() {
    let (program, requests) = with_a_silent_server();
    let ask = || {
        let mut client = connect(program.address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let _first = ask();
    requests.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(program.ask("set maxconn server back/a 0"), "\n", "as it is");
    assert_eq!(program.ask("set maxconn server back/a 1"), "\n");
    let _second = ask(); // the first one is not counted
    requests.recv_timeout(TIMEOUT).unwrap();
    let queued = |count: usize| {
        common::watch::until(|| program.ask("show sess").matches("state=queue").count() == count)
    };
    let _third = ask();
    queued(1);
    let reloaded = program.ask("reload");
    assert!(reloaded.starts_with("Reloaded"), "{reloaded}");
    let _fourth = ask(); // the second one still has the permit
    queued(2);
    assert_eq!(program.ask("set maxconn server back/a 0"), "\n");
    requests.recv_timeout(TIMEOUT).unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    queued(0);
}

/// Running streams are listed in each mode, and a command ends one of them: with a server, and in a queue.
#[test]
fn an_operator_sees_streams_and_ends_one_of_them() {
    let (silent, requests) = silent_server();
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let ((web, address), (plain, plain_address)) = (listener(), listener());
    let program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n{DEFAULTS} mode http\n timeout queue \
            1h\nfrontend front\n bind {} name entry\n default_backend back\n\
         backend back\n retries 0\n server a {silent} maxconn 1\nlisten plain\n mode tcp\n bind {}\n server \
         p {silent}\n",
        socket.display(),
        fd(&web),
        fd(&plain),
    ));
    let program = Controlled { _folder: folder, program, address, socket };
    assert_eq!(program.ask("show sess"), "\n");
    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let mut client = connect(address);
    client.write_all(request).unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    let mut other = connect(plain_address);
    other.write_all(request).unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    let mut queued = connect(address);
    queued.write_all(request).unwrap();
    let until = std::time::Instant::now() + TIMEOUT;
    let shown = loop {
        let shown = program.ask("show sess");
        if shown.contains("state=queue") {
            break shown;
        }
        assert!(std::time::Instant::now() < until, "{shown}");
    };
    let numbered = |words: &str| {
        let line =
            shown.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("'{words}' in {shown}"));
        line.split(':').next().unwrap().to_owned()
    };
    assert_eq!(shown.trim_end().lines().count(), 3, "{shown}");
    let (first, third) = (numbered("fe=front be=back srv=a "), numbered("fe=front be=back srv=<none> "));
    let second = numbered("fe=plain be=plain srv=p ");
    let in_full = program.ask(&format!("show sess {first}"));
    let source = client.local_addr().unwrap();
    for part in [
        &format!("source={source}"),
        "listener=entry (id=1)",
        "backend=back (id=",
        "server=a (id=1)",
        "state=server",
    ] {
        assert!(in_full.contains(part), "'{part}' in {in_full}");
    }
    let count = |what: &str| program.ask(&format!("show sess {what}")).matches(": proto=").count();
    assert_eq!(
        ["older 0", "older 1h", "frontend plain", "backend back", "server back/a"].map(count),
        [3, 0, 1, 2, 1]
    );
    // All conditions must hold.
    let combined =
        ["backend back older 1h", "frontend front server back/a", "older 0 backend back frontend plain"];
    assert_eq!(combined.map(count), [0, 1, 0]);
    assert_eq!(program.ask("show sess all server back/a older 0").matches("state=").count(), 1);
    assert_eq!(program.ask(&format!("show sess {first} older 1h")), "Session not found.\n\n");
    assert_eq!(program.ask("show sess older 0 backend none"), "No such backend.\n\n");
    assert_eq!(program.ask("show sess server back/none"), "No such server.\n\n");
    assert!(program.ask("show sess help").contains("older <age>"));
    assert_eq!(program.ask("show sess all").matches("state=").count(), 3);

    assert_eq!(program.ask(&format!("shutdown session {third}")), "\n");
    let answer = common::read_all(&mut queued);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(program.ask(&format!("shutdown session {second}")), "\n");
    assert_eq!(common::read_all(&mut other), "");
    assert_eq!(program.ask(&format!("shutdown session {first}")), "\n");
    let answer = common::read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    let until = std::time::Instant::now() + TIMEOUT;
    while program.ask("show sess") != "\n" {
        assert!(std::time::Instant::now() < until, "{}", program.ask("show sess"));
    }
    assert!(program.ask(&format!("shutdown session {first}")).contains("No such session"));
    assert!(program.ask("show sess susp").contains("older"));
}

/// R-G3: a stream that begins while a dump is under way is not in it. The dump is larger than what the socket
/// holds for a client that has read its first bytes only, so it has not ended when the younger stream begins.
#[test]
fn younger_streams_are_not_in_a_dump_that_began_before() {
    const HOPS: usize = 16;
    const CLIENTS: usize = 300;
    let (silent, requests) = silent_server();
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let ((old, old_address), (young, young_address)) = (listener(), listener());
    let mut chain = String::new();
    for hop in 1..HOPS {
        chain
            .push_str(&format!("listen hop{hop}\n bind local@hop{hop}\n server next local@hop{}\n", hop + 1));
    }
    let program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n{ONE_LANE} mode http\n timeout queue \
            1h\nlisten old\n \
         bind {}\n server next local@hop1\n{chain}listen hop{HOPS}\n bind local@hop{HOPS}\n server s \
         {silent} \
         maxconn 1\nlisten young\n bind {}\n server s {silent}\n",
        socket.display(),
        fd(&old),
        fd(&young),
    ));
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = connect(old_address);
            client.write_all(request).unwrap();
            client
        })
        .collect();
    let program = Controlled { _folder: folder, program, address: old_address, socket };
    let until = std::time::Instant::now() + TIMEOUT;
    while program.ask("show sess").lines().count() < CLIENTS * (HOPS + 1) {
        assert!(std::time::Instant::now() < until, "{}", program.ask("show sess").lines().count());
    }
    requests.recv_timeout(TIMEOUT).unwrap();

    let mut slow = UnixStream::connect(&program.socket).unwrap();
    slow.set_read_timeout(Some(TIMEOUT)).unwrap();
    slow.write_all(b"show sess\n").unwrap();
    let mut first = [0; 64];
    slow.read_exact(&mut first).unwrap();
    let mut younger = connect(young_address);
    younger.write_all(request).unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    let mut rest = String::new();
    slow.read_to_string(&mut rest).unwrap();
    assert!(rest.lines().count() >= CLIENTS * (HOPS + 1), "{} lines", rest.lines().count());
    assert!(!rest.contains("fe=young"), "the younger stream is in the dump");
    assert!(program.ask("show sess").contains("fe=young"));
    drop(clients);
}

/// Streams that wait for a rule end at once in each mode, before they have a server and with one.
#[test]
fn an_operator_ends_streams_that_wait_for_a_rule() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let log = common::watch::Syslog::new();
    let ((web, address), (plain, plain_address)) = (listener(), listener());
    let program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n log {} local0\n{DEFAULTS} mode http\n timeout \
            tarpit 1h\n log global\n\
         frontend front\n bind {}\n log-format \"%ts %ST %HP\"\n http-request tarpit if {{ path /tarpit }}\n \
         http-request pause 1h if {{ path /pause }}\n \
         http-request wait-for-body time 1h if {{ path /body }}\n default_backend back\n\
         backend back\n http-response do-log\n http-response pause 1h\n server a {}\n\
         listen plain\n mode tcp\n bind {}\n log-format \"%ts %ST tcp\"\n tcp-request inspect-delay 1h\n \
         tcp-request content accept if {{ req.len gt 100 }}\n \
         server p {}\n",
        socket.display(),
        log.address(),
        fd(&web),
        named("a"),
        fd(&plain),
        named("p"),
    ));
    let program = Controlled { _folder: folder, program, address, socket };
    for (at, request, order, status, logged) in [
        (address, "GET /tarpit", "shutdown session", "HTTP/1.1 500 ", "KT 500 /tarpit"),
        (address, "GET /pause", "shutdown session", "HTTP/1.1 503 ", "KR 503 /pause"),
        (address, "POST /body", "shutdown session", "HTTP/1.1 503 ", "KR 503 /body"),
        (address, "GET /answer", "shutdown session", "HTTP/1.1 502 ", "KH 502 /answer"),
        (address, "GET /server", "shutdown sessions server back/a", "HTTP/1.1 502 ", "KH 502 /server"),
        (plain_address, "GET /", "shutdown session", "", "KR 0 tcp"),
    ] {
        let mut client = connect(at);
        let length = if request.starts_with("POST") { "Content-Length: 5\r\n" } else { "" };
        client
            .write_all(
                format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{length}\r\n").as_bytes(),
            )
            .unwrap();
        let source = format!(" src={} ", client.local_addr().unwrap());
        let mut number = String::new();
        common::watch::until(|| {
            let shown = program.ask("show sess");
            let own = shown.lines().find(|line| line.contains(&source)).and_then(|line| line.split_once(':'));
            number = own.map(|(number, _)| number.to_owned()).unwrap_or_default();
            !number.is_empty()
        });
        if logged.starts_with("KH") {
            log.wait(&logged[7..]); // the rule before the waiting one
        }
        let order = if order.ends_with("session") { format!("{order} {number}") } else { order.to_owned() };
        assert_eq!(program.ask(&order), "\n", "{request}");
        let answer = common::read_all(&mut client);
        assert!(answer.starts_with(status) && answer.is_empty() == status.is_empty(), "{request}: {answer}");
        log.wait(logged);
    }
}

/// Scripts store marks in variables that no rule names.
#[test]
fn variables_of_the_process_are_made_by_commands() {
    let program = Controlled::new("level admin");
    assert_eq!(program.ask("experimental-mode on; set var proc.mark int(5)").trim_end(), "");
    assert_eq!(program.ask("get var proc.mark"), "proc.mark: type=sint value=<5>\n\n");
    assert_eq!(
        program
            .ask("experimental-mode on; set var proc.more fmt %[var(proc.mark)]-%[var(proc.none)]")
            .trim_end(),
        ""
    );
    assert_eq!(program.ask("get var proc.more"), "proc.more: type=str value=<5->\n\n");
    assert!(program.ask("experimental-mode on; set var proc.bad nope(4)").contains("unknown fetch method"));
    assert!(program.ask("get var proc.bad").starts_with("Variable not found."));
    let mut last = String::new();
    for number in 0..300 {
        last = program.ask(&format!("experimental-mode on; set var proc.n{number} int({number})"));
        if !last.trim().is_empty() {
            break;
        }
    }
    assert!(last.contains("commands have already made 256 variables"), "bounded: {last}");
    assert_eq!(program.ask("experimental-mode on; set var proc.mark int(6)").trim_end(), "");
    assert_eq!(program.ask("get var proc.mark"), "proc.mark: type=sint value=<6>\n\n");
}

/// HAProxy's commands about its internals show what there is of that kind, in the same words.
#[test]
fn an_operator_sees_lanes_tasks_descriptors_and_memory() {
    let program = Controlled::new("level admin");
    let has = |command: &str, parts: &[&str]| {
        let answer = program.ask(command);
        parts.iter().for_each(|part| assert!(answer.contains(part), "'{part}' in {command}: {answer}"));
        answer
    };
    let until = std::time::Instant::now() + TIMEOUT;
    while !program.ask("show activity").contains("thread_id: 1 (1..2)\n") {
        assert!(std::time::Instant::now() < until, "the second lane begins");
    }
    has("show activity", &["\nloops: ", " [ ", "\ntasksw: "]);
    let threads = has("show threads", &["* Thread ", " Thread 2 : ", "act=1"]);
    assert_eq!(threads.matches(" Thread ").count(), 2, "{threads}");
    has("show tasks", &["Running tasks: ", " (2 threads)\n"]);
    // Rows of numbers with a name: of a lane, or of a class of locks, which appears once a thread has waited.
    for (command, head, rows) in [
        ("show lanes", "# lane live ", 2..=2),
        ("show contention", "# lock_class waits total_us longest_us\n", 0..=usize::MAX),
    ] {
        let answer = has(command, &[head]);
        let mut lines =
            answer.lines().filter(|line| !line.is_empty()).map(|line| line.split(' ').collect::<Vec<_>>());
        let columns = lines.next().unwrap().len() - 1;
        let values: Vec<_> = lines.collect();
        assert!(rows.contains(&values.len()), "{answer}");
        for row in values {
            assert_eq!(row.len(), columns, "{answer}");
            row[1..4].iter().for_each(|value| assert!(value.parse::<u64>().is_ok(), "{answer}"));
        }
    }
    let local = format!("local={} st=LISTEN", program.address);
    // The same address, as part of a longer name.
    let unix = format!("socket unix local={}", program.socket.display());
    let all = has("show fd", &[&local, &unix]);
    let line = all.lines().find(|line| line.contains(&local)).unwrap();
    let number = line.split(':').next().unwrap().trim();
    assert_eq!(program.ask(&format!("show fd {number}")), format!("{line}\n\n"));
    has("show fd x", &["the number of a descriptor"]);
    has("debug dev memstats", &["expert-mode on"]);
    has("expert-mode on; debug dev memstats", &[" size: ", " calls: "]);
    let tasks = has("expert-mode on; debug dev memstats match tas", &["task_"]);
    assert!(
        // Rows of code positions, where known, follow that of the pool.
        tasks
            .lines()
            .all(|line| line.is_empty() || ["tas", "#", "  "].iter().any(|begin| line.starts_with(begin))),
        "{tasks}"
    );
    has("expert-mode on; debug dev memstats reset", &["Nothing is reset"]);
    let pools = has("show pools detailed", &["Dumping pools usage.\n", "\n      > lane 0 : "]);
    let name = pools.split(" - Pool ").nth(1).unwrap().split(' ').next().unwrap();
    let one = has(&format!("show pools bysize match {name} 1"), &["Total: 1 pools"]);
    assert_eq!(one.matches(" - Pool ").count(), 1, "{one}");
    has("show pools match", &["Expects either 'byname'"]);
}

/// Only the requested parts are shown.
#[test]
fn profiling_is_shown_as_it_is_requested() {
    let program = Controlled::new("level admin");
    const STATUS: &str = "Per-task CPU profiling              : ";
    const TASKS: &str = "Tasks activity:\n  kind ";
    assert_eq!(program.ask("set profiling tasks on"), "\n");
    let shows = |command: &str, wanted: [bool; 3]| {
        let answer = program.ask(command);
        assert_eq!(
            [STATUS, TASKS, " size: "].map(|part| answer.contains(part)),
            wanted,
            "{command}: {answer}"
        );
        assert!(
            answer.lines().all(|line| line.contains(" size: ") || line.starts_with('#') || line.len() <= 80),
            "R-G6: {answer}"
        );
        answer
    };
    let until = std::time::Instant::now() + TIMEOUT;
    while program.ask("show profiling tasks").lines().count() < 4 {
        assert!(std::time::Instant::now() < until, "tasks are measured");
    }
    for all in ["show profiling", "show profiling all", "show profiling byaddr", "show profiling all bytime"]
    {
        shows(all, [true, true, true]);
    }
    assert!(shows("show profiling status", [true, false, false]).contains(" : on "));
    shows("show profiling memory", [false, false, true]);
    let one = shows("show profiling tasks 1", [false, true, false]);
    assert_eq!(one.trim_end().lines().count(), 3, "{one}");
    assert!(program.ask("show profiling bogus").starts_with("Expects either 'all', "));
    assert!(program.ask("set profiling bogus").starts_with("Expects either 'tasks' or 'memory'."));
}

#[test]
fn a_schema_describes_what_is_shown() {
    let program = Controlled::new("level admin");
    let schema: serde_json::Value = serde_json::from_str(&program.ask("show schema json")).unwrap();
    let info: serde_json::Value = serde_json::from_str(&program.ask("show info json")).unwrap();
    let stat: serde_json::Value = serde_json::from_str(&program.ask("show stat json")).unwrap();
    for (title, members, object) in [
        ("Info", &schema["oneOf"][0]["items"], &info[0]),
        ("Stat", &schema["oneOf"][1]["items"]["items"], &stat[0][0]),
    ] {
        let mut required: Vec<&str> =
            members["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        required.sort_unstable();
        let mut own: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
        own.sort_unstable();
        assert_eq!(own, required, "{title}");
    }
}

/// Those who gave up shut nobody out: `stats maxconn` is 10.
#[test]
fn who_leaves_during_wait_gives_its_permit_back() {
    let program = Controlled::new("level admin");
    assert!(program.ask("show version").contains('.'));
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let mut client = UnixStream::connect(&program.socket).unwrap();
            client.write_all(b"wait 1h\n").unwrap();
            client
        })
        .collect();
    drop(waiting);
    assert!(program.ask("show version").contains('.'));
}

/// What is behind `wait` is for a time that has not come when the client leaves.
#[test]
fn nothing_behind_a_wait_happens_once_its_client_is_gone() {
    let program = Controlled::new("level admin");
    assert!(program.ask("show version").contains('.'));
    let mut client = UnixStream::connect(&program.socket).unwrap();
    client.write_all(b"set weight back/a 7; wait 1h; set weight back/a 9\n").unwrap();
    let weight = || program.ask("get weight back/a");
    common::watch::until(|| weight().starts_with("7 "));
    let wait = |_| {
        let mut client = UnixStream::connect(&program.socket).unwrap();
        client.write_all(b"wait 1h\n").unwrap();
        client
    };
    let _others: Vec<_> = (0..9).map(wait).collect();
    drop(client);
    // `stats maxconn` is 10: this is answered when the client that left has given its permit back.
    let weight = weight();
    assert!(weight.starts_with("7 "), "{weight}");
}

/// `wait` waits for a time, or until a server may be removed.
#[test]
fn an_operator_waits_until_a_server_serves_nobody() {
    let (program, requests) = with_a_silent_server();
    let address = program.address;
    assert_eq!(program.ask("wait 1"), "Done.\n\n");
    assert!(program.ask("wait 1 srv-removable back/a").starts_with("Only servers in maintenance mode"));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    requests.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(program.ask("disable server back/a"), "\n");
    assert_eq!(program.ask("wait 50ms srv-unused back/a"), "Wait delay expired.\n\n");
    assert_eq!(program.ask("shutdown sessions server back/a"), "\n");
    assert_eq!(program.ask("wait 1h srv-unused back/a"), "Done.\n\n");
    for (wrong, said) in [
        ("wait", "Expects a duration in milliseconds."),
        ("wait soon", "Invalid duration: expected "),
        ("wait 25d", "Invalid duration: expected "),
        ("wait -h", "'wait {-h | <delay>}"),
        ("add server help", "Options of a server that 'add server' takes:\n"),
        ("wait 1h -h", "'wait {-h | <delay>}"),
        ("wait 2d srv-removable back/none", "No such server."),
        ("wait 1 nothing", "'wait' expects 'srv-removable <backend>/<server>'"),
    ] {
        assert!(program.ask(wrong).starts_with(said), "{wrong}");
    }
}

/// An address where nothing listens and that no other program uses, so its ports are free.
fn own_address() -> std::net::SocketAddr {
    let [address] = own_addresses();
    address
}

/// Several different such addresses.
fn own_addresses<const COUNT: usize>() -> [std::net::SocketAddr; COUNT] {
    let host = std::net::Ipv4Addr::from(0x7f40_0000 | std::process::id() & 0x3f_ffff);
    let taken = [(); COUNT].map(|()| std::net::TcpListener::bind((host, 0)).unwrap());
    taken.map(|listener| listener.local_addr().unwrap())
}

/// A disabled frontend refuses new connections and keeps the others; enabled again it accepts, also after a
/// reload.
#[test]
fn an_operator_closes_a_frontend_and_opens_it_again() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let address = own_address();
    let program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n{DEFAULTS} mode http\nfrontend front\n bind \
            {address}\n default_backend back\n\
         backend back\n server a {}\n",
        socket.display(),
        named("a"),
    ));
    let program = Controlled { _folder: folder, program, address, socket };
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let ask = |client: &mut std::net::TcpStream| {
        client.write_all(request).unwrap();
        let mut bytes = [0; 4096];
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\na") {
            let length = client.read(&mut bytes).unwrap();
            assert!(length > 0, "it is closed: {}", String::from_utf8_lossy(&answer));
            answer.extend(&bytes[..length]);
        }
    };
    // Each lane applies it when it next runs.
    let waits_for = |what: &str, is_so: &dyn Fn() -> bool| {
        let until = std::time::Instant::now() + TIMEOUT;
        while !is_so() {
            assert!(std::time::Instant::now() < until, "{what}");
            manylane_tests::look_again();
        }
    };
    let is_refused = || std::net::TcpStream::connect(program.address).is_err();
    let status = |wanted: &str| {
        let stat = program.ask("show stat front 1 -1");
        assert!(stat.contains(&format!(",{wanted},")), "{wanted} in {stat}");
    };
    waits_for("the program has begun", &|| !is_refused());
    let mut client = connect(program.address);
    ask(&mut client);
    for _ in 0..3 {
        assert_eq!(program.ask("disable frontend front"), "\n");
        status("PAUSED");
        waits_for("connections are refused", &is_refused);
        ask(&mut client);
        assert_eq!(program.ask("disable frontend front"), "All sockets are already disabled.\n\n");
        assert_eq!(program.ask("enable frontend front"), "\n");
        status("OPEN");
        waits_for("connections are taken", &|| !is_refused());
        ask(&mut connect(program.address));
    }
    assert_eq!(program.ask("disable frontend front"), "\n");
    waits_for("connections are refused", &is_refused);
    let reloaded = program.ask("reload");
    assert!(reloaded.contains("Reloaded: generation"), "{reloaded}");
    status("PAUSED");
    assert!(is_refused());
    assert_eq!(program.ask("enable frontend front"), "\n");
    waits_for("connections are taken", &|| !is_refused());
    ask(&mut connect(program.address));
    assert_eq!(program.ask("shutdown frontend front"), "\n");
    status("STOP");
    waits_for("connections are refused", &is_refused);
    for (command, answer) in [
        ("enable frontend front", "Frontend was previously shut down, cannot enable.\n\n"),
        ("disable frontend front", "Frontend was previously shut down, cannot disable.\n\n"),
        ("shutdown frontend front", "Frontend was already shut down.\n\n"),
        ("enable frontend nope", "No such frontend.\n\n"),
        ("enable frontend", "A frontend name is expected.\n\n"),
    ] {
        assert_eq!(program.ask(command), answer);
    }
    ask(&mut client);
}

/// If the system does not let the frontend listen again, the command says so, and all of its sockets stay
/// closed.
#[test]
fn a_frontend_that_cannot_listen_stays_disabled_and_says_why() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let [first, second] = own_addresses();
    let program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n nbthread 2\n{DEFAULTS} mode http\nfrontend front\n bind \
            {first}\n bind {second}\n \
         http-request return content-type text/plain string a\n",
        socket.display(),
    ));
    let program = Controlled { _folder: folder, program, address: first, socket };
    let are_refused = || [first, second].map(|address| std::net::TcpStream::connect(address).is_err());
    assert_eq!(program.ask("disable frontend front"), "\n");
    assert_eq!(are_refused(), [true, true]);
    let other = std::net::TcpListener::bind(second).unwrap();
    let answer = program.ask("enable frontend front");
    assert!(answer.starts_with("The frontend stays disabled: cannot listen on "), "{answer}");
    assert!(answer.contains(&second.to_string()), "{answer}");
    assert!(program.ask("show stat front 1 -1").contains(",PAUSED,"));
    drop(other);
    // Another test may start a program at this moment, which holds a copy of the socket until it runs.
    common::watch::until(|| are_refused() == [true, true]);
    assert_eq!(program.ask("enable frontend front"), "\n");
    for address in [first, second] {
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        assert!(common::read_all(&mut client).ends_with("\r\n\r\na"));
    }
}

/// Sockets of a disabled frontend that has another name or backlog in the new file follow that file.
#[test]
fn a_reload_gives_the_sockets_of_a_disabled_frontend_to_whose_they_are_now() {
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let address = own_address();
    let file = |name: &str, backlog: u32| {
        format!(
            "global\n stats socket {} level admin\n nbthread 2\n{DEFAULTS} mode http\nfrontend {name}\n bind \
                {address} backlog {backlog}\n \
             http-request return content-type text/plain string a\n",
            socket.display(),
        )
    };
    let config = folder.file("reloaded", &file("front", 10));
    let program = Manylane::start_as("", |command| {
        command.arg("-f").arg(&config);
    });
    let program = Controlled { _folder: folder, program, address, socket: socket.clone() };
    let is_refused = || std::net::TcpStream::connect(address).is_err();
    common::watch::until(|| !is_refused());
    let reload = |text: String| {
        std::fs::write(&config, text).unwrap();
        let reloaded = program.ask("reload");
        assert!(reloaded.contains("Reloaded: generation"), "{reloaded}");
    };
    assert_eq!(program.ask("disable frontend front"), "\n");
    common::watch::until(is_refused);
    reload(file("front", 20));
    assert!(is_refused());
    reload(file("other", 20));
    common::watch::until(|| !is_refused());
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    assert!(common::read_all(&mut client).ends_with("\r\n\r\na"));
}

/// An inherited socket may be shared with other processes: clients that connect while its frontend is
/// disabled wait, and are served once it is enabled.
#[test]
fn who_connects_to_an_inherited_socket_of_a_frontend_that_is_disabled_waits() {
    let program = Controlled::new("level admin");
    assert_eq!(program.ask("disable frontend front"), "\n");
    let mut client = connect(program.address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(program.ask("enable frontend front"), "\n");
    assert!(common::read_all(&mut client).starts_with("HTTP/1.1 200 "));
    assert_eq!(program.ask("shutdown frontend front"), "\n");
}

#[test]
fn a_page_shows_what_the_commands_say() {
    let (web, address) = listener();
    let _program = Manylane::start(&format!(
        "global\n nbthread 2\n{DEFAULTS} mode http\nfrontend front\n bind {} name one\n option \
            socket-stats\n stats uri /stats\n stats show-desc <i>\n default_backend back\n\
         backend back\n server a {}\n server b 127.0.0.1:9 disabled\nbackend other\n server c 127.0.0.1:9\n",
        fd(&web),
        named("a"),
    ));
    let get = |target: &str| {
        let mut client = connect(address);
        client.write_all(format!("GET {target} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
        let answer = common::read_all(&mut client);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{target}: {head}");
        body.to_owned()
    };
    let page = get("/stats");
    for part in [
        "<caption>front</caption>",
        ">one</td>",
        "<caption>other</caption>",
        "&lt;i&gt;",
        ">b</td>",
        "class=maint",
        "</html>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!get("/stats;no-maint").contains(">b</td>"));
    let scoped = get("/stats?scope=oth");
    assert!(
        scoped.contains("<caption>other</caption>") && !scoped.contains("<caption>back</caption>"),
        "{scoped}"
    );
    let csv = get("/stats;csv");
    let names: Vec<_> =
        csv.lines().map(|line| line.split(',').take(2).collect::<Vec<_>>().join("/")).collect();
    assert_eq!(
        names,
        [
            "# pxname/svname",
            "front/FRONTEND",
            "front/one",
            "back/a",
            "back/b",
            "back/BACKEND",
            "other/c",
            "other/BACKEND"
        ]
    );
    let json = get("/stats;json");
    assert!(json.starts_with("[[{") && json.ends_with("}]]\n"), "{json}");
}

/// `show errors` shows messages with invalid body framing from both sides, and the position of the error.
#[test]
fn bodies_that_are_framed_wrongly_are_shown_with_what_could_not_be_read() {
    let server = origin(|mut stream| {
        let mut bytes = [0; 4096];
        let _ = stream.read(&mut bytes);
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nqq\r\nmore");
        let _ = stream.read(&mut bytes);
    });
    let ((web, address), (plain, unruled)) = (listener(), listener());
    let folder = common::Folder::new();
    let socket = folder.0.join("control");
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {}\n{DEFAULTS} mode http\nfrontend f\n bind {}\n http-request wait-for-body \
            time 10s if {{ path /waits }}\n\
         default_backend b\nbackend b\n http-response wait-for-body time 10s if {{ status 200 }}\n server s \
         {server}\nfrontend g\n bind {}\n default_backend b\n",
        socket.display(),
        fd(&web),
        fd(&plain),
    ));
    let ask = |address, path: &str, body: &str| {
        let mut client = connect(address);
        write!(client, "POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
            .unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        String::from_utf8(answer.into()).unwrap()
    };
    let shown = |kind: &str| common::watch::ask(&socket, &format!("show errors -1 {kind}"));
    assert_eq!(ask(address, "/waits", "3\r\nabc\r\nzz\r\nrest"), "HTTP/1.1 400");
    let text = shown("request");
    assert!(
        text.contains(
            "frontend f (#2): invalid request\n  backend <NONE> (#-1), server <NONE> (#-1), \
        event #0, src 127.0.0.1:"
        ),
        "{text}"
    );
    assert!(
        text.contains("  00000  3\\r\\n\n  00003  abc\\r\\n\n  00008  zz\\r\\n\n  00012  rest\n")
            && text.contains("len 16, error at position 8: "),
        "{text}"
    );
    assert_eq!(ask(unruled, "/goes", "2\r\nabX\r\n"), "HTTP/1.1 400");
    let text = shown("request");
    assert!(text.contains("  backend b (#3), server <NONE> (#-1), event #0, src 127.0.0.1:"), "{text}");
    assert!(text.contains("  00000  2\\r\\n\n  00003  abX\\r\\n\n"), "{text}");
    assert_eq!(ask(address, "/answered", "0\r\n\r\n"), "HTTP/1.1 502");
    let text = shown("response");
    assert!(
        text.contains(
            "backend b (#3): invalid response\n  frontend f (#2), server s (#1), event #0, src 127.0.0.1:"
        ),
        "{text}"
    );
    assert!(text.contains("  00008  qq\\r\\n\n  00012  more\n"), "{text}");
}

/// `debug dev log` writes to the targets of `global`, only in expert mode.
#[test]
fn a_line_can_be_written_to_the_log() {
    let (log, lines) = common::watch::log_lines();
    let folder = Folder::new();
    let socket = folder.file("unused", "").with_file_name("control");
    let (web, address) = listener();
    let program = Manylane::start(&format!(
        "global\n stats socket {} level admin\n log {log} local0\n{DEFAULTS} mode http\nfrontend front\n \
            bind {}\n",
        socket.display(),
        fd(&web),
    ));
    let program = Controlled { _folder: folder, program, address, socket };
    assert!(program.ask("debug dev log not written").contains("expert-mode on"));
    assert_eq!(program.ask("expert-mode on; debug dev log some words").trim(), "");
    let line = std::iter::from_fn(|| lines.recv_timeout(TIMEOUT).ok())
        .inspect(|line| assert!(!line.contains("not written"), "{line}"))
        .find(|line| line.contains("some words"))
        .expect("a line");
    assert!(line.starts_with("<134>") && line.trim_end().ends_with("]: some words"), "{line}"); // local0.info
}
