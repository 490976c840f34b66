//! `parse-resolv-conf`: the name servers of the system.

use std::net::{IpAddr, SocketAddr};

/// Largest number of name servers that are taken from the file.
pub const MOST_SYSTEM_SERVERS: usize = 16;
/// Port that name servers listen on.
const PORT: u16 = 53;

/// Returns the name servers in the text of a file like `/etc/resolv.conf`, each once. Invalid lines are
/// ignored, as by the system's own resolver.
pub fn system_servers(text: &str) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("nameserver") {
            continue;
        }
        let Some(word) = words.next() else { continue };
        let address = match word.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, PORT)),
            // With the device of a link-local address, if that is a number.
            Err(_) => format!("[{word}]:{PORT}").parse().ok(),
        };
        if let Some(address) = address.filter(|address| !all.contains(address))
            && all.len() < MOST_SYSTEM_SERVERS
        {
            all.push(address);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_what_stands_behind_their_word() {
        let text = "# nameserver 192.0.2.9\nsearch x.test\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # \
            second\n\
            nameserver 192.0.2.1\nnameserver x\nnameserver\nnameserver fe80::1%2\nnameservers 192.0.2.8\n";
        let found: Vec<String> = system_servers(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%2]:53"]);
        let many: String = (0..100).map(|n| format!("nameserver 192.0.2.{n}\n")).collect();
        assert_eq!(system_servers(&many).len(), MOST_SYSTEM_SERVERS);
    }
}
