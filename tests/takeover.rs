//! A process takes over listening sockets of another one: `-x` and `expose-fd listeners`.

use crate::common;

use common::watch::Haproxy;
use common::{Ended, Folder, Manylane, Traffic, own_address, status_of};
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

/// Responds to each request with 200 at `binds`, and passes its sockets on. With `noreuseport` they must be
/// passed, since two processes cannot bind them.
fn answering(folder: &Folder, binds: &[String]) -> String {
    let socket = folder.0.join("control");
    let binds: String = binds.iter().map(|bind| format!(" bind {bind}\n")).collect();
    format!(
        "global\n noreuseport\n nbthread 2\n stats socket {} level admin expose-fd listeners\n\
         defaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n\
         frontend f\n{binds} http-request return status 200\n",
        socket.display()
    )
}

/// Starts a program and waits until it serves.
fn ready(config: &str, arguments: &[&str]) -> Manylane {
    let (program, mut said) = Manylane::start_heard(config, &[&["-V"], arguments].concat());
    while !said.next().expect("it starts").unwrap().contains("lanes are ready") {}
    std::thread::spawn(move || said.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
    program
}

/// The listening socket of an address, as in `/proc/<pid>/fd`.
fn socket_at(address: SocketAddr) -> String {
    let SocketAddr::V4(v4) = address else { panic!("{address} is of the other table") };
    let at = format!("{:08X}:{:04X}", u32::from_le_bytes(v4.ip().octets()), v4.port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    format!("socket:[{}]", rows.find(|row| row[1] == at && row[3] == "0A").expect("it listens")[9])
}

/// The same for an abstract name, which ends with zeros.
fn socket_of(name: &str) -> String {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let mut rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let at = format!("@{name}");
    format!(
        "socket:[{}]",
        rows.find(|row| row.last().is_some_and(|name| name.trim_end_matches('@') == at)).expect("it listens")
            [6]
    )
}

/// Sockets of a process, including those of concurrent tests, which each child inherits.
fn sockets(pid: u32) -> BTreeSet<String> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with("socket:")).collect()
}

#[test]
fn nobody_who_connects_is_lost_while_one_process_takes_over_from_the_next() {
    let folder = Folder::new();
    let address = own_address();
    let config = answering(&folder, &[address.to_string()]);
    let control = folder.0.join("control");
    let mut serving = ready(&config, &[]);
    let traffic = Traffic::start(address, |status| status == 200);
    for _ in 0..common::reloads(4) {
        traffic.goes_on();
        let pid = serving.pid().to_string();
        let next = ready(&config, &["-x", control.to_str().unwrap(), "-sf", &pid]);
        assert_eq!(std::mem::replace(&mut serving, next).wait().code(), Some(0));
    }
    traffic.ends_well();
    // Connections in the queue of the socket survive the end of the old process.
    assert_eq!(status_of(address), Ok(200));
}

#[test]
fn sockets_are_taken_by_address_and_interface_and_the_others_are_made() {
    let folder = Folder::new();
    let (kept, moved, left, made) = (own_address(), own_address(), own_address(), own_address());
    let name = format!("abns@manylane-takeover-{}", std::process::id());
    let binds = [kept.to_string(), moved.to_string(), left.to_string(), name.clone()];
    let mut first = ready(&answering(&folder, &binds), &[]);
    let taken = [socket_at(kept), socket_at(moved), socket_of(name.trim_start_matches("abns@"))];
    let not_taken = socket_at(left);
    let binds = [kept.to_string(), made.to_string(), format!("{moved} maxconn 7 defer-accept"), name];
    let (control, pid) = (folder.0.join("control"), first.pid().to_string());
    let second = ready(&answering(&folder, &binds), &["-x", control.to_str().unwrap(), "-sf", &pid]);
    assert_eq!(first.wait().code(), Some(0));
    let has = sockets(second.pid());
    assert!(has.is_superset(&taken.into()) && !has.contains(&not_taken), "{has:?}");
    for address in [kept, moved, made] {
        assert_eq!(status_of(address), Ok(200));
    }
    // Sockets that were not taken closed with the old process.
    assert!(TcpStream::connect(left).is_err());
}

#[test]
fn who_hands_nothing_over_is_named_and_goes_on() {
    let folder = Folder::new();
    let address = own_address();
    let config = answering(&folder, &[address.to_string()]);
    let closed = folder.0.join("closed");
    let config = config.replace("defaults\n", &format!(" stats socket {}\ndefaults\n", closed.display()));
    let mut serving = ready(&config, &[]);
    let pid = serving.pid().to_string();
    let nobody = folder.0.join("nobody");
    let file = folder.file("again.cfg", &config);
    for (at, why) in [
        (&*closed, "its 'stats socket' lacks 'expose-fd listeners'; add it."),
        (&*nobody, "No such file or directory"),
        (
            Path::new("ipv4@127.0.0.1:1"),
            "expected the path of a unix socket, since only such a socket can pass listeners.",
        ),
    ] {
        let mut second = common::command();
        second.arg("-f").arg(&file).arg("-x").arg(at).args(["-sf", &pid]);
        let output = second.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let begin = format!("Failed to get the sockets from the old process at '{}': ", at.display());
        assert!(said.contains(&begin) && said.contains(why), "{said}");
    }
    assert!(serving.runs());
    assert_eq!(status_of(address), Ok(200));
}

/// A script may give `-x` always, and has nothing to take over at the first start.
#[test]
fn dev_null_hands_nothing_over() {
    let folder = Folder::new();
    let address = own_address();
    let _program = ready(&answering(&folder, &[address.to_string()]), &["-x", "/dev/null"]);
    assert_eq!(status_of(address), Ok(200));
}

#[test]
fn haproxy_takes_over_from_this_program_and_it_from_haproxy() {
    let Some(haproxy) = Haproxy::program() else { return };
    let folder = Folder::new();
    let address = own_address();
    let bound = own_address();
    let config = answering(&folder, &[address.to_string(), format!("{bound} interface lo")]);
    let (file, control) = (folder.file("test.cfg", &config), folder.0.join("control"));
    let control = control.to_str().unwrap();
    let mut first = ready(&config, &[]);
    let ours = [socket_at(address), socket_at(bound)];
    let pid = first.pid().to_string();
    let mut theirs = std::process::Command::new(haproxy);
    theirs.args(["-db", "-f"]).arg(&file).args(["-x", control, "-sf", &pid]).stderr(Stdio::null());
    let mut theirs = Ended(theirs.spawn().unwrap());
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(status_of(address), Ok(200));
    let pid = theirs.0.id().to_string();
    let last = ready(&config, &["-x", control, "-sf", &pid]);
    assert_eq!(theirs.0.wait().unwrap().code(), Some(0));
    assert!(sockets(last.pid()).is_superset(&ours.into()), "they are not those of the first");
    assert_eq!(status_of(address), Ok(200));
}
