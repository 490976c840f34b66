//! A process with limited memory (`-m`, or a limit of the system): what clients can make grow ends with its
//! stream, or is refused, and never ends the process.

use crate::common;
use crate::drips::{ROUNDS_IN_HASTE, all_is_read};
use crate::tls::Authority;
use crate::tls_generated::{serial, signing};

use common::{DEFAULTS, Folder, Manylane, TIMEOUT, connect, fd, listener};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

const DRIVERS: [&str; 2] = ["epoll", "io_uring"];

/// Starts a program with one lane and 100 MB.
fn start(sections: &str) -> Manylane {
    start_as(sections, common::command().args(["-m", "100"]))
}

/// Starts a program with one lane as this command.
fn start_as(sections: &str, command: &mut Command) -> Manylane {
    let defaults = common::measured().replace("nbthread 2", "nbthread 1").replace("30s", "300s");
    let (program, mut said) = Manylane::start_heard_as(&format!("{defaults}{sections}"), command.arg("-V"));
    while !said.next().unwrap().unwrap().contains("lanes are ready") {}
    std::thread::spawn(move || said.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    program
}

/// Waits until a client is served.
pub(crate) fn is_served(program: &mut Manylane, address: SocketAddr) {
    let began = Instant::now();
    loop {
        assert!(program.runs(), "the process has ended");
        let mut answer = String::new();
        let mut ask = || {
            let mut client = TcpStream::connect(address)?;
            client.set_read_timeout(Some(TIMEOUT))?;
            client.write_all(b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
            client.read_to_string(&mut answer)
        };
        let result = ask(); // it may be too early
        if answer.starts_with("HTTP/1.1 200 ") {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "nobody is served: {result:?} {answer}");
        manylane_tests::look_again();
    }
}

/// Returns how many clients the program has disconnected.
fn ended(clients: &mut [TcpStream]) -> usize {
    let mut rest = [0; 4096];
    let mut is_ended = |client: &mut TcpStream| {
        client.set_nonblocking(true).unwrap();
        loop {
            match client.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    };
    clients.iter_mut().map(|client| usize::from(is_ended(client))).sum()
}

/// A message of TLS 1.3 that begins a handshake.
fn hello() -> Vec<u8> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes(), bytes].concat();
    let extension = |kind: u16, data: &[u8]| [&kind.to_be_bytes()[..], &with_length(data)].concat();
    let mut key = [0; 32];
    key[0] = 9;
    let share = [&[0, 0x1d][..], &with_length(&key)].concat();
    let extensions = [
        extension(10, &with_length(&[0, 0x1d])),
        extension(13, &with_length(&[4, 3, 8, 4])),
        extension(43, &[2, 3, 4]),
        extension(51, &with_length(&share)),
    ]
    .concat();
    let suites = with_length(&[0x13, 1, 0x13, 2]);
    let body = [&[3, 3][..], &[7; 32], &[0], &suites, &[1, 0], &with_length(&extensions)].concat();
    let message = [&[1, 0][..], &with_length(&body)].concat();
    [&[0x16, 3, 1][..], &with_length(&message)].concat()
}

/// Returns whether the program begins to answer a handshake.
fn is_greeted(client: &mut TcpStream) -> bool {
    let mut begin = [0];
    client.write_all(&hello()).is_ok() && client.read_exact(&mut begin).is_ok() && begin == [0x16]
}

/// Many clients that have connected begin their handshakes at once. The library of TLS allocates for each,
/// and cannot fail.
#[test]
fn handshakes_end_when_memory_is_short() {
    const CLIENTS: usize = 6000;
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let (socket, address) = listener();
    let mut program = start(&format!(
        " mode http\nlisten l\n bind {} ssl crt {}\n http-request return status 200\n",
        fd(&socket),
        certificate.display()
    ));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(address)).collect();
    let hello = hello();
    clients.iter_mut().for_each(|client| drop(client.write_all(&hello))); // it may be closed
    // The last one was served or ended.
    let mut begin = [0];
    let _ = clients[CLIENTS - 1].read(&mut begin);
    assert!(program.runs(), "the process has ended");
    clients.iter().for_each(|client| client.set_nonblocking(true).unwrap());
    let ended = clients.iter_mut().filter(|client| !matches!(client.peek(&mut [0]), Ok(1))).count();
    println!("{ended} of {CLIENTS} were ended");
    assert!(ended > 0, "all of them had their memory: the bound was not met");
    drop(clients);
    let began = Instant::now();
    while !is_greeted(&mut connect(address)) {
        assert!(began.elapsed() < TIMEOUT, "nobody is served");
        assert!(program.runs(), "the process has ended");
    }
}

/// A rule that adds what clients send to a map: it adds nothing more when memory is short.
#[test]
fn maps_do_not_grow_when_memory_is_short() {
    const REQUESTS: usize = 12_000;
    let (folder, (socket, address)) = (Folder::new(), listener());
    let map = folder.file("map", "a b\n");
    let mut program = start(&format!(
        " mode http\nlisten l\n bind {}\n http-request set-map({map}) %[path] x\n http-request return status \
         200 hdr X %[str(a),map({map})]\n",
        fd(&socket),
        map = map.display()
    ));
    let mut client = BufReader::new(connect(address));
    let long = "x".repeat(14_000);
    for number in 0..REQUESTS {
        let request = format!("GET /{number}{long} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.get_mut().write_all(request.as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = client.read_line(&mut head).unwrap_or(0);
            if length == 0 {
                assert!(program.runs(), "the process has ended");
                client = BufReader::new(connect(address)); // a stream without memory was closed
                break;
            }
        }
        assert!(head.is_empty() || head.starts_with("HTTP/1.1 "), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().unwrap()); // only an error has a body
        let _ = client.read_exact(&mut vec![0; length]);
    }
    assert!(program.runs(), "the process has ended");
}

/// A map takes the memory; what is made for names then is not kept.
#[test]
fn no_certificates_are_kept_when_memory_is_short() {
    let authority = Authority::new();
    let (own, sign) =
        (authority.bundle("a.pem", &["a.test"]), signing(&authority, &authority.own.key().serialize_pem()));
    let map = authority.folder.file("map", "a b\n").display().to_string();
    let [(tls, address), (plain, filled)] = [listener(), listener()];
    let mut program = start(&format!(
        " mode http\nlisten l\n bind {}\n bind {} ssl crt {} generate-certificates ca-sign-file {}\n \
         http-request set-map({map}) %[path] x\n http-request return status 200 hdr X %[path,map({map})]\n",
        fd(&plain),
        fd(&tls),
        own.display(),
        sign.display()
    ));
    let early = serial(address, "early.test");
    assert!(early.starts_with("serial="), "{early}");
    assert_eq!(serial(address, "early.test"), early);
    let mut client = BufReader::new(connect(filled));
    let mut is_added = |path: &str| {
        client.get_mut().write_all(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(client.read_line(&mut head).unwrap() > 0, "{head}");
        }
        head.to_ascii_lowercase().contains("x: x\r\n")
    };
    // What a request or a handshake has used for a while is free behind it, so one round may not be enough.
    let is_forgotten = (0..10).any(|round| {
        for long in ["x".repeat(14_000), "y".repeat(100)] {
            let refused = (0..200_000).find(|number| !is_added(&format!("{round}.{number}{long}")));
            assert!(refused.is_some(), "there is memory for all");
        }
        let name = format!("late{round}.test");
        serial(address, &name) != serial(address, &name)
    });
    assert!(is_forgotten, "certificates are kept though nothing else is");
    assert_eq!(serial(address, "early.test"), early);
    assert!(program.runs(), "the process has ended");
}

/// Many clients of HTTP/2 that have connected fill the tables of HPACK. Each is a little, and no pool has it.
#[test]
fn tables_of_http_2_end_their_connections() {
    const CLIENTS: usize = 6000;
    // `GET http://a/`, and a field that the table keeps and that nearly fills it.
    let mut block = vec![0x82, 0x86, 0x84, 0x41, 1, b'a', 0x40, 1, b'x', 0x7f, 0xa1, 0x1d];
    block.resize(block.len() + 3_872, b'v');
    let request = [&[0, (block.len() >> 8) as u8, block.len() as u8, 1, 5, 0, 0, 0, 1][..], &block].concat();
    for driver in DRIVERS {
        let (socket, address) = listener();
        let mut program = start_as(
            &format!(" mode http\nlisten l\n bind {}\n http-request return status 200\n", fd(&socket)),
            common::command().args(["-m", "100"]).env("MANYLANE_DRIVER", driver),
        );
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(address)).collect();
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0";
        clients.iter_mut().for_each(|client| drop(client.write_all(begin))); // it may be closed
        clients.iter_mut().for_each(|client| drop(client.write_all(&request)));
        // The last one was served or ended: it has settings, their acknowledgement, and a response.
        while !matches!(clients[CLIENTS - 1].read(&mut [0; 4096]), Ok(0) | Err(_))
            && !matches!(clients[CLIENTS - 1].peek(&mut [0]), Ok(0) | Err(_))
        {}
        assert!(program.runs(), "the process has ended");
        let ended = ended(&mut clients);
        println!("{driver}: {ended} of {CLIENTS} were ended");
        assert!(ended > 0, "all of them had their memory: the bound was not met");
        drop(clients);
        is_served(&mut program, address);
    }
}

/// A stick table for more entries than there is memory refuses new ones in time: its client, and others, are
/// served as before.
#[test]
fn a_stick_table_leaves_memory_for_clients() {
    const ENTRIES: usize = 25_000;
    const AT_ONCE: usize = 100;
    for driver in DRIVERS {
        let (socket, address) = listener();
        let mut program = start_as(
            &format!(
                " mode http\nlisten l\n bind {}\n stick-table type string len 1000 size 1m expire 10m store \
                 gpc(100)\n http-request track-sc0 path\n http-request return status 200 hdr x-count \
                 %[table_cnt(l)]\n",
                fd(&socket)
            ),
            common::command().args(["-m", "80"]).env("MANYLANE_DRIVER", driver),
        );
        let mut client = BufReader::new(connect(address));
        let mut entries = 0;
        for batch in 0..ENTRIES / AT_ONCE {
            let request = |number| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", batch * AT_ONCE + number);
            let requests: String = (0..AT_ONCE).map(request).collect();
            client.get_mut().write_all(requests.as_bytes()).unwrap();
            for _ in 0..AT_ONCE {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    assert!(client.read_line(&mut head).unwrap() > 0, "it was disconnected: {head}");
                }
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                let count = head.lines().find_map(|line| line.strip_prefix("x-count: ")).unwrap();
                entries = count.parse().unwrap();
            }
        }
        println!("{driver}: {entries} entries of {ENTRIES}");
        assert!(entries > 1_000 && entries < ENTRIES, "the bound was not met: {entries}");
        is_served(&mut program, address);
    }
}

/// Heads that come byte by byte: clients that had taken a cluster for each byte would end the process.
#[test]
fn heads_that_drip_fit_into_little_memory() {
    const CLIENTS: usize = 20;
    const BYTES: usize = 15_200;
    for driver in DRIVERS {
        let (socket, address) = listener();
        let mut program = start_as(
            &format!(" mode http\nlisten l\n bind {}\n http-request return status 200\n", fd(&socket)),
            common::command().args(["-m", "200"]).env("MANYLANE_DRIVER", driver),
        );
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(address)).collect();
        let begin = "GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ";
        for client in &mut clients {
            client.set_nodelay(true).unwrap();
            client.write_all(begin.as_bytes()).unwrap();
        }
        for round in begin.len()..BYTES {
            clients.iter_mut().for_each(|client| client.write_all(b"x").unwrap());
            if round.is_multiple_of(ROUNDS_IN_HASTE) {
                all_is_read(address.port(), false);
            }
        }
        for client in &mut clients {
            client.write_all(b"\r\n\r\n").unwrap();
            let answer = common::read_all(client);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        assert!(program.runs(), "the process has ended");
    }
}

/// Clients of a program hold more than fits into its memory. It ends some of them, and serves others.
fn ends_clients_that_hold_too_much(sections: &str, command: &mut Command) {
    /// Number of clients, and the bytes that each makes the process hold: more than fit.
    const TOO_MANY: (usize, usize) = (800, 120_000);
    let (socket, address) = listener();
    let mut program = start_as(
        &format!(
            " timeout http-request 300s\n mode http\nglobal\n tune.bufsize 131072\nlisten l\n bind {}\n\
             {sections} option http-buffer-request\n http-request return status 200 if {{ path /small }}\n \
             server s 127.0.0.1:9\n",
            fd(&socket)
        ),
        command,
    );
    let begin = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 130000\r\n\r\n";
    let mut clients: Vec<_> = (0..TOO_MANY.0)
        .map(|_| {
            let mut client = connect(address);
            // A client that was disconnected cannot send everything.
            let _ = client.write_all(begin.as_bytes()).and_then(|()| client.write_all(&[b'x'; TOO_MANY.1]));
            client
        })
        .collect();
    let began = Instant::now();
    while ended(&mut clients) == 0 {
        assert!(program.runs(), "the process has ended");
        assert!(began.elapsed() < TIMEOUT, "all of them had their memory: the bound was not met");
    }
    drop(clients);
    is_served(&mut program, address);
}

/// Returns a command that runs the program with this limit.
fn limited(limit: &str, driver: &str) -> Command {
    let own = common::command();
    let mut command = Command::new("prlimit");
    command.stdin(Stdio::null()).arg(limit).arg(own.get_program()).env("MANYLANE_DRIVER", driver);
    command
}

/// The system refuses memory without `-m`: a limit of the process ends streams in the same way.
#[test]
fn a_limit_of_the_system_ends_streams_and_not_the_process() {
    for driver in DRIVERS {
        ends_clients_that_hold_too_much("", &mut limited("--data=110000000", driver));
    }
}

/// A limit of addresses counts files that are mapped and stacks, too: what a process begins with is measured.
#[test]
fn a_limit_of_addresses_ends_streams_and_not_the_process() {
    for driver in DRIVERS {
        let (socket, address) = listener();
        let sections =
            format!(" mode http\nlisten l\n bind {}\n http-request return status 200\n", fd(&socket));
        let mut program = start_as(&sections, &mut limited("--as=16000000000", driver));
        is_served(&mut program, address);
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let begins_with = size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        let limit = format!("--as={}", begins_with + 50_000_000);
        ends_clients_that_hold_too_much("", &mut limited(&limit, driver));
    }
}

/// Proxies of a chain meet in sockets of the program, which take memory, too.
#[test]
fn sockets_within_the_program_end_streams_and_not_the_process() {
    for driver in DRIVERS {
        let mut command = common::command();
        ends_clients_that_hold_too_much(
            " mode tcp\n server s local@inner\nlisten inner\n bind local@inner\n",
            command.args(["-m", "100"]).env("MANYLANE_DRIVER", driver),
        );
    }
}

/// Runs the command behind it without `/proc`.
fn without_proc() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""]);
    command
}

/// Runs the command behind it, which may not call `execve`: it is executed by `execveat`.
fn without_execve() -> Command {
    const SANDBOX: &str = "\
import ctypes, os, struct, sys
number = {'x86_64': 59, 'aarch64': 221}[os.uname().machine]
filter = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in filter))
program = struct.pack('HxxxxxxP', len(filter), ctypes.addressof(code))
libc = ctypes.CDLL(None)
file = os.open(sys.argv[1], os.O_RDONLY)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execve(file, sys.argv[1:], os.environ)
";
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", SANDBOX]);
    command
}

/// With bounded memory, the program executes itself again with another allocator. Without `/proc`, or where
/// `execve` is forbidden, it cannot: it says so, and serves unless `-m` was asked for.
#[test]
fn a_program_that_cannot_execute_itself_again_says_so() {
    const SENTENCE: &str = "Cannot execute the program again for bounded memory: ";
    let own = common::command();
    for (within, why) in [
        (without_proc as fn() -> Command, "ENOENT: No such file or directory."),
        (without_execve, "EPERM: Operation not permitted."),
    ] {
        let shown = within().arg("/bin/true").output();
        if !shown.as_ref().is_ok_and(|shown| shown.status.success()) {
            println!("NOT SHOWN HERE: {why} {shown:?}");
            continue;
        }
        let (socket, address) = listener();
        let config = format!(
            "{DEFAULTS} mode http\nlisten l\n bind {}\n http-request return status 200\n",
            fd(&socket)
        );
        let mut bounded = within();
        bounded.arg(own.get_program()).args(["-m", "400"]);
        let (mut program, said) = Manylane::start_heard_as(&config, &mut bounded);
        let said: Vec<String> = said.map_while(Result::ok).collect();
        assert_eq!(program.wait().code(), Some(1), "{said:?}");
        assert!(said.iter().any(|line| line.ends_with(&format!("{SENTENCE}{why}"))), "{said:?}");

        let inner = within();
        let mut limited = Command::new("prlimit");
        limited.stdin(Stdio::null()).arg("--data=1000000000");
        limited.arg(inner.get_program()).args(inner.get_args()).arg(own.get_program()).arg("-V");
        let (mut program, mut said) = Manylane::start_heard_as(&config, &mut limited);
        let warning = said.find_map(|line| line.ok().filter(|line| line.contains(SENTENCE))).unwrap();
        let ending = format!("{SENTENCE}{why} Clients may end the process when memory is short.");
        assert!(warning.ends_with(&ending), "{warning}");
        std::thread::spawn(move || said.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        is_served(&mut program, address);
    }
}

/// Nothing but bounded memory needs `/proc` at the start.
#[test]
fn a_program_without_proc_serves() {
    let shown = without_proc().arg("/bin/true").output();
    if !shown.as_ref().is_ok_and(|shown| shown.status.success()) {
        return println!("NOT SHOWN HERE: {shown:?}");
    }
    let (socket, address) = listener();
    let mut command = without_proc();
    command.arg(common::command().get_program());
    let config = " mode http\nlisten l\n bind @fd\n http-request return status 200\n";
    let mut program = start_as(&config.replace("@fd", &fd(&socket)), &mut command);
    is_served(&mut program, address);
}
