//! Tests that need a privilege, or that must run without one. If this machine allows neither, a test prints
//! that and shows nothing.
//!
//! Each test runs in a process of its own with a network of its own (`unshare`), so the machine is not
//! changed.
#![cfg(not(any(loom, manylane_sim)))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{Folder, assert_option, endpoint, ip, not_shown, on_lane};
use manylane_io::options::{SocketOption, device};
use manylane_io::socket;
use manylane_net::{
    CommonOptions, ConnPurpose, ConnectOptions, Connector, Endpoint, ListenOptions, Source, UseSource,
    bind_datagrams, listen,
};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;

/// Variable that marks the inner process.
const INNER: &str = "MANYLANE_TEST_INNER";

/// Seconds for another program: more than the minute of a test inside of it, whose message says more.
const LIMIT: &str = "120";

/// Exit code of `timeout` if it ended the program.
const TIMED_OUT: i32 = 124;

/// Returns the command `words` with a time limit.
fn bounded(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(LIMIT).args(words);
    command
}

/// Returns whether this is the inner process of the test `name`. If not, runs one behind `prefix`, and passes
/// its result on.
fn inside(name: &str, what: &str, prefix: &[&str]) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    // The test program itself: some prefixes may hide its folder.
    let possible = bounded(prefix).arg(&program).arg("--list").output();
    match possible {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            not_shown(what, String::from_utf8_lossy(&output.stderr));
            return false;
        }
        Err(error) => {
            not_shown(what, format_args!("timeout: {error}"));
            return false;
        }
    }
    let output = bounded(prefix)
        .arg(program)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INNER, "1")
        .output()
        .unwrap();
    assert_ne!(
        output.status.code(),
        Some(TIMED_OUT),
        "{name} did not end within {LIMIT} s in its own process"
    );
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{err}");
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
    false
}

/// A network of its own, in which the process has all rights.
const NETWORK: &[&str] = &["unshare", "--user", "--map-root-user", "--net", "--mount"];

fn run(command: &str) -> bool {
    let output = bounded(&["sh", "-c", command]).output().unwrap();
    assert_ne!(output.status.code(), Some(TIMED_OUT), "'{command}' did not end within {LIMIT} s");
    if !output.status.success() {
        eprintln!("{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

#[test]
fn interface_mark_and_transparent_are_set_where_they_are_permitted() {
    let name = "interface_mark_and_transparent_are_set_where_they_are_permitted";
    let what = "interface, mark, transparent, usesrc";
    if !inside(name, what, NETWORK) {
        return;
    }
    if !run("ip link set lo up") {
        return not_shown(what, "the loopback device does not come up");
    }
    let options = ListenOptions {
        interface: Some("lo".into()),
        transparent: true,
        common: CommonOptions { mark: Some(0xdead_beef), ..Default::default() },
        ..Default::default()
    };
    for (text, transparent) in
        [("192.0.2.1:1", SocketOption::TransparentV4), ("[2001:db8::1]:1", SocketOption::TransparentV6)]
    {
        let bound = listen(&endpoint(text), &options).unwrap();
        let socket = bound.socket().unwrap();
        assert_option(socket, transparent, 1);
        assert_option(socket, SocketOption::Mark, 0xdead_beef_u32.cast_signed());
        assert_eq!(device(socket).unwrap(), "lo");
    }
    let bound = bind_datagrams(&endpoint("127.0.0.1:1"), &options).unwrap();
    assert_option(bound.socket().unwrap(), SocketOption::Mark, 0xdead_beef_u32.cast_signed());

    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Endpoint::Ip(server.local_addr().unwrap());
    on_lane(move |io| async move {
        let connector = Connector::new(ConnectOptions {
            interface: Some("lo".into()),
            common: CommonOptions { mark: Some(7), ..Default::default() },
            ..Default::default()
        });
        let connection = connector.connect(&io, &to, None, None).await.unwrap();
        let stream = connection.stream().unwrap();
        assert_option(stream, SocketOption::Mark, 7);
        assert_eq!(device(stream.as_fd()).unwrap(), "lo");
        server.accept().unwrap();

        // The server sees the client.
        let client: SocketAddr = "127.0.0.66:4321".parse().unwrap();
        for (present, expected) in [
            (UseSource::Client, Some(4321)),
            (UseSource::ClientIp, None),
            (UseSource::Address(client), Some(4321)),
        ] {
            let source = Source { present: Some(present), ..Source::new("0.0.0.0".parse().unwrap()) };
            let connector = Connector::new(ConnectOptions {
                source: Some(source),
                // The port is free again at once.
                common: CommonOptions { no_linger: true, ..Default::default() },
                ..Default::default()
            });
            let connection = connector.connect(&io, &to, Some(client), None).await.unwrap();
            assert_option(connection.stream().unwrap(), SocketOption::TransparentV4, 1);
            let (_, observed) = server.accept().unwrap();
            assert_eq!(observed.ip(), client.ip());
            assert!(expected.is_none_or(|port| port == observed.port()), "{observed}");
        }
    });
}

#[test]
fn a_socket_in_another_namespace_is_there_and_the_thread_is_not() {
    let name = "a_socket_in_another_namespace_is_there_and_the_thread_is_not";
    let what = "namespace";
    if !inside(name, what, NETWORK) {
        return;
    }
    let here = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
    let made = run(
        "ip link set lo up && mount -t tmpfs none /var/run && mkdir -p /var/run/netns && ip netns add other \
         && ip netns exec other ip link set lo up",
    );
    if !made {
        return not_shown(what, "a namespace cannot be made here");
    }
    let options = ListenOptions { namespace: Some("other".into()), ..Default::default() };
    let bound = listen(&endpoint("127.0.0.1:1"), &options).unwrap();
    assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), here);
    let address = ip(bound.endpoint());
    assert_eq!(
        TcpStream::connect(address).unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused,
        "it is not here"
    );
    let to = bound.endpoint().clone();
    on_lane(move |io| async move {
        let acceptor = bound.acceptor(&io).unwrap();
        let connector =
            Connector::new(ConnectOptions { namespace: Some("other".into()), ..Default::default() });
        let connection = connector.connect(&io, &to, None, None).await.unwrap();
        let own = socket::local_address(connection.stream().unwrap().as_fd()).unwrap();
        acceptor.accept().await.unwrap();
        assert_eq!(SocketAddr::try_from(own).unwrap().ip(), address.ip());
        let of_client = ConnPurpose { namespace: Some("other"), ..ConnPurpose::default() };
        Connector::new(ConnectOptions::default()).connect_for(&io, &to, of_client, None).await.unwrap();
        acceptor.accept().await.unwrap();
    });
    let error =
        listen(&endpoint("127.0.0.1:1"), &ListenOptions { namespace: Some("none".into()), ..options });
    assert_eq!(
        error.unwrap_err().to_string(),
        "cannot listen on '127.0.0.1:0': 'namespace' was not entered: No such file or directory (os error \
            2); 'ip netns \
         list' shows the names"
    );
}

#[test]
fn what_is_not_permitted_is_one_sentence_with_the_address_and_the_systems_error() {
    let name = "what_is_not_permitted_is_one_sentence_with_the_address_and_the_systems_error";
    let what = "permission denied";
    // A network that another user namespace owns: nothing is permitted there.
    let prefix = [
        "unshare",
        "--net",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--",
    ];
    if !inside(name, what, &prefix) {
        return;
    }
    let refusal =
        |text: &str, options: &ListenOptions| listen(&endpoint(text), options).unwrap_err().to_string();
    assert_eq!(
        refusal("0.0.0.0:80", &ListenOptions::default()),
        "cannot listen on '0.0.0.0:80': the address was refused: Permission denied (os error 13); ports \
            below 1024 need the \
         capability CAP_NET_BIND_SERVICE"
    );
    let marked =
        ListenOptions { common: CommonOptions { mark: Some(1), ..Default::default() }, ..Default::default() };
    assert_eq!(
        refusal("0.0.0.0:8080", &marked),
        "cannot listen on '0.0.0.0:8080': 'mark' (SO_MARK) was refused: Operation not permitted (os error \
            1); this needs a \
         capability such as CAP_NET_ADMIN"
    );
    let transparent = ListenOptions { transparent: true, ..Default::default() };
    assert_eq!(
        refusal("0.0.0.0:8080", &transparent),
        "cannot listen on '0.0.0.0:8080': 'transparent' (IP_TRANSPARENT) was refused: Operation not \
            permitted (os error 1); \
         this needs a capability such as CAP_NET_ADMIN"
    );
    assert_eq!(
        refusal("/proc/1/s", &ListenOptions::default()).split(':').nth(1),
        Some(" the address was refused"),
        "a folder that nobody writes to"
    );
}

/// As root, in a process that has given up its rights; as another user, unchanged.
#[test]
fn a_folder_that_may_not_be_written_to_is_one_sentence_with_the_path_and_the_systems_error() {
    let name = "a_folder_that_may_not_be_written_to_is_one_sentence_with_the_path_and_the_systems_error";
    const NOBODY: &[&str] =
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
    let prefix = if rustix::process::geteuid().is_root() { NOBODY } else { &["env"] };
    if !inside(name, "permission denied in a folder", prefix) {
        return;
    }
    let folder = Folder::new();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
    let path = folder.join("s").display().to_string();
    assert_eq!(
        listen(&endpoint(&path), &ListenOptions::default()).unwrap_err().to_string(),
        format!("cannot listen on '{path}': the address was refused: Permission denied (os error 13)")
    );
}
