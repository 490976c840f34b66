//! `show fd`: the process's descriptors, read from `/proc` on the blocking pool.

use super::Call;
use crate::reply::ReplyError;
use crate::serve::Control;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// TCP states, by the kernel's numbers.
const STATES: [&str; 12] = [
    "-",
    "EST",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
];

/// `show fd`, `show fd 7`
pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let wanted = match call.word(0) {
        "" => None,
        word => match word.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) => {
                call.error("'show fd' expects nothing or the number of a descriptor.");
                return Ok(());
            }
        },
    };
    let read = match Control::aside().run(move || lines(wanted)) {
        Ok(working) => working.await,
        Err(refused) => {
            call.error(&format!("Cannot show descriptors: {refused}."));
            return Ok(());
        }
    };
    match read {
        Ok(text) => {
            for line in text.split_inclusive('\n') {
                call.reply.put(line);
                call.reply.breathe().await?;
            }
        }
        Err(error) => call.error(&format!("Cannot read the descriptors: {error}.")),
    }
    Ok(())
}

/// The text for all descriptors, or the wanted one. It is one allocation, which a lane may free.
fn lines(wanted: Option<u32>) -> std::io::Result<String> {
    let mut all: Vec<(u32, String)> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(number) = number.filter(|number| wanted.is_none_or(|wanted| wanted == *number)) else {
            continue;
        };
        // It may have been closed meanwhile.
        if let Ok(to) = std::fs::read_link(entry.path()) {
            all.push((number, to.to_string_lossy().into_owned()));
        }
    }
    all.sort_unstable();
    let sockets = sockets(all.iter().filter_map(|(_, to)| inode_of(to)).collect());
    let mut text = String::new();
    for (number, to) in &all {
        let _ = match (inode_of(to), to.strip_prefix("anon_inode:")) {
            (Some(inode), _) => {
                let socket = sockets.get(&inode).map_or("socket", |socket| socket);
                writeln!(text, "{number:>7} : {socket}")
            }
            (_, Some(kind)) => writeln!(text, "{number:>7} : {}", kind.trim_matches(['[', ']'])),
            _ if to.starts_with("pipe:") => writeln!(text, "{number:>7} : pipe"),
            _ => writeln!(text, "{number:>7} : file {to}"),
        };
    }
    Ok(text)
}

/// The inode of a socket: `socket:[4711]`.
fn inode_of(to: &str) -> Option<u64> {
    to.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The text for each of these sockets, by inode. The kernel's tables have all sockets of the system, which
/// may be millions: they are read line by line, as far as needed.
fn sockets(own: HashSet<u64>) -> HashMap<u64, String> {
    let mut found = HashMap::with_capacity(own.len());
    let tables = [("tcp", "tcpv4"), ("tcp6", "tcpv6"), ("udp", "udpv4"), ("udp6", "udpv6"), ("unix", "unix")];
    for (file, family) in tables {
        if found.len() == own.len() {
            break;
        }
        if let Ok(table) = File::open(Path::new("/proc/self/net").join(file)) {
            read_table(BufReader::new(table), family, &own, &mut found);
        }
    }
    found
}

/// Reads the lines of a table that are about sockets of `own`.
fn read_table(mut table: impl BufRead, family: &str, own: &HashSet<u64>, found: &mut HashMap<u64, String>) {
    let mut line = Vec::new(); // a path may be no UTF-8
    while found.len() < own.len() {
        line.clear();
        if !matches!(table.read_until(b'\n', &mut line), Ok(1..)) {
            return;
        }
        let line = String::from_utf8_lossy(&line);
        let column = if family == "unix" { 6 } else { 9 };
        let inode = line.split_whitespace().nth(column).and_then(|word| word.parse().ok());
        let Some(inode) = inode.filter(|inode| own.contains(inode)) else { continue };
        let text = if family == "unix" { of_unix(&line) } else { of_ip(&line, family) };
        if let Some(text) = text {
            found.insert(inode, text);
        }
    }
}

/// The text for a line of a TCP or UDP table.
fn of_ip(line: &str, family: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, peer, state, ..] = words[..] else { return None };
    let (local, peer) = (address(local)?, address(peer)?);
    let mut text = format!("socket {family} local={local}");
    if peer.port() != 0 {
        let _ = write!(text, " peer={peer}");
    }
    if family.starts_with("tcp") {
        let state = usize::from_str_radix(state, 16).ok()?;
        let _ = write!(text, " st={}", STATES.get(state).unwrap_or(&"-"));
    }
    Some(text)
}

/// Parses `0100007F:1F90`: hexadecimal words in the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word =
        |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// The text for a line of the table of unix sockets.
fn of_unix(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, flags, _, state, ..] = words[..] else { return None };
    let mut text = "socket unix".to_owned();
    if let Some(path) = words.get(7) {
        let _ = write!(text, " local={path}");
    }
    let state = match (flags, state) {
        ("00010000", _) => "LISTEN",
        (_, "03") => "EST",
        _ => "-",
    };
    let _ = write!(text, " st={state}");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_systems_tables_are_read() {
        let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
        let line = format!(
            "   0: {loopback:08X}:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        \
                0 4711 1 x"
        );
        assert_eq!(of_ip(&line, "tcpv4").unwrap(), "socket tcpv4 local=127.0.0.1:8080 st=LISTEN");
        let one = u32::from_ne_bytes([0, 0, 0, 1]);
        let line = format!("0: {0:024}{one:08X}:0050 {0:024}{one:08X}:C000 01 a b c d e 12 1", 0);
        let text = of_ip(&line, "tcpv6").unwrap();
        assert_eq!(text, "socket tcpv6 local=[::1]:80 peer=[::1]:49152 st=EST");
        let text = of_unix("0000: 00000002 00000000 00010000 0001 01 99 /run/x").unwrap();
        assert_eq!(text, "socket unix local=/run/x st=LISTEN");
        assert!(of_ip("", "tcpv4").is_none() && of_unix("a b").is_none() && address("x:1").is_none());
    }

    #[test]
    fn only_own_sockets_are_kept_and_a_table_is_read_as_far_as_needed() {
        let line = |inode: u32| format!("0: 00000000:0050 00000000:0000 0A a b c d e {inode} 1\n");
        let rest = line(4);
        let table = format!("  sl  local_address\n{}{}{}{rest}", line(1), line(2), line(3));
        let (mut table, mut found) = (table.as_bytes(), HashMap::new());
        read_table(&mut table, "tcpv4", &HashSet::from([3, 1]), &mut found);
        let text = "socket tcpv4 local=0.0.0.0:80 st=LISTEN";
        assert_eq!(found, HashMap::from([1, 3].map(|inode| (inode, text.to_owned()))));
        assert_eq!(table, rest.as_bytes());
        let mut table: &[u8] = b"0: 2 0 00010000 1 01 7 /a\xff\n0: 2 0 00010000 1 01 8 /b\n";
        read_table(&mut table, "unix", &HashSet::from([8]), &mut found);
        assert_eq!(found.len(), 2, "enough were found");
        found.clear();
        read_table(&mut table, "unix", &HashSet::from([8]), &mut found);
        assert_eq!(found, HashMap::from([(8, "socket unix local=/b st=LISTEN".to_owned())]));
    }
}
