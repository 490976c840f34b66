//! `show fd`: the process's descriptors, read from `/proc` on the blocking pool.

use super::Call;
use crate::reply::ReplyError;
use crate::serve::Control;
use std::collections::HashMap;
use std::fmt::Write;
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
        Ok(lines) => {
            for line in lines {
                call.reply.put(&line);
                call.reply.breathe().await?;
            }
        }
        Err(error) => call.error(&format!("Cannot read the descriptors: {error}.")),
    }
    Ok(())
}

fn lines(wanted: Option<u32>) -> std::io::Result<Vec<String>> {
    let mut all: Vec<(u32, String)> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A descriptor may have been closed meanwhile.
        if let (Some(number), Ok(to)) = (number, std::fs::read_link(entry.path())) {
            all.push((number, to.to_string_lossy().into_owned()));
        }
    }
    all.retain(|(number, _)| wanted.is_none_or(|wanted| wanted == *number));
    all.sort_unstable();
    let sockets = sockets();
    let line = |(number, to): (u32, String)| {
        let inode = to.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        let what = match inode {
            Some(inode) => sockets.get(inode).cloned().unwrap_or_else(|| "socket".to_owned()),
            None => match to.strip_prefix("anon_inode:") {
                Some(kind) => kind.trim_matches(['[', ']']).to_owned(),
                None if to.starts_with("pipe:") => "pipe".to_owned(),
                None => format!("file {to}"),
            },
        };
        format!("{number:>7} : {what}\n")
    };
    Ok(all.into_iter().map(line).collect())
}

/// The text for each socket in the kernel's tables, by inode.
fn sockets() -> HashMap<String, String> {
    let mut all = HashMap::new();
    for (file, family) in [("tcp", "tcpv4"), ("tcp6", "tcpv6"), ("udp", "udpv4"), ("udp6", "udpv6")] {
        let table = std::fs::read_to_string(Path::new("/proc/self/net").join(file)).unwrap_or_default();
        all.extend(table.lines().skip(1).filter_map(|line| of_ip(line, family)));
    }
    let table = std::fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    all.extend(table.lines().skip(1).filter_map(of_unix));
    all
}

/// Parses a line of a TCP or UDP table into the inode and the text.
fn of_ip(line: &str, family: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, peer, state, _, _, _, _, _, inode, ..] = words[..] else { return None };
    let (local, peer) = (address(local)?, address(peer)?);
    let mut text = format!("socket {family} local={local}");
    if peer.port() != 0 {
        let _ = write!(text, " peer={peer}");
    }
    if family.starts_with("tcp") {
        let state = usize::from_str_radix(state, 16).ok()?;
        let _ = write!(text, " st={}", STATES.get(state).unwrap_or(&"-"));
    }
    Some((inode.to_owned(), text))
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

/// Parses a line of the table of unix sockets.
fn of_unix(line: &str) -> Option<(String, String)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, flags, _, state, inode, ..] = words[..] else { return None };
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
    Some((inode.to_owned(), text))
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
        let (inode, text) = of_ip(&line, "tcpv4").unwrap();
        assert_eq!((&*inode, &*text), ("4711", "socket tcpv4 local=127.0.0.1:8080 st=LISTEN"));
        let one = u32::from_ne_bytes([0, 0, 0, 1]);
        let line = format!("0: {0:024}{one:08X}:0050 {0:024}{one:08X}:C000 01 a b c d e 12 1", 0);
        let (_, text) = of_ip(&line, "tcpv6").unwrap();
        assert_eq!(text, "socket tcpv6 local=[::1]:80 peer=[::1]:49152 st=EST");
        let (_, text) = of_unix("0000: 00000002 00000000 00010000 0001 01 99 /run/x").unwrap();
        assert_eq!(text, "socket unix local=/run/x st=LISTEN");
        assert!(of_ip("", "tcpv4").is_none() && of_unix("a b").is_none() && address("x:1").is_none());
    }
}
