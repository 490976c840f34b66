//! Programs by others in front of this one and behind it: their messages arrive as if there were no proxy
//! (R-G1).
//!
//! Programs that are not installed are named and skipped; `scripts/setup test` installs all of them.

use crate::common;

use common::watch::{Haproxy, Syslog};
use common::{DEFAULTS, Ended, Folder, Manylane, fd, free, listener, origin};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};
use std::time::Instant;

/// Debian's Python, which has Debian's packages; another one that comes first in the path does not.
const PYTHON: &str = "/usr/bin/python3";

/// Removes proxy settings that are meant for the network outside.
fn without_proxies(command: &mut Command) -> &mut Command {
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command
}

fn start(command: &mut Command) -> Ended {
    Ended(without_proxies(command).stdin(Stdio::null()).spawn().unwrap())
}

/// As [`start`], with the lines of its output.
fn start_heard(command: &mut Command) -> (Ended, Lines<BufReader<ChildStdout>>) {
    let mut program = start(command.stdout(Stdio::piped()));
    let lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    (program, lines)
}

/// Returns true if a program is installed and works.
fn is_there(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let works = quiet.is_ok_and(|output| output.status.success());
    if !works {
        eprintln!(
            "NOT SHOWN HERE: '{program} {}' does not work: 'scripts/setup test' installs what is missing",
            arguments.join(" ")
        );
    }
    works
}

/// Output of a program that ends within a minute or two.
fn run(words: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    without_proxies(command.arg("120").args(words)).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until a program listens at `path`.
fn listens(path: &Path) {
    let begin = Instant::now();
    while UnixStream::connect(path).is_err() {
        assert!(begin.elapsed() < common::TIMEOUT, "nobody listens at {}", path.display());
        manylane_tests::look_again();
    }
}

/// A server for one test. It does not accept port 0, so the test chooses a free port, and another one if that
/// was taken meanwhile.
fn iperf3_server() -> (Ended, u16) {
    for _ in 0..20 {
        let port = free().port();
        let mut command = Command::new("iperf3");
        command.args([
            "--server",
            "--one-off",
            "--forceflush",
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
        ]);
        let (server, mut lines) = start_heard(command.stderr(Stdio::null()));
        if lines.by_ref().map_while(Result::ok).any(|line| line.contains("listening")) {
            std::thread::spawn(move || lines.for_each(drop));
            return (server, port);
        }
    }
    panic!("iperf3 finds no port");
}

#[test]
fn iperf3_sends_both_ways_copied_and_spliced() {
    if !is_there("iperf3", &["--version"]) {
        return;
    }
    for options in [
        "",
        " no option splice-auto\n",
        " option splice-auto\n",
        " option splice-request\n option splice-response\n",
    ] {
        for direction in [&[][..], &["--reverse"], &["--bidir"]] {
            let (socket, address) = listener();
            let (_server, port) = iperf3_server();
            // iperf3 leaves out what is in buffers at its end, which must stay below half of the 32 MB.
            let config = format!(
                "global\n tune.rcvbuf.client 65536\n tune.rcvbuf.server 65536\n tune.sndbuf.client 65536\n \
                 tune.sndbuf.server 65536\n{DEFAULTS}{options}listen l\n bind {}\n server s \
                 127.0.0.1:{port}\n",
                fd(&socket)
            );
            let _program = Manylane::start(&config);
            let at = address.port().to_string();
            let words = [
                "iperf3",
                "--client",
                "127.0.0.1",
                "--port",
                &at,
                "--bytes",
                "32M",
                "--window",
                "128K",
                "--parallel",
                "2",
                "--json",
            ];
            let output = run(&[&words[..], direction].concat());
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(
                output.status.success() && report["error"].is_null(),
                "{options}{direction:?}: {}",
                said(&output)
            );
            let end = &report["end"];
            // Each side reports its end beside the data. Data under way is then not counted; it fits the
            // socket buffers, except with two directions, where it may be all of one direction.
            let received = |way: &str| end[way]["bytes"].as_u64().unwrap_or(0);
            let sum = received("sum_received") + received("sum_received_bidir_reverse");
            assert!(sum > 16 << 20, "{options}{direction:?}: {end}");
        }
    }
}

/// Text, fragments, a ping, an empty message, one of 1 MiB, with and without compression, and the close code,
/// in both directions.
#[test]
fn a_websocket_client_and_a_websocket_server_understand_each_other() {
    if !is_there(PYTHON, &["-c", "import websockets"]) {
        return;
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign");
    let (_server, mut lines) = start_heard(Command::new(PYTHON).arg(scripts.join("websocket_server.py")));
    let port = lines.next().unwrap().unwrap();
    let (socket, address) = listener();
    let config = format!(
        "{DEFAULTS} mode http\n timeout tunnel 60s\nlisten l\n bind {}\n server s 127.0.0.1:{port}\n",
        fd(&socket)
    );
    let _program = Manylane::start(&config);
    let client = scripts.join("websocket_client.py");
    let output = run(&[PYTHON, client.to_str().unwrap(), &address.port().to_string()]);
    assert!(output.status.success(), "{}", said(&output));
    let mut closed: Vec<String> = lines.by_ref().take(4).map(Result::unwrap).collect();
    closed.sort();
    assert_eq!(
        closed,
        ["closed 4000 enough", "closed 4001 enough", "closed 4002 enough", "closed 4003 enough"]
    );
}

/// Bytes that compress well and whose period is not that of a buffer.
fn content() -> Vec<u8> {
    (0..2_000_003_u32).map(|n| b"0123456789abcdef"[(n % 251 % 16) as usize]).collect()
}

/// The chain: a client, this program, nginx as a proxy, this program again, haproxy, nginx as the origin.
#[test]
fn a_chain_of_proxies_of_three_makes_is_as_good_as_none() {
    let nginx = "/usr/sbin/nginx";
    if !is_there("curl", &["--version"]) || !is_there(nginx, &["-v"]) {
        return;
    }
    let Some(haproxy) = Haproxy::program() else { return println!("There is no HAProxy 3.2: left out") };
    let folder = Folder::new();
    let at = |name: &str| folder.0.join(name);
    let dir = folder.0.display().to_string();
    let content = content();
    std::fs::write(at("page.html"), &content).unwrap();
    let takes = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        loop {
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").unwrap();
            stream.write_all(&body).unwrap();
        }
    });
    // nginx runs as the user of the test, which may not write to other users' folders.
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {dir}/{name};\n"))
        .concat();
    let config = folder.file(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr crit;\nevents {{}}\n\
             http {{ access_log off; {temporary} types {{ text/html html; }} gzip on; gzip_proxied any; \
             client_max_body_size 10m;\n\
             server {{ listen unix:{dir}/origin; root {dir}; }}\n\
             server {{ listen unix:{dir}/between;\n location / {{ proxy_pass http://unix:{dir}/inner:; \
             proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; proxy_set_header Accept-Encoding $http_accept_encoding; }} }} \
             }}\n"
        ),
    );
    let _nginx = start(Command::new(nginx).arg("-c").arg(config));
    let config = folder.file(
        "haproxy.cfg",
        &format!(
            "{DEFAULTS} mode http\nlisten l\n bind unix@{dir}/haproxy accept-proxy\n server s \
                unix@{dir}/origin\n"
        ),
    );
    let _haproxy = start(Command::new(haproxy).args(["-db", "-q", "-f"]).arg(config));
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten outer\n bind {}\n server s unix@{dir}/between\n\
         frontend inner\n bind unix@{dir}/inner\n use_backend takes if {{ path /takes }}\n default_backend \
         haproxy\n\
         backend haproxy\n server s unix@{dir}/haproxy send-proxy-v2\nbackend takes\n server s {takes}\n",
        fd(&socket),
    ));
    for name in ["origin", "between", "haproxy", "inner"] {
        listens(&at(name));
    }

    let page = format!("http://{address}/page.html");
    let curl = |words: &[&str]| {
        let output = run(&[&["curl", "--silent", "--show-error", "--max-time", "100"], words].concat());
        assert!(output.status.success(), "curl {words:?}: {}", said(&output));
        output.stdout
    };
    let got = |name: &str| std::fs::read(at(name)).unwrap() == content;
    let (one, two) = (at("one").display().to_string(), at("two").display().to_string());

    // Two requests on one connection.
    let connects = curl(&["-o", &one, &page, "-o", &two, &page, "-w", "%{http_code} %{num_connects}\n"]);
    assert_eq!(String::from_utf8_lossy(&connects), "200 1\n200 0\n");
    assert!(got("one") && got("two"));
    curl(&["--http1.0", "-o", &one, &page]);
    assert!(got("one"));
    // Compressed by a proxy, in chunks.
    let sizes = curl(&["--compressed", "-o", &one, "-w", "%{size_download}", &page]);
    assert!(got("one") && String::from_utf8_lossy(&sizes).parse::<usize>().unwrap() < content.len() / 2);
    assert_eq!(curl(&["--range", "1000-1999", &page]), content[1000..2000]);
    let head = String::from_utf8_lossy(&curl(&["--head", &page])).to_ascii_lowercase();
    assert!(head.contains(&format!("content-length: {}\r\n", content.len())), "{head}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert_eq!(curl(&["-H", &format!("If-None-Match: {tag}"), "-w", "%{http_code}", &page]), b"304");
    // An upgrade to HTTP/2. curl fails if more than 32 KiB come at once behind the 101, so it asks for less.
    let part = curl(&["--http2", "--range", "1000-20999", "-w", "%{http_version}", &page]);
    assert_eq!(part, [&content[1000..21_000], b"2"].concat());
    let missing = format!("http://{address}/missing");
    assert_eq!(curl(&["-o", &one, "-w", "%{http_code}", &missing]), b"404");
    // Upload and download: curl sends `Expect: 100-continue` for a large body; the second time the length is
    // unknown.
    let takes = format!("http://{address}/takes");
    let file = at("page.html").display().to_string();
    curl(&["-X", "POST", "-T", &file, "-o", &one, &takes]);
    assert!(got("one"));
    curl(&["-X", "POST", "-T", &file, "-H", "Transfer-Encoding: chunked", "-o", &two, &takes]);
    assert!(got("two"));
}

#[test]
fn curl_reaches_a_server_through_a_tunnel_that_it_asks_for() {
    if !is_there("curl", &["--version"]) {
        return;
    }
    let gateway = origin(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for (begins, answer) in [
            ("CONNECT inner.test:80 ", "HTTP/1.1 200 Connected\r\n\r\n"),
            ("GET /x ", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere"),
        ] {
            let mut lines = reader.by_ref().lines().map_while(Result::ok);
            assert!(lines.next().unwrap().starts_with(begins));
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let (socket, address) = listener();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\nlisten l\n bind {}\n server s {gateway}\n",
        fd(&socket)
    ));
    let proxy = format!("http://{address}");
    let output =
        run(&["curl", "-sS", "--max-time", "100", "--proxytunnel", "--proxy", &proxy, "http://inner.test/x"]);
    assert_eq!(said(&output), "there");
}

/// Checks of real servers: working, refusing clients, gone.
#[test]
fn real_servers_are_found_by_their_checks_to_work_and_to_be_gone() {
    let (nginx, redis) = ("/usr/sbin/nginx", "redis-server");
    if !is_there(nginx, &["-v"]) || !is_there(redis, &["--version"]) {
        return;
    }
    let folder = Folder::new();
    let at = |name: &str| folder.0.join(name);
    let dir = folder.0.display().to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {dir}/{name};\n"))
        .concat();
    let config = folder.file(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr crit;\nevents {{}}\n\
             http {{ access_log off; {temporary} server {{ listen unix:{dir}/web;\n\
             location /well {{ return 200 \"all is well\"; }}\n location /gone {{ return 404; }}\n location \
             / {{ return 503; }} }} }}\n"
        ),
    );
    let web = start(Command::new(nginx).arg("-c").arg(config));
    let (unix, data) = (format!("{dir}/redis"), dir.clone());
    let arguments =
        ["--port", "0", "--unixsocket", &unix, "--save", "", "--appendonly", "no", "--dir", &data];
    let memory = start(Command::new(redis).args(arguments).stdout(Stdio::null()));
    listens(&at("web"));
    listens(&at("redis"));
    let logs: Vec<Syslog> = (0..4).map(|_| Syslog::new()).collect();
    let backend = |number: usize, lines: &str, server: &str| {
        let log = logs[number].address();
        format!(
            "backend b{number}\n log {log} local0\n option log-health-checks\n {lines}\n server s \
                unix@{dir}/{server} check inter 50ms\n"
        )
    };
    let backends = [
        backend(0, "mode tcp\n option redis-check", "redis"),
        backend(1, "mode http\n option httpchk GET /well\n http-check expect string \"is well\"", "web"),
        backend(2, "mode http\n option httpchk GET /gone\n http-check disable-on-404", "web"),
        backend(3, "mode http\n option httpchk GET /broken", "web"),
    ];
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode http\n timeout check 30s\nfrontend f\n bind unix@{dir}/front\n default_backend \
            b1\n{}",
        backends.concat()
    ));
    for (log, said) in logs.iter().zip([
        "succeeded, reason: Layer7 check passed, code: 0, info: \"Redis server is ok\"",
        "succeeded, reason: Layer7 check passed, code: 200",
        "conditionally succeeded, reason: Layer7 check conditionally passed, code: 404",
        "failed, reason: Layer7 wrong status, code: 503, info: \"Service Temporarily Unavailable\"",
    ]) {
        log.wait(said);
    }
    logs[2].wait("Server b2/s is stopping");
    drop((web, memory));
    for log in &logs[..2] {
        log.wait("failed, reason: Layer4 connection problem, info: \"Connection refused\"");
        log.wait("is DOWN");
    }
}

/// Folder of Debian's PostgreSQL programs, of any version.
fn postgresql() -> Option<std::path::PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.into_iter().rev().find(|folder| folder.join("initdb").exists())
}

/// PostgreSQL refuses to run as root, so there it runs as `nobody`.
#[test]
fn a_real_postgresql_server_is_found_to_work_and_to_be_gone() {
    const NOBODY: u32 = 65_534;
    let Some(programs) = postgresql() else {
        return eprintln!(
            "NOT SHOWN HERE: there is no PostgreSQL: 'scripts/setup test' installs what is missing"
        );
    };
    let folder = Folder::new();
    let home = folder.0.join("postgresql");
    std::fs::create_dir(&home).unwrap();
    let is_root = nix::unistd::Uid::effective().is_root();
    if is_root {
        std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let program = |name: &str| {
        let path = programs.join(name);
        let mut command = if is_root { Command::new("setpriv") } else { Command::new(&path) };
        if is_root {
            let nobody = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()];
            command.args(nobody).arg(&path);
        }
        command.current_dir(&home).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let data = home.join("data");
    let made = program("initdb")
        .arg("-D")
        .arg(&data)
        .args(["-A", "trust", "-U", "hap", "--no-sync"])
        .status()
        .unwrap();
    assert!(made.success(), "initdb: {made}");
    let server = start(program("postgres").arg("-D").arg(&data).arg("-k").arg(&home).args([
        "-c",
        "listen_addresses=",
        "-c",
        "fsync=off",
    ]));
    let socket = home.join(".s.PGSQL.5432");
    listens(&socket);
    let log = Syslog::new();
    let _program = Manylane::start(&format!(
        "{DEFAULTS} mode tcp\n timeout check 30s\nlisten l\n bind unix@{}\n log {} local0\n option \
            log-health-checks\n option pgsql-check user hap\n \
         server s unix@{} check inter 50ms\n",
        folder.0.join("front").display(),
        log.address(),
        socket.display(),
    ));
    // If the first check came too early, the server is down and has to come up first.
    let up = |line: String| line.contains(" UP.");
    while !up(log.wait("succeeded, reason: Layer7 check passed, code: 0, info: \"PostgreSQL server is ok\""))
    {
    }
    drop(server);
    // A stopping server still responds for a moment; then the check fails.
    log.wait("is DOWN");
}

/// Checks of the servers at `socket` give these results, and find the server gone after it has ended.
fn are_found(folder: &Folder, socket: &Path, server: Ended, checks: &[(&str, &str)]) {
    let logs: Vec<Syslog> = checks.iter().map(|_| Syslog::new()).collect();
    let mut config = format!(
        "{DEFAULTS} mode tcp\n timeout check 30s\nfrontend f\n bind unix@{}\n",
        folder.0.join("front").display()
    );
    for (number, ((lines, _), log)) in checks.iter().zip(&logs).enumerate() {
        config += &format!(
            "backend b{number}\n log {} local0\n option log-health-checks\n {lines}\n server s unix@{} check \
                inter 50ms\n",
            log.address(),
            socket.display()
        );
    }
    let _program = Manylane::start(&config);
    for ((_, found), log) in checks.iter().zip(&logs) {
        log.wait(found);
    }
    drop(server);
    for log in &logs {
        log.wait("reason: Layer4 connection problem, info: \"Connection refused\"");
    }
}

/// Its only user logs in over the socket without a password.
#[test]
fn a_real_mariadb_server_is_found_to_work_and_to_be_gone() {
    let (server, install) = ("/usr/sbin/mariadbd", "mariadb-install-db");
    if !is_there(server, &["--version"]) {
        return;
    }
    let folder = Folder::new();
    let (data, socket) = (folder.0.join("data"), folder.0.join("mariadb"));
    let own = nix::unistd::User::from_uid(nix::unistd::Uid::effective()).unwrap().unwrap();
    let (user, place) = (format!("--user={}", own.name), format!("--datadir={}", data.display()));
    let how = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"];
    let made = run(&[&[install, "--no-defaults", &user, &place][..], &how].concat());
    assert!(made.status.success(), "{}", said(&made));
    let server = start(
        Command::new(server)
            .args(["--no-defaults", "--skip-networking", "--silent-startup", &user, &place])
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", folder.0.join("pid").display()))
            .stderr(Stdio::null()),
    );
    listens(&socket);
    let version = "succeeded, reason: Layer7 check passed, code: 0, info: \"";
    are_found(
        &folder,
        &socket,
        server,
        &[
            ("option mysql-check", version),
            ("option mysql-check user root", version),
            ("option mysql-check user stranger", "failed, reason: Layer7 wrong status, code: 1045, info: \""),
        ],
    );
}

#[test]
fn a_real_directory_is_found_to_work_and_to_be_gone() {
    let program = "/usr/sbin/slapd";
    if !is_there(program, &["-VV"]) {
        return;
    }
    let folder = Folder::new();
    let socket = folder.0.join("ldap");
    let config = folder.file("slapd.conf", &format!("pidfile {}/pid\n", folder.0.display()));
    let place = format!("ldapi://{}", socket.display().to_string().replace('/', "%2F"));
    let server = start(Command::new(program).arg("-f").arg(config).args(["-d", "0", "-h", &place]));
    listens(&socket);
    are_found(
        &folder,
        &socket,
        server,
        &[("option ldap-check", "succeeded, reason: Layer7 check passed, code: 0, info: \"Success\"")],
    );
}

#[test]
fn a_real_mail_server_is_found_to_work_and_to_be_gone() {
    if !is_there(PYTHON, &["-c", "import aiosmtpd"]) {
        return;
    }
    let folder = Folder::new();
    let socket = folder.0.join("smtp");
    let script = (Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign")).join("smtp_server.py");
    let server = start(Command::new(PYTHON).arg(script).arg(&socket));
    listens(&socket);
    let fine = "succeeded, reason: Layer7 check passed, code: 221, info: \"Bye\"";
    are_found(
        &folder,
        &socket,
        server,
        &[
            ("option smtpchk", fine),
            ("option smtpchk EHLO client.test", fine),
            ("option smtpchk HELO client.test", fine),
        ],
    );
}
