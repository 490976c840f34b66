//! Reloads within the running process: `reload` and SIGHUP.

use crate::common;
use crate::tls::Authority;

use common::watch::until;
use common::{
    DEFAULTS, Ended, Folder, Manylane, TIMEOUT, command, connect, fd, listener, manylane, origin, read_all,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A program whose configuration file changes.
struct Changing {
    child: Ended,
    folder: Folder,
    said: Lines<BufReader<ChildStderr>>,
    file: PathBuf,
    socket: PathBuf,
    global: String,
    web: TcpListener,
    address: SocketAddr,
}

impl Changing {
    /// Starts with these proxies; `WEB` is the frontend's address.
    fn start(proxies: &str) -> Self {
        Self::start_as(Folder::new(), command(), "", proxies)
    }

    /// Starts with additional lines for `global`.
    fn start_as(folder: Folder, mut command: Command, more: &str, proxies: &str) -> Self {
        let socket = folder.0.join("control");
        // Behind the lines of `DEFAULTS`: the last `nbthread` holds.
        let own = format!(" stats socket {} level admin\n{more}defaults\n", socket.display());
        let global = DEFAULTS.replace("defaults\n", &own) + " mode http\n";
        let (web, address) = listener();
        let file = folder.file("test.cfg", &format!("{global}{}", proxies.replace("WEB", &fd(&web))));
        let mut child = Ended(command.arg("-V").arg("-f").arg(&file).stderr(Stdio::piped()).spawn().unwrap());
        let mut said = BufReader::new(child.0.stderr.take().unwrap()).lines();
        while !said.next().unwrap().unwrap().contains("lanes are ready") {}
        Self { child, folder, said, file, socket, global, web, address }
    }

    fn write(&self, proxies: &str) {
        std::fs::write(&self.file, format!("{}{}", self.global, proxies.replace("WEB", &fd(&self.web))))
            .unwrap();
    }

    /// Response of the run-time interface.
    fn ask(&self, line: &str) -> String {
        let mut client = UnixStream::connect(&self.socket).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Changes the file and reloads.
    fn change(&self, proxies: &str) {
        self.write(proxies);
        let answer = self.ask("reload");
        assert!(answer.contains("Reloaded: generation"), "{answer}");
    }

    /// A column of `show stat`.
    fn column(&self, proxy: &str, name: &str, column: &str) -> String {
        let table = self.ask("show stat");
        let mut rows = table.lines().map(|line| line.trim_start_matches("# ").split(',').collect::<Vec<_>>());
        let at = rows.next().unwrap().iter().position(|own| *own == column).unwrap();
        let row = rows.find(|row| row.len() > at && row[..2] == [proxy, name]).unwrap();
        row[at].to_owned()
    }

    fn descriptors(&self) -> usize {
        common::descriptors(self.child.0.id())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.0.id() as i32), signal).unwrap();
    }
}

/// Position behind the head, if that is complete.
fn head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// An origin that counts its connections and responds with the number of the connection.
fn counted() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let own = count.clone();
    let address = origin(move |mut stream| {
        let number = own.fetch_add(1, Ordering::SeqCst) + 1;
        let mut received = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            while let Some(end) = head(&received) {
                received.drain(..end);
                let body = number.to_string();
                if stream
                    .write_all(
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes(),
                    )
                    .is_err()
                {
                    return;
                }
            }
            match stream.read(&mut bytes) {
                Ok(length @ 1..) => received.extend_from_slice(&bytes[..length]),
                _ => return,
            }
        }
    });
    (address, count)
}

/// Sends a request and returns the whole response.
///
/// # Errors
/// What arrived instead, and how it ended.
fn get(client: &mut TcpStream, more: &str) -> Result<String, String> {
    client
        .write_all(format!("GET / HTTP/1.1\r\nHost: x\r\n{more}\r\n").as_bytes())
        .map_err(|error| error.to_string())?;
    let mut received = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        if let Some(end) = head(&received) {
            let text = String::from_utf8_lossy(&received[..end]).to_lowercase();
            let length = text
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next()?.parse::<usize>().ok());
            if received.len() >= end + length.ok_or(text)? {
                return Ok(String::from_utf8(received).unwrap());
            }
        }
        match client.read(&mut bytes) {
            Ok(length @ 1..) => received.extend_from_slice(&bytes[..length]),
            other => return Err(format!("{other:?} after '{}'", String::from_utf8_lossy(&received))),
        }
    }
}

fn front(version: usize, server: SocketAddr) -> String {
    format!(
        "listen l\n bind WEB\n http-reuse always\n http-response set-header X-Version {version}\n server s \
            {server}\n"
    )
}

/// Each session has a variable, which its responses contain.
fn with_variable(version: usize, server: SocketAddr) -> String {
    format!(
        "listen l\n bind WEB\n tcp-request session set-var(sess.who) str(\"of {version}\")\n \
         http-response set-header X-Who %[var(sess.who)]\n server s {server}\n"
    )
}

#[test]
fn a_client_between_two_requests_goes_on_with_the_new_file_and_so_does_the_servers_connection() {
    let (server, connections) = counted();
    let program = Changing::start(&front(1, server));
    let mut client = connect(program.address);
    let answer = get(&mut client, "").unwrap();
    assert!(answer.to_lowercase().contains("x-version: 1") && answer.ends_with("\r\n\r\n1"), "{answer}");
    for version in 2..6 {
        program.change(&front(version, server));
        let answer = get(&mut client, "").unwrap().to_lowercase();
        assert!(
            answer.contains(&format!("x-version: {version}")) && !answer.contains("connection: close"),
            "{answer}"
        );
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1, "the idle connection to the server was kept");
    assert_eq!(program.column("l", "FRONTEND", "req_tot"), "5");
    assert_eq!(program.column("l", "FRONTEND", "stot"), "1", "the client's connection is counted once");
    assert_eq!(program.column("l", "FRONTEND", "scur"), "1");
    drop(client);
}

/// Private connections of HTTP/2 end with their generation, and hold no session back.
#[test]
fn a_client_whose_private_connections_have_ended_goes_on_with_the_new_file() {
    let server = common::h2::serve(|stream, _| async {
        let Ok(mut connection) = h2::server::handshake(stream).await else { return };
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            let head = http::Response::builder().header("content-length", 0).body(()).unwrap();
            let _ = respond.send_response(head, true);
        }
    });
    let file = |version: usize| {
        format!(
            "listen l\n bind WEB\n http-reuse never\n http-response set-header X-Version {version}\n \
             server s {server} proto h2\n"
        )
    };
    // The second ends as soon as its response has.
    for fields in ["", "Authorization: NTLM ann\r\n"] {
        let program = Changing::start(&file(1));
        let mut client = connect(program.address);
        for version in 1..4 {
            let answer = get(&mut client, fields).unwrap().to_lowercase();
            assert!(
                answer.contains(&format!("x-version: {version}\r\n"))
                    && !answer.contains("connection: close"),
                "{fields:?}: {answer}"
            );
            program.change(&file(version + 1));
        }
    }
}

/// A connection that has changed from TCP mode to HTTP goes on with the new file, too. If that does not speak
/// HTTP there, the next request gets no answer.
#[test]
fn a_client_that_has_changed_to_http_goes_on_with_the_new_file() {
    let (server, _) = counted();
    let file = |version: &str, mode: &str| {
        format!(
            "frontend f\n mode tcp\n bind WEB\n http-response set-header X-Version {version}\n \
             default_backend b\nbackend b\n mode {mode}\n server s {server}\n"
        )
    };
    let program = Changing::start(&file("1", "http"));
    let mut client = connect(program.address);
    assert!(get(&mut client, "").unwrap().to_lowercase().contains("x-version: 1"));
    program.change(&file("2", "http"));
    assert!(get(&mut client, "").unwrap().to_lowercase().contains("x-version: 2"));
    program.change(&file("3", "tcp"));
    assert!(get(&mut client, "").is_err());
}

#[test]
fn a_request_at_work_ends_where_it_began() {
    let (sender, asks) = std::sync::mpsc::channel();
    let (allow, allowed) = std::sync::mpsc::channel::<()>();
    let allowed = std::sync::Mutex::new(allowed);
    let server = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            sender.send(()).unwrap();
            allowed.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let program = Changing::start(&front(1, server));
    let mut client = connect(program.address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    asks.recv_timeout(TIMEOUT).unwrap();
    program.change(&front(2, server));
    program.change(&front(3, server)); // two generations follow the first one then
    allow.send(()).unwrap();
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        reader.read_line(&mut answer).unwrap();
    }
    assert!(
        answer.to_lowercase().contains("x-version: 1") && !answer.to_lowercase().contains("close"),
        "{answer}"
    );
    reader.read_exact(&mut [0; 2]).unwrap();
    allow.send(()).unwrap();
    let answer = get(&mut client, "").unwrap();
    assert!(answer.to_lowercase().contains("x-version: 3"), "{answer}");
}

#[test]
fn a_session_with_variables_of_its_own_is_informed_that_it_ends() {
    let (server, _) = counted();
    let file = |version| with_variable(version, server);
    let program = Changing::start(&file(1));
    let mut client = connect(program.address);
    get(&mut client, "").unwrap();
    program.change(&file(2));
    let answer = get(&mut client, "").unwrap().to_lowercase();
    assert!(answer.contains("x-who: of 1") && answer.contains("connection: close"), "{answer}");
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let answer = get(&mut connect(program.address), "").unwrap().to_lowercase();
    assert!(answer.contains("x-who: of 2"), "{answer}");
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let (server, _) = counted();
    let mut program = Changing::start(&front(1, server));
    let mut client = connect(program.address);
    get(&mut client, "").unwrap();
    program.write(&front(2, server).replace("http-response", "http-respons"));
    let answer = program.ask("reload");
    assert!(
        answer.contains("test.cfg:")
            && answer.contains("'http-respons'")
            && answer.contains("Not reloaded: generation 0 goes on."),
        "{answer}"
    );
    while !program.said.next().unwrap().unwrap().contains("goes on.") {}
    // One listener cannot be bound, another one can.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("{} bind {}\n", front(2, server), taken.local_addr().unwrap());
    program.write(&other);
    kill(Pid::from_raw(program.child.0.id() as i32), Signal::SIGHUP).unwrap();
    let mut heard = String::new();
    while !heard.contains("goes on.") {
        heard += &program.said.next().unwrap().unwrap();
        heard += "\n";
    }
    assert!(heard.contains(&taken.local_addr().unwrap().to_string()), "{heard}");
    program.write(&front(2, server).replace("WEB", "fd@99"));
    let answer = program.ask("reload");
    assert!(answer.contains("cannot use 'fd@99'"), "{answer}");
    let answer = get(&mut client, "").unwrap().to_lowercase();
    assert!(answer.contains("x-version: 1"), "{answer}");
    // A pipe without a writer.
    std::fs::remove_file(&program.file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&program.file).status().unwrap().success());
    let answer = program.ask("reload");
    assert!(answer.contains("is a pipe"), "{answer}");
    std::fs::remove_file(&program.file).unwrap();
    program.change(&front(3, server));
    assert!(get(&mut client, "").unwrap().to_lowercase().contains("x-version: 3"));
}

/// Returns the program as one that may enter a `chroot`, and the lines of the user that it becomes; `None` if
/// this system lets none.
fn for_a_chroot() -> Option<(Command, &'static str)> {
    if nix::unistd::Uid::effective().is_root() {
        return Some((command(), " uid 65534\n gid 65534\n"));
    }
    // The root of a namespace of its own has no other users.
    let mut program = Command::new("unshare");
    program.arg("--map-root-user").stdin(Stdio::null());
    if !program.arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: neither root nor a namespace of users");
        return None;
    }
    let mut program = Command::new("unshare");
    program.arg("--map-root-user").arg(manylane()).stdin(Stdio::null());
    Some((program, ""))
}

/// After a chroot, all files of the configuration are read again under their original paths, links included,
/// with the rights of the current user.
#[test]
fn a_process_in_a_chroot_reads_its_files_again() {
    let Some((mut program, user)) = for_a_chroot() else { return };
    let is_root = nix::unistd::Uid::effective().is_root();
    program.stdin(Stdio::null());
    let folder = Folder::new();
    let path = folder.0.display().to_string();
    std::fs::create_dir(folder.0.join("empty")).unwrap();
    std::os::unix::fs::symlink(folder.file("real.map", "/a old\n"), folder.0.join("link.map")).unwrap();
    folder.file("paths", "/none\n");
    folder.file("503", "HTTP/1.1 503 Old\r\nContent-Length: 0\r\n\r\n");
    let proxies = |version: usize| {
        format!(
            "frontend f\n bind WEB\n errorfile 503 {path}/503\n http-request return status 200 hdr X-Is \
             \"{version} %[path,map({path}/link.map,none)]\" if !{{ path -f {path}/paths }}\n \
             default_backend b\n\
             backend b\n"
        )
    };
    let global = format!(" chroot {path}/empty\n{user}");
    let program = Changing::start_as(folder, program, &global, &proxies(1));
    let mut client = connect(program.address);
    let requested = |client: &mut TcpStream, path: &str| {
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        while head(&bytes).is_none() {
            let mut part = [0; 512];
            let length = client.read(&mut part).unwrap();
            assert!(length > 0);
            bytes.extend_from_slice(&part[..length]);
        }
        String::from_utf8(bytes).unwrap().to_lowercase()
    };
    assert!(requested(&mut client, "/a").contains("x-is: 1 old\r\n"));
    let root = std::fs::read_link(format!("/proc/{}/root", program.child.0.id())).unwrap();
    assert!(root.ends_with("empty"), "{}", root.display());
    program.folder.file("real.map", "/a new\n");
    program.folder.file("paths", "/b\n");
    program.folder.file("503", "HTTP/1.1 503 New\r\nContent-Length: 0\r\n\r\n");
    for version in 2..4 {
        program.change(&proxies(version));
        let answer = requested(&mut client, "/a");
        assert!(answer.contains(&format!("x-is: {version} new\r\n")), "{answer}");
    }
    assert!(requested(&mut client, "/b").starts_with("http/1.1 503 new\r\n"));
    // A file that this user may not read is reported, and nothing changes.
    if is_root {
        let secret = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(program.folder.0.join("real.map"), secret).unwrap();
        program.write(&proxies(4));
        let answer = program.ask("reload");
        assert!(answer.contains("ermission denied") && answer.contains("Not reloaded"), "{answer}");
    }
    assert!(requested(&mut connect(program.address), "/a").contains("x-is: 3 new\r\n"));
}

/// The thread that binds a unix socket is outside of the chroot, and the lanes are inside.
#[test]
fn a_process_in_a_chroot_binds_new_unix_sockets() {
    let Some((mut program, user)) = for_a_chroot() else { return };
    program.stdin(Stdio::null());
    let folder = Folder::new();
    let path = folder.0.display().to_string();
    for name in ["empty", "sockets"] {
        std::fs::create_dir(folder.0.join(name)).unwrap();
    }
    // The user of the process makes the socket.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.0.join("sockets"), all).unwrap();
    let proxies = "frontend f\n bind WEB\n http-request return status 200\n";
    let program = Changing::start_as(folder, program, &format!(" chroot {path}/empty\n{user}"), proxies);
    let socket = program.folder.0.join("sockets/new");
    program.write(&format!("{proxies}frontend more\n bind {}\n", socket.display()));
    assert_eq!(program.ask("reload").trim(), "Reloaded: generation 1 serves.");
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "it has no server: {answer}");
}

#[test]
fn what_needs_a_restart_is_reported() {
    let (server, _) = counted();
    let program = Changing::start(&front(1, server));
    let other = program.global.replace("nbthread 2", "nbthread 3\n pidfile x");
    std::fs::write(&program.file, format!("{other}{}", front(2, server).replace("WEB", &fd(&program.web))))
        .unwrap();
    let answer = program.ask("reload");
    assert!(answer.contains("'nbthread' keeps its") && answer.contains("'pidfile' keeps its"), "{answer}");
    assert!(answer.contains("Reloaded: generation 1 serves."), "{answer}");
    let answer = program.ask("reload");
    assert!(answer.contains("'nbthread' keeps its"), "it still is not what the file says: {answer}");
    program.write(&front(3, server));
    assert_eq!(
        program.ask("reload").trim(),
        "Reloaded: generation 3 serves.",
        "it is what the process started with"
    );
}

/// The generation that goes on needs its descriptors.
#[test]
fn a_refused_reload_leaves_the_limit_of_descriptors() {
    let proxies = "frontend f\n bind WEB\n http-request return status 200\n";
    let mut program = Changing::start_as(Folder::new(), command(), " ulimit-n 900\n", proxies);
    let limit = |program: &Changing| {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.child.0.id())).unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit(&program), "900");
    program.global = program.global.replace("ulimit-n 900", "ulimit-n 700");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    program.write(&format!("{proxies} bind {}\n", taken.local_addr().unwrap()));
    assert!(program.ask("reload").contains("Not reloaded: generation 0 goes on."));
    assert_eq!(limit(&program), "900");
    program.change(proxies);
    assert_eq!(limit(&program), "700");
}

#[test]
fn a_socket_keeps_its_options_and_its_file_whatever_becomes_of_a_reload() {
    let (server, _) = counted();
    let program = Changing::start(&front(1, server));
    let path = program.folder.0.join("more");
    let more = |mode: &str| format!("{} bind {} mode {mode}\n", front(2, server), path.display());
    program.change(&more("600"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    program.write(&format!("{} bind {}\n", more("660"), taken.local_addr().unwrap()));
    assert!(program.ask("reload").contains("Not reloaded: generation 1 goes on."));
    UnixStream::connect(&path).unwrap();
    program.write(&more("660"));
    let answer = program.ask("reload");
    assert!(answer.contains("The socket at '") && answer.contains("more' keeps its"), "{answer}");
    program.write(&more("600"));
    assert_eq!(
        program.ask("reload").trim(),
        "Reloaded: generation 3 serves.",
        "it is what the file says again"
    );
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_frontend_that_comes_back_counts_the_connections_that_it_has() {
    let (server, _) = counted();
    let (sender, asks) = std::sync::mpsc::channel();
    let (allow, allowed) = std::sync::mpsc::channel::<()>();
    let allowed = std::sync::Mutex::new(allowed);
    let slow = origin(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        sender.send(()).unwrap();
        let _ = allowed.lock().unwrap().recv();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    let program = Changing::start(&front(1, slow));
    let mut client = connect(program.address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    asks.recv_timeout(TIMEOUT).unwrap();
    let path = program.folder.0.join("other");
    program.change(&format!("listen other\n bind {}\n bind WEB\n server s {server}\n", path.display()));
    assert_eq!(program.column("other", "FRONTEND", "scur"), "0");
    program.change(&front(2, slow));
    assert_eq!(program.column("l", "FRONTEND", "scur"), "0", "that one is of the first generation still");
    allow.send(()).unwrap();
    let mut answer = [0; 4096];
    let mut length = 0;
    while !answer[..length].ends_with(b"ok") {
        length += client.read(&mut answer[length..]).unwrap();
    }
    let until = std::time::Instant::now() + TIMEOUT;
    while program.column("l", "FRONTEND", "scur") != "1" {
        assert!(std::time::Instant::now() < until, "it is not counted where it is now");
    }
    drop(client);
    while program.column("l", "FRONTEND", "scur") != "0" {
        assert!(std::time::Instant::now() < until, "it is counted for ever");
    }
}

#[test]
fn a_session_that_stays_with_its_generation_ends_with_the_process() {
    let (server, _) = counted();
    let file = |version| with_variable(version, server);
    let mut program = Changing::start(&file(1));
    let mut client = connect(program.address);
    get(&mut client, "").unwrap();
    program.change(&file(2));
    kill(Pid::from_raw(program.child.0.id() as i32), Signal::SIGUSR1).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(program.child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn what_an_operator_did_to_servers_stays_unless_the_file_says_otherwise() {
    let (a, _) = counted();
    let (b, _) = counted();
    let file = |weight, more: &str| {
        format!("listen l\n bind WEB\n server a {a} weight {weight}\n server b {b}{more}\n")
    };
    let program = Changing::start(&file(10, ""));
    program.ask("disable server l/b");
    program.ask("set server l/a weight 7");
    program.change(&file(10, ""));
    assert_eq!(
        (program.column("l", "b", "status"), program.column("l", "a", "weight")),
        ("MAINT".into(), "7".into())
    );
    program.change(&file(20, ""));
    assert_eq!(
        (program.column("l", "b", "status"), program.column("l", "a", "weight")),
        ("MAINT".into(), "20".into())
    );
    program.ask("enable server l/b");
    program.change(&file(20, " disabled"));
    assert_eq!(program.column("l", "b", "status"), "MAINT");
    program.change(&file(20, ""));
    assert_ne!(program.column("l", "b", "status"), "MAINT");
}

/// A server is the same if the files have the same address, whatever its current address.
#[test]
fn a_server_that_an_operator_sent_elsewhere_stays_there_and_what_it_is() {
    let ((a, _), (b, of_b), (c, of_c)) = (counted(), counted(), counted());
    let file = |version, address: SocketAddr| {
        format!(
            "listen l\n bind WEB\n http-response set-header X-Version {version}\n option httpchk\n server s \
                {address} weight 10 check inter 1h\n"
        )
    };
    let program = Changing::start(&file(1, a));
    program.ask(&format!(
        "disable health l/s; set server l/s weight 7; set server l/s addr {} port {}",
        b.ip(),
        b.port()
    ));
    let mut client = connect(program.address);
    let requested = |client: &mut TcpStream, version| {
        let answer = get(client, "").unwrap();
        assert!(answer.contains(&format!("X-Version: {version}\r\n")), "{answer}");
    };
    requested(&mut client, 1);
    let known = || {
        let columns = ["status", "weight", "stot", "check_status", "chkfail", "addr"];
        columns.map(|name| program.column("l", "s", name))
    };
    let before = known();
    assert_eq!((&*before[1], &*before[2], &*before[5]), ("7", "1", &*b.to_string()));
    for version in 2..4 {
        program.change(&file(version, a));
        assert_eq!(known()[..2], before[..2]);
        assert_eq!(known()[3..], before[3..]);
        requested(&mut client, version);
        assert_eq!(program.column("l", "s", "stot"), version.to_string());
    }
    assert_eq!(of_b.load(Ordering::SeqCst), 1, "idle connections stay, too");
    // A command after the reload applies to both generations.
    program.ask(&format!("set server l/s addr {} port {}", c.ip(), c.port()));
    requested(&mut client, 3);
    assert_eq!(of_c.load(Ordering::SeqCst), 1);
    // The file adopts the new address: still the same server. Any other address: another server.
    program.change(&file(4, c));
    assert_eq!(
        (program.column("l", "s", "stot"), program.column("l", "s", "weight")),
        ("4".into(), "7".into())
    );
    program.change(&file(5, b));
    assert_eq!(
        (program.column("l", "s", "stot"), program.column("l", "s", "weight")),
        ("0".into(), "10".into())
    );
    assert_eq!(program.column("l", "s", "addr"), b.to_string());
}

/// A server that a command added and another moved is the one that the file has at its first address.
#[test]
fn a_server_that_was_added_and_sent_elsewhere_stays_if_the_file_has_it() {
    let ((a, _), (b, _)) = (counted(), counted());
    let program = Changing::start(&front(1, a));
    let answer = program.ask(&format!("add server l/x {a} weight 3"));
    assert!(answer.contains("New server registered."), "{answer}");
    program.ask(&format!(
        "enable server l/x; set server l/x weight 2; set server l/x addr {} port {}",
        b.ip(),
        b.port()
    ));
    program.change(&format!("{} server x {a} weight 3\n", front(2, a)));
    assert_eq!(
        (program.column("l", "x", "weight"), program.column("l", "x", "addr")),
        ("2".into(), b.to_string())
    );
}

#[test]
fn limits_that_an_operator_set_stay_unless_the_file_says_otherwise() {
    let (server, _) = counted();
    let file = |most: u32| format!("{} maxconn {most}\n", front(1, server));
    let mut program = Changing::start(&file(50));
    program.ask(
        "set maxconn frontend l 77; set maxconn global 88; set rate-limit sessions global 1000; set \
        rate-limit connections global 2000",
    );
    let known = |program: &Changing| {
        let info = program.ask("show info");
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
        [
            program.column("l", "FRONTEND", "slim"),
            field("Maxconn: "),
            field("SessRateLimit: "),
            field("ConnRateLimit: "),
        ]
    };
    let set = ["77", "88", "1000", "2000"];
    assert_eq!(known(&program), set);
    for _ in 0..2 {
        program.change(&file(50));
        assert_eq!(known(&program), set);
    }
    program.change(&file(51));
    assert_eq!(known(&program), ["51", "88", "1000", "2000"]);
    program.global = program.global.replacen("global\n", "global\n maxconn 60\n maxsessrate 5\n", 1);
    program.change(&file(51));
    assert_eq!(known(&program), ["51", "60", "5", "2000"]);
}

#[test]
fn variables_of_the_process_stay_unless_the_file_gives_them_another_value() {
    let file = |more: &str| {
        format!(
            "listen l\n bind WEB\n http-request set-var(proc.count) var(proc.count),add(1)\n http-request \
                set-var(proc.written) str(rule) if {{ path /set }}\n \
             http-request return status 200 hdr X-Variables \"%[var(proc.count)] %[var(proc.written)] \
             %[var(proc.other){more}]\"\n"
        )
    };
    let mut program = Changing::start(&file(""));
    let global = program.global.clone();
    let write = |program: &mut Changing, written: &str| {
        program.global =
            global.replacen("global\n", &format!("global\n set-var proc.count int(0)\n{written}"), 1);
    };
    let ask = |program: &Changing, path: &str| {
        let mut client = connect(program.address);
        client
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
            .unwrap();
        let answer = read_all(&mut client).to_lowercase();
        answer.split("x-variables: ").nth(1).unwrap().split("\r\n").next().unwrap().trim_end().to_owned()
    };
    let first = " set-var proc.written str(file)\n";
    write(&mut program, first);
    program.change(&file(""));
    assert_eq!(ask(&program, "/"), "1 file");
    assert_eq!(ask(&program, "/set"), "2 rule");
    program.ask("experimental-mode on; set var proc.other str(command); set var proc.mark int(5)");
    assert_eq!(ask(&program, "/"), "3 rule command");
    // Another order of names gives them other numbers.
    write(&mut program, &format!(" set-var proc.new bool(true)\n{first}"));
    program.change(&file(",upper"));
    assert_eq!(ask(&program, "/"), "4 rule command");
    program.change(&file(",upper"));
    assert_eq!(program.ask("get var proc.mark"), "proc.mark: type=sint value=<5>\n\n");
    // The file sets another value, then none.
    write(&mut program, " set-var proc.written str(anew)\n");
    program.change(&file(""));
    assert_eq!(ask(&program, "/"), "5 anew command");
    write(&mut program, "");
    program.change(&file(""));
    assert_eq!(ask(&program, "/"), "6  command");
    assert_eq!(program.ask("get var proc.mark"), "proc.mark: type=sint value=<5>\n\n");
}

#[test]
fn listeners_come_and_go_with_the_file() {
    let (server, _) = counted();
    let program = Changing::start(&front(1, server));
    let path = program.folder.0.join("more");
    let more = format!("{} bind {}\n", front(2, server), path.display());
    program.change(&more);
    program.change(&more); // the same socket once more
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 OK"), "{answer}");
    program.change(&front(3, server));
    let until = std::time::Instant::now() + TIMEOUT;
    while path.exists() {
        assert!(std::time::Instant::now() < until, "the socket's file is still there");
        program.ask("show version");
    }
}

#[test]
fn a_connection_in_tcp_mode_outlives_its_generation_and_the_process_ends_after_it() {
    let server = common::echo();
    let file = |maxconn| format!("listen l\n mode tcp\n bind WEB\n maxconn {maxconn}\n server s {server}\n");
    let mut program = Changing::start(&file(2));
    let mut client = connect(program.address);
    let mut say = |text: &[u8]| {
        client.write_all(text).unwrap();
        let mut back = vec![0; text.len()];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, text);
    };
    say(b"before");
    for maxconn in [1, 2, 3] {
        program.change(&file(maxconn));
        say(b"behind");
    }
    assert_eq!(program.column("l", "FRONTEND", "scur"), "1");
    kill(Pid::from_raw(program.child.0.id() as i32), Signal::SIGUSR1).unwrap();
    let mut line = String::new();
    while !line.contains("Proxy l stopped") {
        line = program.said.next().unwrap().unwrap();
    }
    assert!(line.contains("FE: 1, BE: 1)"), "{line}");
    say(b"last words");
    assert!(program.child.0.try_wait().unwrap().is_none());
    drop(client);
    assert_eq!(program.child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_that_is_down_is_down_for_the_next_generation_at_once() {
    let nobody = common::nobody();
    let file = |version| {
        format!(
            "listen l\n bind WEB\n http-response set-header v {version}\n server s {nobody} check inter 100 \
                fall 1\n"
        )
    };
    let program = Changing::start(&file(1));
    let until = std::time::Instant::now() + TIMEOUT;
    while program.column("l", "s", "status") != "DOWN" {
        assert!(std::time::Instant::now() < until, "it is never found down");
    }
    let downs = program.column("l", "s", "chkdown");
    program.change(&file(2).replace("inter 100", "inter 1h"));
    assert_eq!(
        (program.column("l", "s", "status"), program.column("l", "s", "chkdown")),
        ("DOWN".into(), downs)
    );
}

/// A running check continues over a reload and its result counts; a check with other settings starts again.
#[test]
fn checks_go_on_over_a_reload_unless_they_are_others() {
    let (reached, at) = std::sync::mpsc::channel();
    let slow = origin(move |stream| _ = reached.send(stream));
    let file = |line: &str, path: &str, options: &str| {
        format!(
            "listen l\n bind WEB\n timeout check 1h\n option httpchk GET {path}\n{line} \
             server s {slow} check inter 1h fall 1 rise 1 {options}\n"
        )
    };
    let program = Changing::start(&file("", "/", ""));
    let requested = |path: &str| {
        let mut check: TcpStream = at.recv_timeout(TIMEOUT).unwrap();
        let mut request = vec![0; 4096];
        let length = check.read(&mut request).unwrap();
        assert!(request[..length].starts_with(format!("GET {path} ").as_bytes()));
        check
    };
    let status = || program.column("l", "s", "status");
    let mut check = requested("/");
    // Another server number, another weight, more servers: the check is the same.
    program.change(&file(" server r 127.0.0.1:1\n", "/", "weight 7"));
    program.change(&file(" # nothing\n", "/", "maxconn 9"));
    assert_eq!(status(), "UP");
    assert!(at.try_recv().is_err(), "it is asked already");
    check.write_all(b"HTTP/1.0 500 No\r\n\r\n").unwrap();
    drop(check);
    until(|| status() == "DOWN");
    assert!(at.try_recv().is_err(), "it was asked once");
    program.change(&file("", "/other", ""));
    let mut check = requested("/other");
    assert_eq!(status(), "DOWN");
    program.change(&file("", "/other", "weight 2"));
    check.write_all(b"HTTP/1.0 200 Yes\r\n\r\n").unwrap();
    drop(check);
    until(|| status() == "UP");
    assert!(at.try_recv().is_err(), "it was asked once");
    // In maintenance no check runs, even if the new file enables it.
    assert_eq!(program.ask("disable server l/s").trim(), "");
    let unchecked = |file: String| file.replace("check inter 1h fall 1 rise 1", "");
    program.change(&unchecked(file("", "/other", "")));
    program.change(&file("", "/other", ""));
    assert_eq!(status(), "MAINT");
    assert!(at.try_recv().is_err(), "it is not asked");
    assert_eq!(program.ask("enable server l/s").trim(), "");
    let check = requested("/other");
    program.change(&unchecked(file("", "/other", "")));
    drop(check);
    // A server that is the same, without checks, has the status of the file.
    assert_eq!(status(), "no check");
}

#[test]
fn sockets_inside_of_the_process_are_kept() {
    let (server, _) = counted();
    let file = |version| {
        format!(
            "listen l\n bind WEB\n server s local@inner\nlisten inner\n bind local@inner\n \
             http-response set-header X-Version {version}\n server s {server}\n"
        )
    };
    let program = Changing::start(&file(1));
    let mut client = connect(program.address);
    for version in 2..12 {
        get(&mut client, "").unwrap();
        program.change(&file(version));
        // A connection from before may serve the next response, which is its last.
        let until = std::time::Instant::now() + TIMEOUT;
        while !get(&mut client, "").unwrap().to_lowercase().contains(&format!("x-version: {version}")) {
            assert!(std::time::Instant::now() < until, "it stays with the generation before");
        }
        assert!(get(&mut connect(program.address), "").unwrap().contains("200 OK"));
    }
}

#[test]
fn no_request_is_lost_and_nothing_is_left_when_it_is_reloaded_under_load() {
    let reloads = common::reloads(25);
    let (server, _) = counted();
    let mut program = Changing::start(&front(0, server));
    let over = Arc::new(AtomicBool::new(false));
    let started = Arc::new(std::sync::Barrier::new(7));
    let clients: Vec<_> = (0..6)
        .map(|number| {
            let (over, started, address) = (over.clone(), started.clone(), program.address);
            std::thread::spawn(move || {
                let keeps = number % 2 == 0;
                let mut kept = keeps.then(|| connect(address));
                let (mut done, mut is_last) = (0, false);
                started.wait();
                while !is_last {
                    // A client that was delayed sends one more, to the last generation.
                    is_last = over.load(Ordering::Relaxed);
                    let mut own = None; // for this request only
                    let client = kept.as_mut().unwrap_or_else(|| own.insert(connect(address)));
                    let answer = get(client, if keeps { "" } else { "Connection: close\r\n" })
                        .expect("an answer")
                        .to_lowercase();
                    assert!(answer.starts_with("http/1.1 200 ok"), "{answer}");
                    assert!(!keeps || !answer.contains("connection: close"), "{answer}");
                    assert!(!is_last || answer.contains(&format!("x-version: {reloads}\r\n")), "{answer}");
                    done += 1;
                }
                done
            })
        })
        .collect();
    started.wait();
    program.change(&front(1, server));
    let before = program.descriptors();
    for version in 2..=reloads {
        program.write(&front(version, server));
        if version % 2 == 0 {
            assert!(program.ask("reload").contains("Reloaded: generation"));
        } else {
            kill(Pid::from_raw(program.child.0.id() as i32), Signal::SIGHUP).unwrap();
        }
        while !program
            .said
            .next()
            .unwrap()
            .unwrap()
            .contains(&format!("Reloaded: generation {version} serves."))
        {}
    }
    over.store(true, Ordering::Relaxed);
    let all: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(program.column("l", "FRONTEND", "req_tot"), all.to_string());
    assert_eq!(program.column("l", "FRONTEND", "hrsp_2xx"), all.to_string());
    // The number of server connections may vary: each of two lanes keeps a few.
    let until = std::time::Instant::now() + TIMEOUT;
    while program.descriptors() > before + 12 || program.column("l", "FRONTEND", "scur") != "0" {
        assert!(std::time::Instant::now() < until, "{} descriptors, {before} before", program.descriptors());
    }
    assert_eq!(program.column("l", "s", "scur"), "0");
}

/// Lines of a ring survive a reload, which may change its size. Lines that its server has not received wait
/// while it is away; each arrives once.
#[test]
fn a_ring_and_what_its_server_has_not_had_outlive_a_reload() {
    let collector = TcpListener::bind((common::own_ip(), 0)).unwrap();
    let address = collector.local_addr().unwrap();
    let proxies = |size: &str| {
        format!(
            "ring lines\n format raw\n size {size}\n timeout connect 5s\n timeout server 5s\n server s \
                {address}\n\
             frontend f\n bind WEB\n log ring@lines local0\n log-format \"%HP\"\n http-request return status \
             200\n"
        )
    };
    let program = Changing::start(&proxies("16k"));
    let get = |path: &str| common::get(program.address, path);
    let line = |client: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        line
    };
    let accept = |collector: &TcpListener| {
        let (client, _) = collector.accept().unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        BufReader::new(client)
    };
    get("/a");
    let mut sent = accept(&collector);
    assert_eq!(line(&mut sent), "/a\n");
    drop((collector, sent));
    get("/b");
    program.change(&proxies("32k"));
    get("/c");
    program.change(&proxies("20k"));
    let collector = TcpListener::bind(address).unwrap();
    get("/d");
    let mut sent = accept(&collector);
    for path in ["/b\n", "/c\n", "/d\n"] {
        assert_eq!(line(&mut sent), path);
    }
    assert_eq!(program.ask("show events lines"), "/a\n/b\n/c\n/d\n\n");
    // Without the server in the file its connection closes.
    program.change(&proxies("20k").replace(&format!(" server s {address}\n"), ""));
    get("/e");
    assert_eq!(line(&mut sent), "");
    // A client may get its response before the line is written.
    until(|| program.ask("show events lines") == "/a\n/b\n/c\n/d\n/e\n\n");
}

/// Commands about servers reach queues of a replaced generation: requests waiting for any server, and for a
/// certain one.
#[test]
fn queues_of_before_a_reload_hear_of_servers() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let server = origin(move |mut stream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
            released.lock().unwrap().recv().unwrap();
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let proxies = |version: usize| {
        format!(
            "frontend f\n bind WEB\n http-response set-header x-version {version}\n default_backend b\n\
             backend b\n timeout queue 10m\n timeout server 10m\n server s {server} maxconn 1\n"
        )
    };
    for (out, back) in [
        ("set server b/s state drain", "set server b/s state ready"),
        ("set weight b/s 0%", "set weight b/s 100%"),
        ("disable server b/s", "enable server b/s"),
    ] {
        let program = Changing::start(&proxies(1));
        let ask = || {
            let mut client = connect(program.address);
            write!(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            client
        };
        let mut first = ask();
        common::watch::until(|| program.column("b", "s", "scur") == "1");
        let mut second = ask();
        common::watch::until(|| program.ask("show sess").contains("state=queue"));
        assert_eq!(program.ask(out).trim(), "", "{out}");
        program.change(&proxies(2));
        release.send(()).unwrap();
        assert!(read_all(&mut first).starts_with("HTTP/1.1 200 "), "{out}");
        assert_eq!(program.ask(back).trim(), "", "{back}");
        release.send(()).unwrap();
        let answer = read_all(&mut second);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("x-version: 1"), "{back}: {answer}");
    }
}

/// `hard-stop-after` applies to a replaced generation with that generation's own value: streams with and
/// without a server are told, and those of the next generation continue.
#[test]
fn what_is_left_of_a_generation_ends_after_its_hard_stop_after() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let silent = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        if bytes[..length].starts_with(b"GET /new") {
            released.lock().unwrap().recv().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        } else {
            let _ = stream.read(&mut bytes); // until the proxy closes
        }
    });
    let proxies = |time: &str, name: &str| {
        format!(
            "global\n hard-stop-after {time}\nfrontend f\n bind WEB\n timeout tarpit 10m\n http-request \
                tarpit if {{ path /tarpit }}\n\
             default_backend {name}\nbackend {name}\n timeout server 10m\n server s {silent}\n"
        )
    };
    let program = Changing::start(&proxies("100ms", "one"));
    let ask = |path: &str| {
        let mut client = connect(program.address);
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        client
    };
    let (mut with_server, mut without) = (ask("/old"), ask("/tarpit"));
    let at_work = |name: &str| program.column(name, "s", "scur") == "1";
    common::watch::until(|| at_work("one") && program.column("f", "FRONTEND", "req_tot") == "2");
    program.change(&proxies("1h", "two"));
    let mut new = ask("/new");
    common::watch::until(|| at_work("two"));
    let mut answer = [0; 11];
    with_server.read_exact(&mut answer).unwrap(); // then it goes idle, and moves to the next generation
    assert_eq!(&answer, b"HTTP/1.1 50");
    let mut rest = Vec::new();
    without.read_to_end(&mut rest).unwrap();
    assert!(rest.starts_with(b"HTTP/1.1 500"), "what the tarpit has to say");
    release.send(()).unwrap();
    let mut answer = [0; 12];
    new.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

/// A soft stop knows the `hard-stop-after` of each replaced generation, also while it waits for `grace`.
#[test]
fn a_soft_stop_ends_what_is_left_of_a_replaced_generation_after_its_hard_stop_after() {
    for grace in ["", " grace 1h\n"] {
        let proxies = |global: &str| {
            format!(
                "global\n{global}frontend f\n bind WEB\n timeout tarpit 10m\n http-request tarpit\n \
                    default_backend b\nbackend b\n"
            )
        };
        let mut program = Changing::start(&proxies(" hard-stop-after 1s\n"));
        let mut client = connect(program.address);
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        until(|| program.column("f", "FRONTEND", "req_tot") == "1");
        program.change(&proxies(&format!("{grace} hard-stop-after 1h\n")));
        program.signal(Signal::SIGUSR1);
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 500"), "what the tarpit has to say");
        if !grace.is_empty() {
            program.signal(Signal::SIGTERM);
        }
        until(|| program.child.0.try_wait().unwrap().is_some());
        let ended = program.child.0.wait().unwrap();
        assert_eq!(ended.signal(), (!grace.is_empty()).then_some(Signal::SIGTERM as i32));
    }
}

/// `grace` delays the soft stop, and nothing else: the process ends when it is to end at once, and refuses a
/// reload.
#[test]
fn a_process_ends_at_once_amid_grace() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut program =
            Changing::start_as(Folder::new(), command(), " grace 1h\n", &front(1, common::nobody()));
        program.signal(Signal::SIGUSR1);
        until(|| program.ask("show info").contains("\nStopping: 1\n"));
        let answer = program.ask("reload");
        assert!(answer.contains("Not reloaded: the process ends."), "{answer}");
        program.signal(signal);
        until(|| program.child.0.try_wait().unwrap().is_some());
        assert_eq!(program.child.0.wait().unwrap().signal(), Some(signal as i32));
    }
}

/// `close-spread-time` also applies to clients whose frontend a reload removes: they are not closed at once,
/// and never if the time is infinite.
#[test]
fn a_client_whose_frontend_is_gone_is_closed_within_close_spread_time() {
    for (spread, stays) in [("", false), (" close-spread-time infinite\n", true)] {
        let proxies = |name: &str, status: u16| {
            format!(
                "global\n{spread} nbthread 2\nfrontend {name}\n bind WEB\n http-request return status \
                    {status}\n"
            )
        };
        let program = Changing::start(&proxies("f", 201));
        let mut client = connect(program.address);
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        let get = |client: &mut TcpStream| {
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let (mut answer, mut byte) = (Vec::new(), [0]);
            while head(&answer).is_none() {
                client.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            String::from_utf8(answer[9..12].into()).unwrap()
        };
        assert_eq!(get(&mut client), "201");
        program.change(&proxies("g", 202));
        // A client that connects while a lane replaces its generation may be the last one of the old
        // generation.
        let until = std::time::Instant::now() + TIMEOUT;
        while get(&mut connect(program.address)) != "202" {
            assert!(std::time::Instant::now() < until, "the generation before goes on");
        }
        if stays {
            assert_eq!(get(&mut client), "201", "the generation that it began with");
        } else {
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
        }
    }
}

/// A reload removes a server that a command has added, and says so, unless the file has it by then.
#[test]
fn a_server_that_was_added_stays_if_the_file_has_it() {
    let (server, _) = counted();
    let program = Changing::start(&front(1, server));
    for name in ["x", "y"] {
        let answer = program.ask(&format!("add server l/{name} {server} weight 3"));
        assert!(answer.contains("New server registered."), "{answer}");
    }
    program.ask("enable server l/x; set server l/x weight 2");
    program.write(&format!("{} server x {server} weight 3\n", front(2, server)));
    let answer = program.ask("reload");
    assert!(answer.contains("Server 'l/y' was added by a command and is in no file"), "{answer}");
    assert!(answer.contains("Reloaded: generation") && !answer.contains("'l/x'"), "{answer}");
    assert_eq!(program.column("l", "x", "weight"), "2", "what was set stays");
    assert_eq!(program.column("l", "x", "status"), "no check");
    assert!(program.ask("get weight l/y").contains("No such server."));
    let again = program.ask(&format!("add server l/y {server}"));
    assert!(again.contains("New server registered."), "{again}");
    program.change(&front(3, server));
    assert!(program.ask("get weight l/x").contains("No such server."));
}

/// Connections to a server that streams of an earlier generation leave idle serve later streams, even if the
/// server has another number by then.
#[test]
fn connections_of_streams_of_before_serve_those_of_after() {
    let (reached, at) = std::sync::mpsc::channel();
    let count = Arc::new(AtomicUsize::new(0));
    let connections = count.clone();
    let server = origin(move |mut stream| {
        connections.fetch_add(1, Ordering::SeqCst);
        while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
            let (go, gone) = std::sync::mpsc::channel::<()>();
            if reached.send(go).is_err() || gone.recv().is_err() {
                return;
            }
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let proxies = |line: &str, version: u32| {
        format!(
            "listen l\n bind WEB\n http-reuse always\n http-response set-header x-version {version}\n{line} \
             server s {server} pool-low-conn 0\n"
        )
    };
    let program = Changing::start_as(Folder::new(), command(), " nbthread 1\n", &proxies("", 1));
    let ask = || {
        let mut client = connect(program.address);
        write!(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let mut before = ask();
    let go: std::sync::mpsc::Sender<()> = at.recv_timeout(TIMEOUT).unwrap();
    program.change(&proxies(" server r 127.0.0.1:1 disabled\n", 2));
    go.send(()).unwrap();
    assert!(read_all(&mut before).contains("x-version: 1"));
    until(|| program.column("l", "s", "idle_conn_cur") == "1");
    for version in [2, 3] {
        let mut after = ask();
        at.recv_timeout(TIMEOUT).unwrap().send(()).unwrap();
        assert!(read_all(&mut after).contains(&format!("x-version: {version}")));
        program.change(&proxies("", 3)); // idle connections move along
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Settings of a server that differ in the new file apply to earlier streams, too; changes by commands stay.
#[test]
fn what_the_new_file_says_of_a_server_holds_for_streams_of_before() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let server = origin(move |mut stream| {
        while stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
            released.lock().unwrap().recv().unwrap();
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let proxies = |options: &str, other: &str| {
        format!(
            "frontend f\n bind WEB\n default_backend b\nbackend b\n timeout queue 10m\n timeout server 10m\n \
             server s {server} {options}\n server t {server} {other}\n"
        )
    };
    let program = Changing::start(&proxies("maxconn 1", "weight 5 disabled"));
    let ask = || {
        let mut client = connect(program.address);
        write!(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        client
    };
    let mut clients = [ask(), ask()];
    common::watch::until(|| program.ask("show sess").contains("state=queue"));
    assert_eq!(program.ask("set weight b/t 3").trim(), "");
    program.change(&proxies("maxconn 2 weight 7", "weight 5 disabled"));
    common::watch::until(|| program.column("b", "s", "scur") == "2");
    let columns = |server: &str| ["status", "weight", "slim"].map(|name| program.column("b", server, name));
    assert_eq!(
        (columns("s"), columns("t")),
        (["no check", "7", "2"].map(String::from), ["MAINT", "3", ""].map(String::from))
    );
    clients.iter().for_each(|_| release.send(()).unwrap());
    for client in &mut clients {
        assert!(read_all(client).starts_with("HTTP/1.1 200 "));
    }
    program.change(&proxies("disabled", "weight 6"));
    assert_eq!(
        (columns("s"), columns("t")),
        (["MAINT", "1", ""].map(String::from), ["no check", "6", ""].map(String::from))
    );
}

/// A `maxconn` holds for streams before and after a reload together: later requests wait for permits of
/// earlier streams.
#[test]
fn a_limit_holds_over_a_reload() {
    let (reached, at) = std::sync::mpsc::channel();
    let slow = origin(move |mut stream| {
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
            let (go, gone) = std::sync::mpsc::channel::<()>();
            if reached.send(go).is_err() || gone.recv().is_err() {
                return;
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        }
    });
    let proxies = |server: &str| {
        format!("frontend front\n bind WEB\n default_backend back\nbackend back\n timeout queue 1h\n{server}")
    };
    let program = Changing::start(&proxies(&format!(" server s {slow} maxconn 2\n")));
    let ask = |address| {
        std::thread::spawn(move || {
            let mut client = connect(address);
            client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            read_all(&mut client)
        })
    };
    let mut clients = vec![ask(program.address), ask(program.address)];
    let mut served: Vec<_> = (0..2).map(|_| at.recv_timeout(TIMEOUT).unwrap()).collect();
    for line in ["other 127.0.0.1:1 disabled", "more 127.0.0.1:1 disabled"] {
        program.change(&proxies(&format!(" server {line}\n server s {slow} maxconn 2\n")));
        clients.push(ask(program.address));
        until(|| program.column("back", "BACKEND", "qcur") == "1");
    }
    for _ in 0..2 {
        assert!(at.try_recv().is_err(), "there is no place");
        served.remove(0).send(()).unwrap();
        served.push(at.recv_timeout(TIMEOUT).unwrap());
    }
    served.into_iter().for_each(|go| go.send(()).unwrap());
    assert!(clients.into_iter().all(|client| client.join().unwrap().ends_with("slow")));
}

/// A reload that does not fit under `-m` is refused before anything is built, and the process continues. How
/// much fits depends on the build: nothing fits with the smallest of these limits.
#[test]
fn a_reload_that_does_not_fit_is_refused() {
    let (socket, address) = listener();
    let mut config =
        format!("{DEFAULTS} mode http\nfrontend f\n bind {}\n http-request return status 200\n", fd(&socket))
            .replace("nbthread 2", "nbthread 1");
    for backend in 0..800 {
        config += &format!("backend b{backend}\n");
        (0..8).for_each(|server| config += &format!(" server s{server} 127.0.0.1:9\n"));
    }
    let mut refused = 0;
    for megabytes in ["170", "180", "190", "200"] {
        let (mut program, mut said) = Manylane::start_heard(&config, &["-V", "-m", megabytes]);
        while !said.next().expect("it starts").unwrap().contains("lanes are ready") {}
        for _ in 0..2 {
            program.signal(Signal::SIGHUP);
            let mut heard = String::new();
            while !heard.contains("generation ") {
                heard = format!("{heard}\n{}", said.next().expect("it lives").unwrap());
            }
            if heard.contains("Not reloaded") {
                assert!(heard.contains("beside the one that serves it needs about "), "{heard}");
                refused += 1;
            }
        }
        let mut client = connect(address);
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        assert!(read_all(&mut client).starts_with("HTTP/1.1 200 "));
        program.signal(Signal::SIGUSR1);
        assert!(program.wait().success());
    }
    assert!(refused > 0, "all of them fit");
}

/// Clients that wait at the run-time interface, each since another configuration: none of these is kept. All
/// of them would not fit.
#[test]
fn who_waits_keeps_no_replaced_configuration() {
    let mut proxies = "frontend f\n bind WEB\n default_backend b0\n".to_owned();
    for backend in 0..800 {
        proxies += &format!("backend b{backend}\n");
        (0..8).for_each(|server| proxies += &format!(" server s{server} 127.0.0.1:9\n"));
    }
    let mut manylane = command();
    manylane.args(["-m", "400"]);
    let program = Changing::start_as(Folder::new(), manylane, "", &proxies);
    let mut waiting = Vec::new();
    for weight in 2..11 {
        let mut client = UnixStream::connect(&program.socket).unwrap();
        client.write_all(format!("set weight b0/s0 {weight}; wait 1h\n").as_bytes()).unwrap();
        until(|| program.ask("get weight b0/s0").starts_with(&format!("{weight} ")));
        waiting.push(client);
        program.change(&proxies);
    }
}

/// A file that grows by thousands of sections, each a short line, is either built or refused, whatever `-m`
/// allows: the process continues.
#[test]
fn a_reload_with_thousands_of_empty_sections_is_built_or_refused() {
    const SECTIONS: usize = 4_000;
    let (socket, _) = listener();
    let small =
        format!("{DEFAULTS} mode http\nfrontend f\n bind {}\n http-request return status 200\n", fd(&socket))
            .replace("nbthread 2", "nbthread 1");
    let mut outcomes = Vec::new();
    for megabytes in ["100", "140", "180", "220", "260", "300", "340", "700"] {
        let folder = Folder::new();
        let grows = folder.file("grows.cfg", "");
        let arguments = ["-V", "-m", megabytes, "-f", grows.to_str().unwrap()];
        let (program, mut said) = Manylane::start_heard(&small, &arguments);
        while !said.next().expect("it starts").unwrap().contains("lanes are ready") {}
        let sections: String = (0..SECTIONS).map(|number| format!("backend b{number}\n")).collect();
        folder.file("grows.cfg", &sections);
        program.signal(Signal::SIGHUP);
        let mut heard = String::new();
        while !heard.contains("generation ") {
            let line = said.next().unwrap_or_else(|| panic!("-m {megabytes} ends it: {heard}"));
            heard = format!("{heard}\n{}", line.unwrap());
        }
        outcomes.push(heard.contains("Not reloaded"));
    }
    let ends = (outcomes.first(), outcomes.last());
    assert_eq!(ends, (Some(&true), Some(&false)), "refused with little memory, built with much");
}

/// A table with the same name, type and data keeps its entries; any other one starts empty. A connection that
/// is counted in an entry stays counted.
#[test]
fn entries_of_a_stick_table_survive() {
    let proxies = |table: &str, more: &str| {
        format!(
            "frontend f\n bind WEB\n stick-table type ip size 100 {table}\n tcp-request connection track-sc0 \
             src\n http-request return status 200 hdr x-count %[sc0_http_req_cnt] {more}\n"
        )
    };
    let mut program = Changing::start(&proxies("store conn_cur,http_req_cnt", ""));
    let mut client = connect(program.address);
    let requested = |client: &mut TcpStream| get(client, "").unwrap().to_lowercase();
    assert!(requested(&mut client).contains("x-count: 1"));
    program.change(&proxies("store conn_cur,http_req_cnt", "hdr x-new yes"));
    let mut second = connect(program.address);
    let answer = requested(&mut second);
    assert!(answer.contains("x-count: 2") && answer.contains("x-new: yes"), "{answer}");
    assert!(program.ask("show table f").contains("conn_cur=2 "), "{}", program.ask("show table f"));
    drop((client, second));
    until(|| program.ask("show table f").contains("conn_cur=0 "));
    program.change(&proxies("store conn_cur,http_req_cnt,gpc0", ""));
    let answer = requested(&mut connect(program.address));
    assert!(answer.contains("x-count: 1"), "{answer}");
    assert!(program.child.0.try_wait().unwrap().is_none());
}

/// Entries stored before a reload find their servers, even if these have other positions and numbers; removed
/// servers are not found.
#[test]
fn a_key_finds_its_server_after_a_reload() {
    let answers = |name: &'static str| {
        origin(move |mut stream| {
            let mut byte = [0];
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nx-is: {name}\r\nContent-Length: 0\r\n\r\n");
        })
    };
    let servers: Vec<String> =
        ["a", "b", "c"].iter().map(|name| format!(" server {name} {}\n", answers(name))).collect();
    let proxies = |order: &[usize]| {
        let lines: String = order.iter().map(|n| &*servers[*n]).collect();
        format!(
            "frontend f\n bind WEB\n default_backend b\nbackend b\n option http-server-close\n stick-table \
             type string size 10 expire 1h\n stick on req.hdr(x-id)\n{lines}"
        )
    };
    let mut program = Changing::start(&proxies(&[0, 1, 2]));
    let requested = |address, id: &str| {
        let answer = get(&mut connect(address), &format!("x-id: {id}\r\n")).unwrap().to_lowercase();
        answer.split("x-is: ").nth(1).map(|rest| rest[..1].to_owned())
    };
    for id in 1..=3 {
        program.ask(&format!("set table b key {id} data.server_id {id}"));
    }
    let first = ["1", "2", "3"].map(|id| requested(program.address, id));
    assert_eq!(first.each_ref().map(|name| name.as_deref()), [Some("a"), Some("b"), Some("c")]);
    program.change(&proxies(&[2, 1, 0]));
    for (id, name) in ["1", "2", "3"].iter().zip(&first) {
        assert_eq!(&requested(program.address, id), name, "{}", program.ask("show table b"));
    }
    program.change(&proxies(&[0, 2]));
    let other = requested(program.address, "2");
    assert!(other.is_some() && other != first[1]);
    assert_eq!(requested(program.address, "2"), other);
    assert_eq!(requested(program.address, "1"), first[0]);
    assert!(program.child.0.try_wait().unwrap().is_none());
}

/// Nobody answers the check, so it lasts over the reload.
#[test]
fn a_check_over_tls_goes_on_over_a_reload_unless_its_ca_has_changed() {
    let (reached, at) = std::sync::mpsc::channel();
    let silent = origin(move |stream| _ = reached.send(stream));
    let authority = Authority::new();
    let folder = Folder::new();
    let ca = folder.file("ca.pem", &authority.own.pem());
    let proxies = |weight: u32| {
        format!(
            "listen l\n bind WEB\n timeout check 1h\n server s {silent} ssl ca-file {} check inter 1h fall 1 \
             weight {weight}\n",
            ca.display()
        )
    };
    let program = Changing::start(&proxies(1));
    let first: TcpStream = at.recv_timeout(TIMEOUT).unwrap();
    program.change(&proxies(2));
    drop(first);
    until(|| program.column("l", "s", "status") == "DOWN"); // by the first check: another one would last
    assert!(at.try_recv().is_err(), "the check has begun anew");
    std::fs::write(&ca, Authority::new().own.pem()).unwrap();
    program.change(&proxies(2));
    at.recv_timeout(TIMEOUT).unwrap();
}

/// Idle connections to servers with TLS go on over a reload as long as their settings, names and files are
/// the same. The origin counts handshakes, and responds with the number of the connection's port.
#[test]
fn connections_over_tls_go_on_over_a_reload_unless_what_they_were_made_with_has_changed() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example", "b.example"]);
    let own = authority.bundle("own.pem", &["proxy"]);
    let folder = Folder::new();
    let counts = folder.0.join("origin");
    let (inner, server) = listener();
    let _origin = Manylane::start_ready(&format!(
        "{} mode http\nfrontend f\n bind {} ssl crt {} alpn h2,http/1.1\n http-request return status 200 \
         content-type text/plain lf-string %cp,%HV\n",
        DEFAULTS.replace("defaults\n", &format!(" stats socket {}\ndefaults\n", counts.display())),
        fd(&inner),
        certificate.display()
    ));
    let handshakes = || {
        let info = common::watch::ask(&counts, "show info");
        let line = info.lines().find_map(|line| line.strip_prefix("CumSslConns: ")).unwrap();
        line.parse::<u32>().unwrap()
    };
    let ca = folder.file("ca.pem", "");
    for (alpn, other) in [("http/1.1", "h2"), ("h2", "http/1.1")] {
        std::fs::write(&ca, authority.own.pem()).unwrap();
        let line = |options: &str, alpn: &str, weight: usize| {
            format!(
                "listen l\n bind WEB\n http-reuse always\n server s {server} ssl {} alpn {alpn} \
                 pool-purge-delay 10m weight {weight}\n",
                options.replace("CA", &format!("ca-file {}", ca.display()))
            )
        };
        let with_own = format!("verify none crt {}", own.display());
        // One lane, since connections over TLS stay on theirs.
        let first = line("CA sni str(a.example)", alpn, 1);
        let program = Changing::start_as(Folder::new(), command(), " nbthread 1\n", &first);
        let ask = |alpn: &str| {
            let mut client = connect(program.address);
            client.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n").unwrap();
            let answer = read_all(&mut client);
            let (port, version) = answer.rsplit_once("\r\n").unwrap().1.split_once(',').unwrap();
            assert_eq!(version, if alpn == "h2" { "HTTP/2.0" } else { "HTTP/1.1" }, "{answer}");
            port.to_owned()
        };
        let before = handshakes();
        let mut used = ask(alpn);
        let (mut alpn, mut expected) = (alpn, before + 1);
        assert_eq!(handshakes(), expected);
        let steps = [
            ("CA sni str(a.example)", false),
            ("CA sni str(b.example)", true),
            ("CA sni req.hdr(host)", true),
            ("CA sni req.hdr(host),lower", false), // the same name
            ("verify none sni req.hdr(host)", true),
            ("verify none", true),
            (&with_own, true),
            ("other alpn", true),
            ("CA", true),
            ("CA", false),
            ("other CA", true),
            ("committed CA", true),
            ("the same CA committed", true),
        ];
        let mut options = "";
        for (weight, (step, is_new)) in (2..).zip(steps) {
            match step {
                "other alpn" => alpn = other,
                "other CA" => {
                    let both = authority.own.pem() + &Authority::new().own.pem();
                    std::fs::write(&ca, both).unwrap();
                }
                // The file has what was committed: the digests are equal.
                "committed CA" | "the same CA committed" => {
                    let pem = match step {
                        "committed CA" => authority.own.pem() + &Authority::new().own.pem(),
                        _ => std::fs::read_to_string(&ca).unwrap(),
                    };
                    let said = program.ask(&format!("set ssl ca-file {} <<\n{}\n", ca.display(), pem.trim()));
                    assert!(said.contains("transaction created"), "{said}");
                    let said = program.ask(&format!("commit ssl ca-file {}", ca.display()));
                    assert!(said.contains("Success!"), "{said}");
                    std::fs::write(&ca, pem).unwrap();
                }
                step => options = step,
            }
            program.change(&line(options, alpn, weight));
            let now = [ask(alpn), ask(alpn)];
            assert_eq!((now[0] != used, &now[0]), (is_new, &now[1]), "{step}");
            expected += u32::from(is_new);
            assert_eq!(handshakes(), expected, "{step}");
            [used, _] = now;
        }
    }
}
