//! A name server whose answers the test says, lies included. It serves UDP and TCP at one port.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What it answers, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It is honest.
    None,
    /// It says nothing.
    Silent,
    /// Bytes without a meaning.
    Garbage,
    /// The answer to another query.
    OtherId,
    /// The answer to another question.
    OtherQuestion,
    /// It says that the answer did not fit, over UDP.
    Truncated,
    /// The same over TCP.
    AlwaysTruncated,
    /// The header speaks of 10,000 records.
    Counts,
    /// Names that point at themselves.
    Loop,
    /// All that a message can hold.
    Full,
    /// The answer to another question, and then the right one.
    First,
}

#[derive(Debug, Default)]
struct Zone {
    lie: Option<Lie>,
    /// By name and type: data of records.
    records: HashMap<(String, u16), Vec<Vec<u8>>>,
    /// What stands beside answers.
    beside: Vec<(String, IpAddr)>,
    code: u8,
    /// How many questions have come, by name.
    asked: HashMap<String, usize>,
}

/// A name server that serves until the test ends.
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
    /// At a port of the kernel's choice, with no names.
    pub fn new() -> Self {
        // A port that both have.
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

    /// Where it is asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All answers are so from now on.
    pub fn lie(&self, lie: Lie) {
        self.zone.lock().unwrap().lie = Some(lie);
    }

    /// All is answered with that code, 0 for what there is.
    pub fn code(&self, code: u8) {
        self.zone.lock().unwrap().code = code;
    }

    /// Waits until who asks for that name has dealt with what is answered now: it asks anew when it has.
    pub fn is_dealt_with(&self, name: &str) {
        let asked = || self.asked(name);
        // One may be under way, and one name is asked for twice, for each family.
        let (enough, began) = (asked() + 4, Instant::now());
        while asked() < enough {
            assert!(began.elapsed() < super::PATIENCE, "nobody asks for {name}");
            std::thread::yield_now();
        }
    }

    /// How many questions have come for that name.
    #[allow(dead_code)] // not of each test
    pub fn asked(&self, name: &str) -> usize {
        self.zone.lock().unwrap().asked.get(name).copied().unwrap_or(0)
    }

    /// The addresses of a name from now on.
    pub fn addresses(&self, name: &str, all: &[&str]) {
        let code = self.zone.lock().unwrap().code;
        self.addresses_and_code(name, all, code);
    }

    /// Both at once: nobody is told the one without the other.
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

    /// The servers of a service from now on, by weight, port, name and address, which stands beside them.
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
        *self.asked.entry(name.clone()).or_default() += 1;
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
            Lie::None => vec![honest],
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
