//! Answers, built by hand where they have to be wrong.

#![allow(dead_code, clippy::unwrap_used)] // not all is for each test

use manylane_resolve::Kind;

pub(crate) fn name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

pub(crate) fn number(kind: Kind) -> u16 {
    match kind {
        Kind::A => 1,
        Kind::Aaaa => 28,
        Kind::Srv => 33,
    }
}

/// Name, type and data.
pub(crate) type Record = (String, u16, Vec<u8>);

pub(crate) fn a(of: &str, address: &str) -> Record {
    let ip: std::net::IpAddr = address.parse().unwrap();
    match ip {
        std::net::IpAddr::V4(ip) => (of.into(), 1, ip.octets().into()),
        std::net::IpAddr::V6(ip) => (of.into(), 28, ip.octets().into()),
    }
}

pub(crate) fn cname(of: &str, to: &str) -> Record {
    (of.into(), 5, name(to))
}

pub(crate) fn srv(of: &str, weight: u16, port: u16, target: &str) -> Record {
    let mut data = vec![0, 7];
    data.extend(weight.to_be_bytes());
    data.extend(port.to_be_bytes());
    data.extend(name(target));
    (of.into(), 33, data)
}

#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) question: (String, u16, u16),
    pub(crate) answers: Vec<Record>,
    pub(crate) additional: Vec<Record>,
}

impl Message {
    /// Returns the good answer with these records.
    pub(crate) fn to(id: u16, of: &str, kind: Kind, answers: Vec<Record>) -> Self {
        Self { id, flags: 0x8180, question: (of.into(), number(kind), 1), answers, additional: Vec::new() }
    }

    /// Sets an error code.
    pub(crate) fn code(self, code: u16) -> Self {
        Self { flags: self.flags | code, ..self }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let counts = [1, self.answers.len() as u16, 0, self.additional.len() as u16];
        for number in [self.id, self.flags].into_iter().chain(counts) {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(name(&self.question.0));
        bytes.extend(self.question.1.to_be_bytes());
        bytes.extend(self.question.2.to_be_bytes());
        for (of, kind, data) in self.answers.iter().chain(&self.additional) {
            bytes.extend(name(of));
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }
}

/// Returns the number of a query.
pub(crate) fn id_of(query: &[u8]) -> u16 {
    u16::from_be_bytes([query[0], query[1]])
}
