//! The process: command line, exit codes, signals.

use crate::common;

use common::{
    DEFAULTS, Ended, Folder, Manylane, ONE_LANE, check, command, connect, echo, end_of, fd, listener,
    manylane, origin, read_all,
};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first signal is enough, for a process without a master, too.
#[test]
fn a_fault_that_another_process_sends_ends_the_process() {
    for signal in [Signal::SIGSEGV, Signal::SIGBUS] {
        let (socket, _) = listener();
        let config = format!("{DEFAULTS}listen l\n bind {}\n server s 127.0.0.1:9\n", fd(&socket));
        let mut program = Manylane::start_ready(&config);
        program.signal(signal);
        assert_eq!(program.wait().signal(), Some(signal as i32));
    }
}

#[test]
fn a_check_ends_with_haproxys_codes() {
    let good = check(&format!("{DEFAULTS}listen l\n bind 127.0.0.1:80\n server s 127.0.0.1:81\n"), &[]);
    assert_eq!(good.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&good.stdout), "");
    let good = format!("{DEFAULTS}listen l\n bind 127.0.0.1:80\n server s 127.0.0.1:81\n");
    let confirmed = check(&good, &["-V"]);
    assert_eq!(String::from_utf8_lossy(&confirmed.stdout), "Configuration file is valid\n");
    if let Some(theirs) = common::watch::Haproxy::program() {
        let folder = Folder::new();
        let file = folder.file("test.cfg", &good);
        for (words, expected) in [(&["-c"][..], ""), (&["-c", "-V"], "Configuration file is valid\n")] {
            let output = std::process::Command::new(&theirs).args(words).arg("-f").arg(&file).output();
            assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout), expected, "{words:?}");
        }
    }
    let bad = check("listen l\n bind 127.0.0.1:80\n maxcon 1\n", &[]);
    assert_eq!(bad.status.code(), Some(1));
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(said.contains("unknown keyword 'maxcon' in 'listen' section; did you mean 'maxconn'?"), "{said}");
    let silent = check(&format!("{DEFAULTS}backend b\n server s 127.0.0.1:81\n"), &[]);
    assert_eq!(silent.status.code(), Some(2));
    let warned = check("listen l\n bind 127.0.0.1:80\n server s 127.0.0.1:81\n", &["-dW"]);
    assert_eq!(warned.status.code(), Some(1));
}

#[test]
fn a_check_without_a_file_says_that_it_expects_one() {
    let bare = command().arg("-c").output().unwrap();
    assert_eq!(bare.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&bare.stdout), "");
    let said = String::from_utf8_lossy(&bare.stderr).into_owned();
    let expected = " : expected a configuration, found none: name a file or a folder by '-f <path>'\n";
    assert!(said.starts_with("[ALERT]") && said.ends_with(expected) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_check_knows_users_and_groups() {
    let config = format!("{DEFAULTS}global\n user nobody-of-that-name\n group none-of-that-name\n");
    let bad = check(&format!("{config}listen l\n bind 127.0.0.1:80\n server s 127.0.0.1:81\n"), &[]);
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(bad.status.code(), Some(1), "{said}");
    assert!(said.contains("'user' expects a user of this system, found 'nobody-of-that-name'"), "{said}");
    assert!(said.contains("'group' expects a group of this system, found 'none-of-that-name'"), "{said}");
}

/// Without this check, `-c` would accept what cannot start.
#[test]
fn a_check_looks_for_what_the_system_must_have() {
    let config = "global
 nbthread 2
 stats socket /nowhere/s user nobody-of-that-name thread 7
 unix-bind group none-of-that-name
listen l
 timeout client 1s
 timeout server 1s
 timeout connect 1s
 bind 127.0.0.1:81 thread 3-9
 bind 127.0.0.1:82 thread 2-9
 bind unix@/nowhere/u user nobody-of-that-name group none-of-that-name
 bind fd@7777
 bind sockpair@7778
 bind 127.0.0.1:83 namespace none-of-that-name
 server a 127.0.0.1:84 namespace none-of-that-name
 server b 127.0.0.1:85 namespace *
";
    let outcome = check(config, &[]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let mut all: Vec<(u32, u32, &str)> = Vec::new();
    for line in said.lines() {
        let Some((_, place)) = line.split_once("test.cfg:") else { continue };
        match place.split_once("] : ") {
            Some((number, sentence)) => {
                all.push((number.parse().unwrap(), 0, sentence.split([';', ':']).next().unwrap()));
            }
            // The line of the position.
            None => {
                let (number, column) = place.split_once(':').unwrap();
                let last = all.last_mut().filter(|last| last.0.to_string() == number).unwrap();
                last.1 = column.parse().unwrap();
            }
        }
    }
    assert_eq!(
        all,
        [
            (3, 31, "'user' expects a user of this system, found 'nobody-of-that-name'"),
            (3, 58, "'thread' expects lanes from 1 to 2, found none of them"),
            (4, 18, "'group' expects a group of this system, found 'none-of-that-name'"),
            (9, 27, "'thread' expects lanes from 1 to 2, found none of them"),
            (11, 28, "'user' expects a user of this system, found 'nobody-of-that-name'"),
            (11, 54, "'group' expects a group of this system, found 'none-of-that-name'"),
            (12, 7, "cannot use 'fd@7777'"),
            (13, 7, "cannot use 'sockpair@7778'"),
            (14, 30, "'namespace' expects a network namespace of this system, found 'none-of-that-name'"),
            (15, 34, "'namespace' expects a network namespace of this system, found 'none-of-that-name'"),
        ],
        "{said}"
    );
    assert_eq!(outcome.status.code(), Some(1));
}

/// Lines of the file see these variables, and rules evaluate them when the file is read.
#[test]
fn variables_of_the_program_are_defined() {
    let reported =
        ".notice \"$HAPROXY_LOCALPEER $HAPROXY_CFGFILES $HAPROXY_BRANCH $HAPROXY_STARTUP_VERSION\"\n";
    let peer = ".if streq(\"$HAPROXY_LOCALPEER\",of-the-file)\n.notice \"as the file says\"\n.endif\n";
    let listen = "listen l\n mode http\n bind 127.0.0.1:80\n server s 127.0.0.1:81\n log-format \
        \"${HAPROXY_HTTP_LOG_FMT} x ${HAPROXY_TCP_LOG_FMT} ${HAPROXY_HTTP_CLF_LOG_FMT}\"\n";
    let config = format!("{reported}{DEFAULTS}global\n localpeer of-the-file\n{peer}{listen}");
    let outcome = check(&config, &[]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(0), "{said}");
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let first = said.lines().find(|line| line.contains("test.cfg:1]")).unwrap();
    assert!(first.contains(&host) && first.contains("/test.cfg 3.5 0."), "{said}");
    assert!(said.contains("as the file says"), "{said}");
    let given = check(&config, &["-L", "of-the-line"]);
    let said = String::from_utf8_lossy(&given.stderr).into_owned();
    assert!(said.contains("'of-the-line ") && !said.contains("as the file says"), "{said}");
    assert!(
        said.contains("'localpeer' has no effect: the command line says another name with '-L'"),
        "{said}"
    );

    let (socket, address) = listener();
    let folder = Folder::new();
    let config = format!(
        "{DEFAULTS} mode http\nglobal\n setenv OWN x\n stats socket {0}/s level admin\n stats socket \
            abns@manylane-test-{2}\nlisten l\n bind {1}\n \
         http-request return status 200 content-type text/plain lf-string \
         \"%[env(HAPROXY_LOCALPEER)]|%[env(HAPROXY_CLI)]|\"\n",
        folder.0.display(),
        fd(&socket),
        std::process::id()
    );
    let _program = Manylane::start_with(&config, &["-L", "me"]);
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    let expected = format!("me|unix@{}/s;abns@manylane-test-{}|", folder.0.display(), std::process::id());
    assert!(answer.ends_with(&expected), "{answer}");
    let mut control = std::os::unix::net::UnixStream::connect(folder.0.join("s")).unwrap();
    control.write_all(b"show env OWN;show env HAPROXY_CLI\n").unwrap();
    let mut said = String::new();
    control.read_to_string(&mut said).unwrap();
    assert!(said.contains("OWN=x\n") && said.contains("HAPROXY_CLI=unix@"), "{said}");
}

#[test]
fn what_is_not_built_is_refused_by_name_with_its_position() {
    for (line, keyword) in [
        (" cpu-affinity per-core\n", "cpu-affinity"),
        ("ring r\n backing-file /nowhere\n", "backing-file"),
        ("backend m\n compression algo gzip\n", "compression"),
    ] {
        let config = format!("global\n{line}{}", DEFAULTS.replace("global\n nbthread 2\n", ""));
        let outcome = check(&config, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), Some(1), "{line}: {said}");
        let named =
            said.lines().any(|line| line.contains(&format!("'{keyword}'")) && line.contains("test.cfg:"));
        assert!(named && said.contains("\n  --> "), "{line}: {said}");
    }
}

#[test]
fn dynamic_cookies_that_would_not_work_are_reported() {
    for (lines, sentence) in [
        (" server a 127.0.0.1:82\n", "expects a 'dynamic-cookie-key', found none: no server has a cookie"),
        (" dynamic-cookie-key k\n server a /nowhere\n", "found server 'a' without: it has no cookie"),
        (
            " dynamic-cookie-key k\n server a 127.0.0.1:82\n server b 127.0.0.1:82\n",
            "servers 'a' and 'b' have the same cookie",
        ),
    ] {
        let config =
            format!("{DEFAULTS} mode http\nlisten l\n bind 127.0.0.1:81\n cookie S insert dynamic\n{lines}");
        let outcome = check(&config, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(said.contains(sentence) && outcome.status.success(), "{lines}: {said}");
    }
}

/// Lanes inherit the nice value, and so do later threads.
#[test]
fn a_process_is_as_nice_as_the_file_says_while_it_runs() {
    let (socket, address) = listener();
    let global = DEFAULTS
        .replace("global\n", "global\n tune.renice.startup 3\n tune.renice.runtime 5\n set-dumpable\n");
    let program =
        Manylane::start(&format!("{global}listen l\n bind {}\n server s {}\n", fd(&socket), echo()));
    let mut stream = connect(address);
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let nice = |task: &std::path::Path| {
        let text = std::fs::read_to_string(task.join("stat")).unwrap();
        let behind = text.rsplit_once(") ").unwrap().1; // the name may contain anything
        behind.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
    };
    let tasks = std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let all: Vec<i32> = tasks.map(|task| nice(&task.unwrap().path())).collect();
    assert!(all.len() > 2 && all.iter().all(|nice| *nice == 5), "{all:?}");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.pid())).unwrap();
    let core: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max core")).unwrap().split_whitespace().collect();
    assert_eq!(core[4], core[5], "as large as it may be");
}

/// As in HAProxy, the first warning or error of the start follows a line with the program's version and one
/// with its path. Without warnings there are no such lines.
#[test]
fn the_first_warning_stands_behind_the_version_and_the_path() {
    let folder = Folder::new();
    let without = format!("{DEFAULTS} mode http\nlisten l\n bind 127.0.0.1:81\n server s 127.0.0.1:82\n");
    let with = without.clone() + " use_backend l if TRUE\n http-request deny\n";
    let [without, with] =
        [("without.cfg", without), ("with.cfg", with)].map(|(name, text)| folder.file(name, &text));
    let said = |program: &std::path::Path, words: &[&str], file: &std::path::Path| {
        let mut command = std::process::Command::new(program);
        let output = command.args(words).arg("-f").arg(file).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let ours = std::path::PathBuf::from(command().get_program());
    let theirs = common::watch::Haproxy::program().map(|program| ("haproxy", program));
    for (name, program) in [("manylane", ours)].into_iter().chain(theirs) {
        let introduction = |said: &str| {
            let lines: Vec<_> = said.lines().take(3).collect();
            let [version, path, first] = lines[..] else { panic!("{said}") };
            assert!(version.starts_with("[NOTICE]   ("), "{said}");
            assert!(version.contains(&format!(") : {name} version is ")), "{said}");
            assert!(
                path.starts_with("[NOTICE]   (") && path.contains(") : path to executable is /"),
                "{said}"
            );
            assert!(first.starts_with("[WARNING]  (") || first.starts_with("[ALERT]    ("), "{said}");
            assert_eq!(said.matches("path to executable").count(), 1, "{said}");
        };
        introduction(&said(&program, &["-c"], &with));
        introduction(&said(&program, &["-dW", "-c"], &with));
        introduction(&said(&program, &[], std::path::Path::new("/nowhere")));
        assert_eq!(said(&program, &["-c"], &without), "");
        assert_eq!(said(&program, &["-c", "-q"], &with), "");
    }
}

#[test]
fn each_mistake_is_reported_once() {
    let config = format!(
        "{DEFAULTS} mode http\nlisten l\n bind 127.0.0.1:80\n log-format \"%[nope]\"\n error-log-format \
            \"%[neither]\"\n acl a pth /\n \
         http-request deny if a\n server s 127.0.0.1:81\n server s 127.0.0.1:82\n server t 127.0.0.1:83 \
         track none\n \
         server u 127.0.0.1:83 track nobody/none\nlisten m\n bind 127.0.0.1:84\n log-format \"%ci\"\n server \
         s 127.0.0.1:81\n"
    );
    let outcome = check(&config, &[]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let reported =
        |part: &str| said.lines().filter(|line| line.starts_with('[') && line.contains(part)).count();
    for part in ["'nope'", "'neither'", "'pth'", "'s'", "'none'", "'nobody/none'", "log format ignored"] {
        assert_eq!(reported(part), 1, "{part}: {said}");
    }
    let alerts =
        said.lines().filter(|line| line.starts_with("[ALERT]") && line.contains(" : parsing ")).count();
    assert_eq!((alerts, reported("WARNING")), (6, 1), "{said}");
}

#[test]
fn quiet_means_that_the_code_alone_tells() {
    let folder = Folder::new();
    let (bad, missing) = (folder.file("bad.cfg", "frontend f\n maxcon 1\n"), folder.0.join("none.cfg"));
    let silent = |words: &[&std::ffi::OsStr]| {
        let outcome = command().arg("-q").args(words).output().unwrap();
        assert_eq!((&*outcome.stdout, &*outcome.stderr), (&b""[..], &b""[..]), "{words:?}");
        outcome.status.code()
    };
    assert_eq!(silent(&["-c".as_ref(), "-f".as_ref(), bad.as_ref()]), Some(1));
    assert_eq!(silent(&["-f".as_ref(), bad.as_ref()]), Some(1));
    assert_eq!(silent(&["-c".as_ref(), "-f".as_ref(), missing.as_ref()]), Some(1));
    let empty = Folder::new();
    assert_eq!(silent(&["-c".as_ref(), "-f".as_ref(), empty.0.as_ref()]), Some(1));
    let reported = command().arg("-c").arg("-f").arg(&empty.0).output().unwrap();
    assert!(String::from_utf8_lossy(&reported.stderr).contains("expects files whose names end in .cfg"));
}

#[test]
fn a_soft_stop_lets_sessions_finish_and_ends_with_0() {
    let (socket, address) = listener();
    let config = format!("{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
    let (mut program, mut said) = Manylane::start_heard(&config, &[]);
    let mut stream = connect(address);
    let mut byte = [0];
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut byte).unwrap();
    program.signal(Signal::SIGUSR1);
    let stopped = said.find(|line| line.as_ref().unwrap().contains("Proxy l stopped"));
    assert!(stopped.is_some());
    assert!(program.runs());
    stream.write_all(b"b").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "b");
    assert_eq!(program.wait().code(), Some(0));
}

/// The client may have sent its request already, and only this process can respond. With rules for
/// connections a session waits at another place.
#[test]
fn a_client_that_has_just_connected_may_ask_although_the_process_stops() {
    let check = |rule: &str| {
        let (socket, address) = listener();
        let config = format!(
            "{DEFAULTS} mode http\nfrontend f\n bind {}\n{rule} http-request return status 200\n",
            fd(&socket)
        );
        let (mut program, mut said) = Manylane::start_heard(&config, &[]);
        let (mut asks, mut silent, mut requested) = (connect(address), connect(address), connect(address));
        // Once it gets a response, earlier connections have been accepted.
        ask(&mut requested);
        program.signal(Signal::SIGUSR1);
        assert!(said.any(|line| line.unwrap().contains("Proxy f stopped")));
        // Its lane closes it, so the other clients of that lane know of the stop, too.
        assert_eq!(end_of(&mut requested), Ok(()));
        let head = ask(&mut asks).to_lowercase();
        assert!(head.starts_with("http/1.1 200 ") && head.contains("connection: close"), "{head}");
        assert_eq!(read_all(&mut silent), "", "it has nothing to answer");
        assert_eq!(program.wait().code(), Some(0));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| check(""));
        scope.spawn(|| check(" tcp-request connection accept\n"));
    });
}

/// Sends a request on a kept connection; returns the head of the response.
fn ask(client: &mut TcpStream) -> String {
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut reader = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    head
}

#[test]
fn with_close_spread_time_a_soft_stop_closes_clients_one_by_one_or_not_at_all() {
    let start = |window: &str| {
        let (socket, address) = listener();
        let config = DEFAULTS.replace("global\n", &format!("global\n close-spread-time {window}\n"));
        let rule = " http-request return status 200\n";
        let config = format!("{config} mode http\nlisten l\n bind {}\n{rule}", fd(&socket));
        let (program, said) = Manylane::start_heard(&config, &[]);
        let mut clients: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
        clients.iter_mut().for_each(|client| assert!(ask(client).contains(" 200 ")));
        program.signal(Signal::SIGUSR1);
        let mut said = said;
        assert!(said.any(|line| line.unwrap().contains("Proxy l stopped")));
        (program, said, clients)
    };
    let (mut program, _said, clients) = start("3s"); // longer than any thread is delayed
    let over: Vec<std::time::Instant> = std::thread::scope(|scope| {
        let wait = |mut client: TcpStream| {
            scope.spawn(move || {
                assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
                std::time::Instant::now()
            })
        };
        let threads: Vec<_> = clients.into_iter().map(wait).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(program.wait().code(), Some(0));
    let apart = *over.iter().max().unwrap() - *over.iter().min().unwrap();
    assert!(apart.as_millis() >= 40, "{apart:?}");

    let (mut program, _said, clients) = start("infinite");
    for mut client in clients {
        let head = ask(&mut client).to_ascii_lowercase();
        assert!(head.contains(" 200 ") && !head.contains("connection: close"), "{head}");
    }
    assert_eq!(program.wait().code(), Some(0), "all have left");
}

/// Each client gets complete responses until its connection closes between two of them.
#[test]
fn a_soft_stop_under_load_cuts_no_answer() {
    const BODY: usize = 20_000;
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
        while reader.by_ref().lines().map_while(Result::ok).any(|line| line.is_empty()) {
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let (socket, address) = listener();
    let mut program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {server}\n",
        fd(&socket)
    ));
    let answers = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = connect(address);
                loop {
                    // A request into a closing connection gets no response.
                    if client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_err() {
                        return;
                    }
                    let mut answer = Vec::new();
                    let mut piece = [0; 4096];
                    let body = |answer: &[u8]| {
                        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
                        head.map_or(0, |head| answer.len() - head - 4)
                    };
                    while body(&answer) < BODY {
                        let length = client.read(&mut piece).unwrap_or(0);
                        if length == 0 {
                            assert!(answer.is_empty(), "cut after {} bytes", answer.len());
                            return;
                        }
                        answer.extend(&piece[..length]);
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while answers.load(Ordering::Relaxed) < 200 {
            manylane_tests::look_again();
        }
        program.signal(Signal::SIGUSR1);
        assert_eq!(program.wait().code(), Some(0));
    });
}

/// State and CPU time, in hundredths of a second, of each thread.
fn threads(program: &Manylane) -> Vec<(char, u64)> {
    let folder = format!("/proc/{}/task", program.pid());
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.unwrap().path().join("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        (fields[0].chars().next().unwrap(), number(11) + number(12))
    };
    std::fs::read_dir(folder).unwrap().map(read).collect()
}

/// HAProxy's keyword. Lanes that sleep would never use so much time, and busy ones are never seen asleep.
#[test]
fn with_busy_polling_lanes_never_sleep_until_the_soft_stop() {
    let (socket, address) = listener();
    let config =
        format!("global\n busy-polling\n{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
    let mut program = Manylane::start_ready(&config);
    let mut stream = connect(address);
    let mut byte = [0];
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut byte).unwrap();
    // Endless if a lane sleeps; then the time limit of the test run ends the test.
    while threads(&program).iter().filter(|(_, time)| *time >= 5).count() < 2 {
        manylane_tests::look_again();
    }
    program.signal(Signal::SIGUSR1);
    while threads(&program).iter().any(|(state, _)| *state != 'S') {
        manylane_tests::look_again();
    }
    assert!(program.runs());
    stream.write_all(b"b").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "b");
    assert_eq!(program.wait().code(), Some(0));
}

/// One lane has both: after it has closed one idle connection, it has handled the other.
#[test]
fn with_idle_close_on_response_an_idle_connection_outlives_the_soft_stop_until_its_next_answer() {
    let server = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while reader.by_ref().lines().map_while(Result::ok).any(|line| line.is_empty()) {
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").is_err() {
                return;
            }
        }
    });
    let ((stays, stays_at), (goes, goes_at)) = (listener(), listener());
    let config = format!(
        "{} mode http\nlisten stays\n bind {}\n option idle-close-on-response\n server s {server}\nlisten \
            goes\n bind {}\n server s {server}\n",
        ONE_LANE,
        fd(&stays),
        fd(&goes)
    );
    let mut program = Manylane::start(&config);
    // One connection has had a response, the other has sent nothing yet.
    let (mut used, mut fresh, mut closed) = (connect(stays_at), connect(stays_at), connect(goes_at));
    let ask = |client: &mut TcpStream| client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    for client in [&mut used, &mut closed] {
        ask(client);
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nx") {
            let mut piece = [0; 512];
            let length = client.read(&mut piece).unwrap();
            assert_ne!(length, 0);
            answer.extend(&piece[..length]);
        }
        assert!(!answer.windows(17).any(|part| part == b"connection: close"));
    }
    program.signal(Signal::SIGUSR1);
    assert_eq!(read_all(&mut closed), "");
    for client in [&mut used, &mut fresh] {
        assert!(program.runs());
        ask(client);
        let answer = read_all(client);
        assert!(answer.contains("connection: close\r\n") && answer.ends_with('x'), "{answer}");
    }
    assert_eq!(program.wait().code(), Some(0));
}

/// Each of the two groups has one lane.
#[test]
fn a_listener_of_a_group_is_served_by_the_lanes_of_that_group() {
    let all: Vec<_> = (0..3).map(|_| listener()).collect();
    let bind = |name: &str, number: usize, thread: &str| {
        format!(
            "frontend {name}\n bind {} thread {thread}\n http-request return status 200 content-type \
                text/plain lf-string %[thread]\n",
            fd(&all[number].0)
        )
    };
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nglobal\n thread-groups 2\n{}{}{}",
        bind("one", 0, "1/1"),
        bind("two", 1, "2/all"),
        bind("absolute", 2, "2")
    ));
    let served_by = |number: usize| -> Vec<String> {
        let one = |_| {
            let mut client = connect(all[number].1);
            client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            read_all(&mut client).rsplit("\r\n\r\n").next().unwrap().to_owned()
        };
        (0..8).map(one).collect()
    };
    let (one, two, absolute) = (served_by(0), served_by(1), served_by(2));
    assert!(!one[0].is_empty() && one.iter().all(|lane| *lane == one[0]), "{one:?}");
    assert!(two.iter().all(|lane| *lane == two[0]), "{two:?}");
    assert_eq!(two, absolute);
    assert_ne!(one, two);
}

#[test]
fn groups_that_cannot_be_are_reported_with_their_position() {
    for (lines, bind, said_of) in [
        ("", "thread 2/1", "'thread' expects lanes"),
        (" thread-groups 2\n", "thread 3/1", "or those of a group"),
        (" thread-groups 2\n", "thread 1/2", "or those of a group"),
        (
            " thread-groups 3\n",
            "",
            "expected a lane for each group without a 'thread-group' line, 3 in all, found 2",
        ),
    ] {
        let config =
            format!("{DEFAULTS}global\n{lines}listen l\n bind 127.0.0.1:80 {bind}\n server s 127.0.0.1:81\n");
        let outcome = check(&config, &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(said.contains(said_of) && said.contains("\n  --> "), "{lines}{bind}: {said}");
        assert_eq!(outcome.status.code(), Some(1));
    }
}

/// The reader of standard error may hang: neither the end of the process nor its last lines wait for it.
#[test]
fn a_process_ends_though_nobody_reads_what_it_says() {
    let (socket, address) = listener();
    let (mut program, mut said) = Manylane::start_heard(
        &format!(
            "global\n hard-stop-after 100ms\n{DEFAULTS}listen l\n bind {}\n server s {}\n",
            fd(&socket),
            echo()
        ),
        &["-V"],
    );
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    let mut client = connect(address);
    client.write_all(b"a").unwrap();
    client.read_exact(&mut [0]).unwrap();
    // The pipe is full.
    let error = format!("/proc/{}/fd/2", program.pid());
    let mut error = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(error)
        .unwrap();
    while error.write(&[b'x'; 1]).is_ok() {}
    program.signal(Signal::SIGUSR1);
    assert!(program.wait().success());
}

#[test]
fn a_soft_stop_ends_after_hard_stop_after() {
    let (socket, address) = listener();
    let config = format!(
        "global\n hard-stop-after 100ms\n{DEFAULTS}listen l\n bind {}\n server s {}\n",
        fd(&socket),
        echo()
    );
    let mut program = Manylane::start(&config);
    let mut stream = connect(address);
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    program.signal(Signal::SIGUSR1);
    assert_eq!(program.wait().code(), Some(0));
}

/// Clients and logs are told of interrupted streams: one waits for a response, one is amid a response, one is
/// queued, one is in TCP mode.
#[test]
fn what_a_hard_stop_cuts_is_answered_and_logged() {
    let silent = common::origin(|mut stream| {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        if bytes[..length].starts_with(b"GET /half") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").unwrap();
        }
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let (log, folder) = (common::watch::Syslog::new(), Folder::new());
    let control = folder.0.join("cli");
    let ((web, address), (plain, plain_address)) = (listener(), listener());
    let mut program = Manylane::start(&format!(
        "global\n hard-stop-after 100ms\n log {} local0\n stats socket {}\n{ONE_LANE} log \
            global\n retries 0\n timeout queue 1h\n\
         frontend web\n mode http\n option httplog\n bind {}\n default_backend b\nbackend b\n mode http\n \
         server s {silent} maxconn 2\n\
         listen plain\n option tcplog\n bind {}\n server s {silent}\n",
        log.address(),
        control.display(),
        fd(&web),
        fd(&plain),
    ));
    common::watch::until(|| control.exists());
    let ask = |path: &str| {
        let mut client = connect(address);
        write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        client
    };
    let mut half = ask("/half");
    half.read_exact(&mut [0; 42]).unwrap();
    let mut waits = ask("/waits");
    common::watch::until(|| common::watch::ask(&control, "show sess").matches("srv=s ").count() == 2);
    let mut queued = ask("/queued");
    common::watch::until(|| common::watch::ask(&control, "show sess").contains("state=queue"));
    let mut tunnel = connect(plain_address);
    tunnel.write_all(b"x").unwrap();
    common::watch::until(|| common::watch::ask(&control, "show sess").contains("be=plain srv=s "));
    program.signal(Signal::SIGUSR1);
    assert_eq!(program.wait().code(), Some(0));
    assert!(common::read_all(&mut waits).starts_with("HTTP/1.1 502 "));
    assert!(common::read_all(&mut queued).starts_with("HTTP/1.1 503 "));
    // They end, perhaps with a reset.
    let _ = (half.read_to_end(&mut Vec::new()), tunnel.read_to_end(&mut Vec::new()));
    let mut lines = Vec::new();
    while lines.len() < 5 {
        let line = log.wait("");
        if line.contains(" K") || line.contains("hard-stopped (3 remaining") {
            lines.push(line);
        }
    }
    for part in [
        "Proxy web hard-stopped (3 remaining conns will be closed).",
        " KD-- ",
        " KH-- ",
        " 503 ",
        "plain/s ",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part} in {lines:#?}");
    }
}

/// The response under way tells the client that it is the last one, and it is complete although the client
/// has sent another request already.
#[test]
fn a_request_that_a_soft_stop_meets_is_answered_as_the_last() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (sender, asks) = std::sync::mpsc::channel();
    let (released, sender) = (std::sync::Mutex::new(released), std::sync::Mutex::new(sender));
    let server = common::origin(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = sender.lock().unwrap().send(());
        let _ = released.lock().unwrap().recv();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let log = common::watch::Syslog::new();
    let (socket, address) = listener();
    let mut program = Manylane::start(&format!(
        "global\n log {} local0\n{DEFAULTS} log global\n mode http\nfrontend web\n bind {}\n default_backend \
            b\nbackend b\n server s {server}\n",
        log.address(),
        fd(&socket),
    ));
    let mut client = connect(address);
    client.write_all(b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    asks.recv().unwrap();
    program.signal(Signal::SIGUSR1);
    log.wait("Proxy web stopped");
    release.send(()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap(); // no reset
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    drop(client);
    assert_eq!(program.wait().code(), Some(0));
}

#[test]
fn the_process_ends_by_the_signal_that_ended_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (socket, address) = listener();
        let config = format!("{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
        let mut program = Manylane::start(&config);
        let mut stream = connect(address);
        stream.write_all(b"a").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        program.signal(signal);
        assert_eq!(program.wait().signal(), Some(signal as i32));
    }
}

#[test]
fn a_successor_takes_over_and_tells_its_predecessor_to_finish() {
    let folder = Folder::new();
    let path = folder.0.join("socket");
    let config = format!("{DEFAULTS}listen l\n bind unix@{}\n server s {}\n", path.display(), echo());
    let mut first = Manylane::start(&config);
    let connect = || loop {
        match std::os::unix::net::UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) => manylane_tests::look_again(),
        }
    };
    let mut stream = connect();
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    drop(stream);
    let pid = first.pid().to_string();
    let _second = Manylane::start_with(&config, &["-sf", &pid]);
    assert_eq!(first.wait().code(), Some(0));
    let mut stream = connect();
    stream.write_all(b"b").unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"b");
}

#[test]
fn in_the_background_the_number_of_the_process_is_in_its_file() {
    let folder = Folder::new();
    let pidfile = folder.0.join("pid");
    let (socket, address) = listener();
    let file = folder.file(
        "test.cfg",
        &format!(
            "{DEFAULTS}global\n daemon\n pidfile {}\nlisten l\n bind {}\n server s {}\n",
            pidfile.display(),
            fd(&socket),
            echo()
        ),
    );
    let status = command().arg("-f").arg(file).status().unwrap();
    assert_eq!(status.code(), Some(0));
    let mut stream = connect(address);
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut [0]).unwrap(); // so it runs, and the file was written before
    let pid: i32 = std::fs::read_to_string(pidfile).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert_eq!(read_all(&mut stream), "");
}

/// What fails behind the check fails before the command ends.
#[test]
fn a_start_in_the_background_that_fails_is_reported() {
    let (socket, _) = listener();
    let folder = Folder::new();
    let (pidfile, empty) = (folder.file("pid", "4711\n"), folder.0.join("none"));
    let config = format!(
        "{DEFAULTS}global\n chroot {}\nlisten l\n bind {}\n server s {}\n",
        empty.display(),
        fd(&socket),
        echo()
    );
    let file = folder.file("test.cfg", &config);
    let output = command().arg("-D").arg("-f").arg(file).arg("-p").arg(&pidfile).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("Cannot chroot({}): ", empty.display())), "{said}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(pidfile).unwrap(), "4711\n", "it is another process's");
}

/// The command ends once the process serves: its run-time socket has its path, and its number is in the
/// file.
#[test]
fn a_process_in_the_background_serves_when_its_starter_ends() {
    let folder = Folder::new();
    let (pidfile, control) = (folder.0.join("pid"), folder.0.join("control"));
    let config = format!(
        "{}listen l\n bind {}\n server s {}\n",
        DEFAULTS.replace("nbthread 2", &format!("nbthread 8\n stats socket {}", control.display())),
        common::own_address(),
        echo()
    );
    let file = folder.file("test.cfg", &config);
    let output = command().args(["-D", "-V", "-f"]).arg(file).arg("-p").arg(&pidfile).output().unwrap();
    let number = || std::fs::read_to_string(&pidfile).unwrap_or_default().trim().parse().ok();
    let process = number().map(crate::master::Elsewhere);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("lanes are ready"), "{said}");
    let pid = |info: String| info.lines().find_map(|line| line.strip_prefix("Pid: ")?.parse::<i32>().ok());
    assert_eq!(pid(common::watch::ask(&control, "show info")), number());
    drop(process);
    std::fs::remove_file(&pidfile).unwrap();

    // A pipe can be read once.
    let mut piped = command();
    piped.args(["-D", "-f", "/dev/stdin"]).arg("-p").arg(&pidfile).stdin(std::process::Stdio::piped());
    let mut piped = piped.spawn().unwrap();
    piped.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let served = piped.wait().unwrap().success();
    common::watch::until(|| !served || number().is_some());
    let _process = number().map(crate::master::Elsewhere);
    assert!(served);
    assert_eq!(pid(common::watch::ask(&control, "show info")), number());
}

/// Whoever reads the number may send a signal at once.
#[test]
fn the_number_of_a_process_is_in_its_file_once_it_handles_signals() {
    let (socket, _) = listener();
    let folder = Folder::new();
    let pidfile = folder.0.join("pid");
    let config = format!("{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
    for _ in 0..5 {
        let _ = std::fs::remove_file(&pidfile);
        let program = Manylane::start_with(&config, &["-p", pidfile.to_str().unwrap()]);
        let expected = format!("{}\n", program.pid());
        common::watch::until(|| std::fs::read_to_string(&pidfile).is_ok_and(|text| text == expected));
        assert!(handles(&program, Signal::SIGUSR2));
    }
}

#[test]
fn an_address_in_use_is_reported_with_its_frontend() {
    let (_socket, address) = listener();
    let folder = Folder::new();
    let file =
        folder.file("test.cfg", &format!("{DEFAULTS}listen taken\n bind {address}\n server s 127.0.0.1:1\n"));
    let outcome = command().arg("-f").arg(file).output().unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains("frontend taken") && said.contains(&address.to_string()), "{said}");
}

/// `warn-blocked-traffic-after`: the watchdog runs once connections are served, so also after the process
/// went to the background.
#[test]
fn a_watchdog_looks_at_the_lanes_with_the_limit_of_the_file() {
    let (socket, address) = listener();
    let server = echo();
    let limit =
        |limit| format!("global\n warn-blocked-traffic-after {limit}\n{}", &DEFAULTS["global\n".len()..]);
    let listen = format!("listen l\n bind {}\n server s {server}\n", fd(&socket));
    let manylane = Manylane::start(&format!("{}{listen}", limit("1s")));
    let mut stream = connect(address);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "hello");
    let is_named = |thread: std::fs::DirEntry| {
        // A thread may end meanwhile.
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name == "watchdog\n")
    };
    let threads = || std::fs::read_dir(format!("/proc/{}/task", manylane.pid())).unwrap();
    // The thread sets its name soon after it starts.
    while !threads().flatten().any(is_named) {
        manylane_tests::look_again();
    }
    for refused in ["0", "1001"] {
        let outcome = check(&format!("{}{listen}", limit(refused)), &[]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(said.contains("'warn-blocked-traffic-after' expects a time from 1 ms to 1000 ms"), "{said}");
        assert_eq!(outcome.status.code(), Some(1));
    }
}

/// `cpu-map`: the named thread runs on its processors, the others where they did.
#[test]
fn lanes_are_kept_to_the_processors_that_the_file_gives_them() {
    let allowed = |path: String| -> String {
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("the system tells it").trim().to_owned()
    };
    let own = allowed("/proc/self/status".to_owned());
    let last: String = own.rsplit([',', '-']).next().unwrap().to_owned();
    let (socket, _) = listener();
    let config = DEFAULTS.replace("nbthread 2", &format!("nbthread 3\n cpu-map 1/2 {last}"));
    let program =
        Manylane::start_ready(&format!("{config}listen l\n bind {}\n server s {}\n", fd(&socket), echo()));
    let tasks = format!("/proc/{}/task", program.pid());
    let mut observed = 0;
    for task in std::fs::read_dir(&tasks).unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap();
        let expected = match name.trim() {
            "lane 1" => &last,
            "lane 2" => &own,
            _ => continue,
        };
        assert_eq!(allowed(task.join("status").display().to_string()), *expected, "{name}");
        observed += 1;
    }
    assert_eq!(observed, 2);
}

/// No child of the process regains rights that the process has dropped, unless the file says so.
#[test]
fn the_process_gets_no_new_rights() {
    for (line, expected) in [("", "1"), (" insecure-setuid-wanted\n", "0")] {
        let (socket, _) = listener();
        let config = format!("global\n{line}{}", &DEFAULTS["global\n".len()..]);
        let program = Manylane::start_ready(&format!(
            "{config}listen l\n bind {}\n server s {}\n",
            fd(&socket),
            echo()
        ));
        for task in std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap().flatten() {
            // A thread may end meanwhile.
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let own = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"));
            assert!(own.is_none_or(|own| own.trim() == expected), "{line}{status}");
        }
    }
}

/// Returns true if the program handles the signal; its lanes may not have begun yet.
fn handles(program: &Manylane, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
    u64::from_str_radix(caught, 16).unwrap() & 1 << (signal as u64 - 1) != 0
}

/// The process waits for lanes that start, and then ends.
#[test]
fn a_signal_that_comes_while_lanes_begin_ends_the_process() {
    let (socket, _) = listener();
    let config = format!(
        "{} mode tcp\nlisten l\n bind {}\n",
        DEFAULTS.replace("nbthread 2", "nbthread 32"),
        fd(&socket)
    );
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1] {
        for _ in 0..3 {
            let mut program = Manylane::start(&config);
            common::watch::until(|| handles(&program, signal));
            program.signal(signal);
            common::watch::until(|| !program.runs());
        }
    }
}

/// The file may have changed after the process has read it.
#[test]
fn a_reload_that_is_requested_while_lanes_begin_follows() {
    let (socket, _) = listener();
    let config = format!(
        "{} mode tcp\nlisten l\n bind {}\n",
        DEFAULTS.replace("nbthread 2", "nbthread 32"),
        fd(&socket)
    );
    for _ in 0..5 {
        let (program, mut said) = Manylane::start_heard(&config, &["-V"]);
        common::watch::until(|| handles(&program, Signal::SIGHUP));
        program.signal(Signal::SIGHUP);
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains("lanes are ready")) {
            lines.push(said.next().unwrap().unwrap());
        }
        // The end comes behind the reload, which may not be over by then.
        program.signal(Signal::SIGUSR1);
        lines.extend(said.map_while(Result::ok));
        assert!(lines.iter().any(|line| line.contains("eloaded: generation ")), "{lines:#?}");
    }
}

/// `-m`: memory that the allocator reserves and does not use does not count.
#[test]
fn a_process_serves_with_little_memory_and_says_what_is_too_little() {
    let (socket, address) = listener();
    let config =
        format!("{DEFAULTS} mode http\nfrontend f\n bind {}\n http-request return status 200\n", fd(&socket));
    let program = Manylane::start_with(&config, &["-m", "100"]);
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_all(&mut client).starts_with("HTTP/1.1 200 "));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.pid())).unwrap();
    let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
    assert!(data.contains(&(100 << 20).to_string()), "{data}");
    let name = std::fs::read_to_string(format!("/proc/{}/comm", program.pid())).unwrap();
    assert_eq!(name, "manylane\n");
    drop(program);

    let folder = Folder::new();
    let file = folder.file("test.cfg", &config);
    let outcome = command().args(["-m", "95", "-f"]).arg(file).output().unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains("-m expects at least 96 megabytes for 2 lanes, found 95"), "{said}");
}

/// A thread writes the lines; the process waits for it before it ends.
#[test]
fn the_last_lines_of_an_idle_process_are_said() {
    const BACKENDS: usize = 300;
    let (socket, _) = listener();
    let mut config = format!("{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
    (0..BACKENDS).for_each(|number| config += &format!("backend b{number}\n"));
    for _ in 0..20 {
        let (mut program, mut said) = Manylane::start_heard(&config, &["-V"]);
        while !said.next().unwrap().unwrap().contains("lanes are ready") {}
        program.signal(Signal::SIGUSR1);
        let stopped = said.map(Result::unwrap).filter(|line| line.contains(" stopped (cumulated conns"));
        assert_eq!(stopped.count(), BACKENDS + 1);
        assert!(program.wait().success());
    }
}

#[test]
fn the_pools_are_reported_on_sigquit() {
    let (socket, address) = listener();
    let config = format!("{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
    let (program, mut said) = Manylane::start_heard(&config, &["-V"]);
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    program.signal(Signal::SIGQUIT);
    while !said.next().unwrap().unwrap().starts_with("Total: ") {}
    let mut stream = connect(address);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), "hello");
}

/// Nobody reads standard error any more: its reader has left, or has stopped and the pipe is full.
#[test]
fn a_process_hears_signals_after_sigquit_although_nobody_reads_its_messages() {
    for has_left in [true, false] {
        let (socket, _) = listener();
        let config = format!("{DEFAULTS}listen l\n bind {}\n server s {}\n", fd(&socket), echo());
        let (mut program, mut said) = Manylane::start_heard(&config, &["-V"]);
        while !said.next().unwrap().unwrap().contains("lanes are ready") {}
        let said = (!has_left).then_some(said);
        // A pipe has room for 16 pages; the reports that follow are longer.
        for _ in 0..if has_left { 1 } else { 256 } {
            program.signal(Signal::SIGQUIT);
            until_taken(program.pid(), Signal::SIGQUIT);
        }
        program.signal(Signal::SIGTERM);
        common::watch::until(|| !program.runs());
        assert_eq!(program.wait().signal(), Some(Signal::SIGTERM as i32));
        drop(said);
    }
}

/// Waits until the process has taken the signal: a second one that comes before is lost.
fn until_taken(pid: u32, signal: Signal) {
    common::watch::until(|| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t")).unwrap();
        u64::from_str_radix(pending, 16).unwrap() >> (signal as i32 - 1) & 1 == 0
    });
}

/// In a sandbox without io_uring, such as Docker's, lanes use epoll, and the program says why.
#[test]
fn a_process_that_may_not_use_io_uring_serves_with_epoll_and_says_why() {
    /// Installs a filter that refuses `io_uring_setup`, number 425 on all machines, with EPERM; then runs the
    /// program.
    const SANDBOX: &str = "\
import ctypes, os, struct, sys
filter = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in filter))
program = struct.pack('HxxxxxxP', len(filter), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";
    let sandboxed = |words: &[&str]| {
        let mut command = std::process::Command::new("/usr/bin/python3");
        command.args(["-c", SANDBOX]).arg(manylane()).args(words);
        command.env_remove("MANYLANE_DRIVER").stderr(std::process::Stdio::piped());
        command
    };
    let why = "io_uring failed at setting up a ring: Operation not permitted (os error 1)";
    let shown = sandboxed(&["-vv"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("(MANYLANE_DRIVER); will use epoll, since {why}\n")), "{shown}");

    let folder = Folder::new();
    let (socket, address) = listener();
    let control = folder.0.join("control");
    let file = folder.file(
        "test.cfg",
        &format!(
            "global\n stats socket {}\n{DEFAULTS} mode http\nlisten l\n bind {}\n http-request return\n",
            control.display(),
            fd(&socket)
        ),
    );
    let mut program = Ended(sandboxed(&["-V", "-f", file.to_str().unwrap()]).spawn().unwrap());
    let mut said = BufReader::new(program.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let notice = said.find(|line| line.contains("io_uring")).unwrap();
    assert!(notice.ends_with(&format!("{why}; the driver is epoll")), "{notice}");
    assert!(said.any(|line| line.contains("lanes are ready")));
    let mut client = connect(address);
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let answer = read_all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let info = common::watch::ask(&control, "show info");
    assert!(info.contains("\nDriver: epoll\n"), "{info}");
}

/// The kernel counts rings as locked memory of their user.
#[test]
fn lanes_without_locked_memory_for_io_uring_serve_with_epoll_and_one_line_says_so() {
    /// Runs the program with so many KiB of locked memory, as a user of its own, but with the rights of root
    /// other than CAP_IPC_LOCK, which lifts the limit.
    const LIMITED: &str = "\
import ctypes, os, resource, sys
assert ctypes.CDLL(None).prctl(24, 14, 0, 0, 0) == 0
resource.setrlimit(resource.RLIMIT_MEMLOCK, (int(sys.argv[1]) << 10,) * 2)
os.setresuid(1 << 24 | os.getpid(), 0, 0)
os.execv(sys.argv[2], sys.argv[2:])
";
    if !nix::unistd::geteuid().is_root() || !may_use_io_uring() {
        return println!("NOT SHOWN HERE: only root takes its own rights, or the kernel refuses io_uring");
    }
    let folder = Folder::new();
    let (socket, address) = listener();
    let control = folder.0.join("cli");
    let global = format!("nbthread 6\n stats socket {} mode 666", control.display());
    let lines = format!(
        "{} mode http\nlisten l\n bind {}\n http-request return\n",
        DEFAULTS.replace("nbthread 2", &global),
        fd(&socket)
    );
    let file = folder.file("test.cfg", &lines);
    let limited = |kib: u32, driver: &str| {
        let mut command = std::process::Command::new("/usr/bin/python3");
        command.args(["-c", LIMITED, &kib.to_string()]).arg(manylane()).args(["-V", "-f"]).arg(&file);
        command.env("MANYLANE_DRIVER", driver).stderr(std::process::Stdio::piped());
        Ended(command.spawn().unwrap())
    };
    let reason = "Cannot allocate memory (os error 12); rings are locked memory: raise its limit \
                  ('ulimit -l', LimitMEMLOCK= of systemd) to 88 KiB for each lane of each worker";
    let reported = |driver| format!("io_uring failed at setting up a {driver}");
    // Enough for no ring, and for three lanes.
    for (kib, expected, drivers) in [
        (0, reported(&format!("ring: {reason}; the driver is epoll")), "epoll\n"),
        (3 * 88, reported(&format!("lane's ring: {reason}; lanes without a ring use epoll")), "io_uring on "),
    ] {
        let mut program = limited(kib, "auto");
        let said = BufReader::new(program.0.stderr.take().unwrap()).lines().map_while(Result::ok);
        let said: Vec<_> = said.take_while(|line| !line.contains("lanes are ready")).collect();
        let of_rings: Vec<_> = said.iter().filter(|line| line.contains("io_uring")).collect();
        assert!(matches!(&of_rings[..], [line] if line.ends_with(&expected)), "{said:#?}");
        for _ in 0..24 {
            assert_eq!(common::status_of(address), Ok(200));
        }
        let info = common::watch::ask(&control, "show info");
        let driver = info.lines().find_map(|line| line.strip_prefix("Driver: ")).unwrap();
        assert!(format!("{driver}\n").starts_with(drivers), "{info}");
        // The system may still hold the memory of the ring that was tried.
        if let Some((rings, others)) = driver.split_once(" of 6 lanes, epoll on ") {
            let rings: u32 = rings.trim_start_matches("io_uring on ").parse().unwrap();
            assert!((1..=3).contains(&rings) && others == (6 - rings).to_string(), "{driver}");
        }
    }
    let mut program = limited(0, "io_uring");
    let mut said = String::new();
    program.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let refused = format!("{reason}, or set MANYLANE_DRIVER to epoll or auto\n");
    assert!(said.ends_with(&refused), "{said}");
    assert_eq!(program.0.wait().unwrap().code(), Some(1));
}

/// The first driver that the program tries is the one that it reports.
#[test]
fn a_process_tells_which_driver_it_has() {
    let shown = command().arg("-vv").env_remove("MANYLANE_DRIVER").output().unwrap().stdout;
    let shown = String::from_utf8(shown).unwrap();
    let expected = if may_use_io_uring() { "io_uring\n" } else { "epoll, since " };
    assert!(shown.contains(&format!("(MANYLANE_DRIVER); will use {expected}")), "{shown}");
}

/// Returns true if the kernel lets programs use io_uring.
fn may_use_io_uring() -> bool {
    let refused = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    refused.map_or(true, |refused| refused.trim() == "0")
}
