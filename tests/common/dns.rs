//! A name server with answers that the test chooses, faulty ones included. It serves UDP and TCP on one port.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What is wrong with its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    None,
    /// It never answers.
    Silent,
    /// It does not answer queries for unknown names.
    Unsaid,
    /// Meaningless bytes.
    Garbage,
    /// The ID of another query.
    OtherId,
    /// The question of another query.
    OtherQuestion,
    /// The flag TC over UDP.
    Truncated,
    /// The flag TC over UDP and TCP.
    AlwaysTruncated,
    /// A header that promises 10,000 records.
    Counts,
    /// Compressed names that point at themselves.
    Loop,
    /// A message of the maximum size.
    Full,
    /// The answer to another question, followed by the right one.
    First,
}

#[derive(Debug, Default)]
struct Zone {
    lie: Option<Lie>,
    /// Data of records by name and type.
    records: HashMap<(String, u16), Vec<Vec<u8>>>,
    /// Additional records.
    beside: Vec<(String, IpAddr)>,
    code: u8,
    /// Number of queries by name.
    queries: HashMap<String, usize>,
}

/// A name server that runs until the test ends.
#[derive(Debug)]
pub struct Dns {
    zone: Arc<Mutex<Zone>>,
    address: SocketAddr,
}

fn wire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

fn address(address: IpAddr) -> (u16, Vec<u8>) {
    match address {
        IpAddr::V4(ip) => (1, ip.octets().into()),
        IpAddr::V6(ip) => (28, ip.octets().into()),
    }
}

fn record(name: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = name.to_vec();
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 0, 1]);
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
    bytes
}

impl Default for Dns {
    fn default() -> Self {
        Self::new()
    }
}

impl Dns {
    /// Starts without names, on a port of the kernel's choice.
    pub fn new() -> Self {
        // A port that is free for both.
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let zone = Arc::new(Mutex::new(Zone::default()));
        let own = zone.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                for answer in own.lock().unwrap().answers(&bytes[..length], false) {
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        let own = zone.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut length = [0; 2];
                if stream.read_exact(&mut length).is_err() {
                    continue;
                }
                let mut bytes = vec![0; u16::from_be_bytes(length).into()];
                if stream.read_exact(&mut bytes).is_err() {
                    continue;
                }
                for answer in own.lock().unwrap().answers(&bytes, true) {
                    let _ = stream.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat());
                }
            }
        });
        Self { zone, address }
    }

    /// Address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what is wrong with answers from now on.
    pub fn lie(&self, lie: Lie) {
        self.zone.lock().unwrap().lie = Some(lie);
    }

    /// Sets the RCODE of all answers; 0 answers from the records.
    pub fn code(&self, code: u8) {
        self.zone.lock().unwrap().code = code;
    }

    /// Waits until the client has processed the current answers: it queries again afterwards.
    pub fn is_dealt_with(&self, name: &str) {
        let requested = || self.queries(name);
        // One query may be under way, and each address family is queried.
        let (enough, began) = (requested() + 4, Instant::now());
        while requested() < enough {
            assert!(began.elapsed() < super::TIMEOUT, "nobody asks for {name}");
            super::look_again();
        }
    }

    /// Number of queries for a name.
    #[allow(dead_code)] // not used by each test
    pub fn queries(&self, name: &str) -> usize {
        self.zone.lock().unwrap().queries.get(name).copied().unwrap_or(0)
    }

    /// Sets the addresses of a name.
    pub fn addresses(&self, name: &str, all: &[&str]) {
        let code = self.zone.lock().unwrap().code;
        self.addresses_and_code(name, all, code);
    }

    /// Sets the texts of a name, each of at most 255 bytes.
    #[allow(dead_code)] // not used by each test
    pub fn texts(&self, name: &str, all: &[String]) {
        let records = all.iter().map(|text| [&[text.len() as u8][..], text.as_bytes()].concat());
        self.zone.lock().unwrap().records.insert((name.to_owned(), 16), records.collect());
    }

    /// Sets addresses and RCODE together, so that no answer has only one of them.
    pub fn addresses_and_code(&self, name: &str, all: &[&str], code: u8) {
        let mut zone = self.zone.lock().unwrap();
        zone.code = code;
        for kind in [1, 28] {
            zone.records.remove(&(name.to_owned(), kind));
        }
        for text in all {
            let (kind, data) = address(text.parse().unwrap());
            zone.records.entry((name.to_owned(), kind)).or_default().push(data);
        }
    }

    /// Sets the servers of a service: weight, port, name, and the address in an additional record.
    pub fn service(&self, name: &str, all: &[(u16, u16, &str, Option<&str>)]) {
        let mut zone = self.zone.lock().unwrap();
        let records = all.iter().map(|(weight, port, target, _)| {
            [&[0, 1][..], &weight.to_be_bytes(), &port.to_be_bytes(), &wire(target)].concat()
        });
        let records: Vec<Vec<u8>> = records.collect();
        zone.records.insert((name.to_owned(), 33), records);
        zone.beside = all
            .iter()
            .filter_map(|(_, _, target, ip)| Some(((*target).to_owned(), ip.as_ref()?.parse().unwrap())))
            .collect();
    }
}

impl Zone {
    fn answers(&mut self, query: &[u8], tcp: bool) -> Vec<Vec<u8>> {
        let (mut name, mut at) = (String::new(), 12);
        while query[at] != 0 {
            let label = &query[at + 1..at + 1 + usize::from(query[at])];
            name += if name.is_empty() { "" } else { "." };
            name += std::str::from_utf8(label).unwrap();
            at += 1 + label.len();
        }
        *self.queries.entry(name.clone()).or_default() += 1;
        let question = &query[12..at + 5];
        let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
        let known = self.records.keys().any(|(own, _)| *own == name);
        let data = self.records.get(&(name, kind)).cloned().unwrap_or_default();
        let mut records: Vec<Vec<u8>> = data.iter().map(|data| record(&[0xc0, 12], kind, data)).collect();
        let beside: Vec<Vec<u8>> = self
            .beside
            .iter()
            .filter(|_| kind == 33)
            .map(|(name, ip)| {
                let (kind, data) = address(*ip);
                record(&wire(name), kind, &data)
            })
            .collect();
        let code = if self.code != 0 {
            self.code
        } else if known {
            0
        } else {
            3
        };
        if code != 0 {
            records.clear();
        }
        let message = |id: [u8; 2], flags: u8, counted: u16, question: &[u8], records: &[Vec<u8>]| {
            let mut bytes =
                [&id[..], &[0x80 | flags, 0x80 | code, 0, 1], &counted.to_be_bytes(), &[0, 0]].concat();
            bytes.extend((beside.len() as u16).to_be_bytes());
            bytes.extend(question);
            bytes.extend(records.concat());
            bytes.extend(beside.concat());
            bytes
        };
        let id = [query[0], query[1]];
        let count = records.len() as u16;
        let honest = message(id, 1, count, question, &records);
        let other: Vec<u8> = [&wire("other.test")[..], &question[question.len() - 4..]].concat();
        match self.lie.unwrap_or(Lie::None) {
            Lie::Unsaid if !known => vec![],
            Lie::None | Lie::Unsaid => vec![honest],
            Lie::Silent => vec![],
            Lie::Garbage => vec![vec![0xff; 40], vec![], vec![0]],
            Lie::OtherId => vec![message([id[0], !id[1]], 1, count, question, &records)],
            Lie::OtherQuestion => vec![message(id, 1, count, &other, &records)],
            Lie::Truncated if tcp => vec![honest],
            Lie::Truncated | Lie::AlwaysTruncated => vec![message(id, 3, 0, question, &[])],
            Lie::Counts => vec![message(id, 1, 10_000, question, &records)],
            Lie::Loop => {
                let own = 12 + question.len();
                let pointer = (0xc000 | own as u16).to_be_bytes();
                vec![message(id, 1, 1, question, &[record(&pointer, 1, &[127, 0, 0, 66])])]
            }
            Lie::Full if tcp => {
                let most = (65_535 - 12 - question.len()) / 16;
                let all: Vec<_> = (0..most as u32)
                    .map(|n| record(&[0xc0, 12], 1, &(0x7f40_0000 + n).to_be_bytes()))
                    .collect();
                vec![message(id, 1, most as u16, question, &all)]
            }
            Lie::Full => vec![message(id, 3, 0, question, &[])],
            Lie::First => vec![message(id, 1, count, &other, &records), honest],
        }
    }
}
