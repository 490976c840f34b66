//! Messages of the protocol (RFC 1035): a question with one name, and the answer to it. `hickory-proto` knows
//! the bytes.
//!
//! What is in an answer beside what was asked for is left alone: nothing of it is kept for another name (RFC
//! 5452, 6), but the addresses of an SRV record's targets, which hold for that record only.

use crate::Name;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, RecordType};
use std::collections::HashMap;
use std::net::IpAddr;

/// Bytes of a message: what the two bytes before it can say over TCP.
pub const LONGEST_MESSAGE: usize = 65_535;
/// Bytes of a header.
const HEADER: usize = 12;
/// Bytes of the shortest record: the root's name, type, class, time and an empty rest. A message that counts
/// more than fit is refused unread.
pub const LEAST_RECORD: usize = 11;
/// Bytes of the shortest question: the root's name, type and class.
const LEAST_QUESTION: usize = 5;
/// Records of an answer that are kept; the others are as if they were not there. As many servers a template
/// may fill by one name.
pub const MOST_RECORDS: usize = 4096;
/// Names that a name may lead to, one after the other (`CNAME`).
pub const MOST_ALIASES: usize = 16;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Servers of a service.
    Srv,
}

impl Kind {
    fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Srv => RecordType::SRV,
        }
    }

    /// What is asked for when there is none of these.
    pub fn other_family(self) -> Option<Self> {
        match self {
            Self::A => Some(Self::Aaaa),
            Self::Aaaa => Some(Self::A),
            Self::Srv => None,
        }
    }
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Where it is.
    pub target: Name,
    /// Its port.
    pub port: u16,
    /// Its share of the load.
    pub weight: u16,
    /// Less is better.
    pub priority: u16,
    /// Its address, if the answer has one beside it.
    pub address: Option<IpAddr>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// An address.
    Address(IpAddr),
    /// A server of a service.
    Service(Service),
}

/// How an answer ends the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// There is something of what was asked for.
    Found,
    /// There is no such name.
    NoName,
    /// There is nothing of the kind.
    NoRecord,
    /// The name leads to another one, and there is nothing of the kind there, or too many others.
    NoAlias,
    /// The name server does not answer to us.
    Refused,
    /// The name server could not answer.
    Failed,
}

/// An answer to the question that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// How it ends.
    pub code: Code,
    /// It did not fit, and what is there of it is not used.
    pub truncated: bool,
    /// The name leads to others.
    pub aliases: bool,
    /// What it says, without repetitions; nothing unless something was found.
    pub items: Vec<Item>,
}

/// Bytes are not the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// They are no message.
    Garbage,
    /// They are no answer to a query.
    NotAnAnswer,
    /// They answer another query.
    Id,
    /// They answer another question.
    Question,
}

fn wire(name: &Name) -> Option<hickory_proto::rr::Name> {
    let labels = name.as_str().split('.').map(str::as_bytes);
    hickory_proto::rr::Name::from_labels(labels).ok()
}

/// The name, as long as it is one of a host or a service.
fn plain(name: &hickory_proto::rr::Name) -> Option<Name> {
    let mut text = String::new();
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        // A dot inside of a label would make another name of it.
        let label = std::str::from_utf8(label).ok().filter(|label| !label.contains('.'))?;
        text.push_str(label);
    }
    Name::parse(&text).ok()
}

/// The query: one question, for which the name server may ask others, and room for an answer of `payload`
/// bytes.
pub fn query(id: u16, name: &Name, kind: Kind, payload: u16) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    let mut question = Query::new();
    question.set_name(wire(name).expect("a name has labels that fit"));
    question.set_query_type(kind.record_type());
    question.set_query_class(DNSClass::IN);
    message.add_query(question);
    let mut edns = Edns::new();
    edns.set_max_payload(payload);
    message.set_edns(edns);
    message.to_vec().expect("a question of one name fits into a message")
}

/// Whether a message can be as long as its header says: else reading it would begin with what is not there.
fn counts_fit(bytes: &[u8]) -> bool {
    if bytes.len() < HEADER || bytes.len() > LONGEST_MESSAGE {
        return false;
    }
    let count = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let least = count(4) * LEAST_QUESTION + (count(6) + count(8) + count(10)) * LEAST_RECORD;
    least <= bytes.len() - HEADER
}

/// Reads the answer to that query.
///
/// # Errors
/// [`Wrong`]: it is none.
pub fn read(bytes: &[u8], id: u16, name: &Name, kind: Kind) -> Result<Answer, Wrong> {
    if !counts_fit(bytes) {
        return Err(Wrong::Garbage);
    }
    if u16::from_be_bytes([bytes[0], bytes[1]]) != id {
        return Err(Wrong::Id);
    }
    let message = Message::from_vec(bytes).map_err(|_| Wrong::Garbage)?;
    if message.metadata.message_type != MessageType::Response || message.metadata.op_code != OpCode::Query {
        return Err(Wrong::NotAnAnswer);
    }
    let [question] = &message.queries[..] else { return Err(Wrong::Question) };
    let asked = question.query_class() == DNSClass::IN && question.query_type() == kind.record_type();
    if !asked || plain(question.name()).as_ref() != Some(name) {
        return Err(Wrong::Question);
    }
    let empty =
        |code| Answer { code, truncated: message.metadata.truncation, aliases: false, items: Vec::new() };
    match message.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return Ok(empty(Code::NoName)),
        ResponseCode::Refused => return Ok(empty(Code::Refused)),
        _ => return Ok(empty(Code::Failed)),
    }
    if message.metadata.truncation {
        return Ok(empty(Code::NoRecord));
    }
    Ok(found(&message, name, kind))
}

/// What an answer without an error says of `name`.
fn found(message: &Message, name: &Name, kind: Kind) -> Answer {
    let mut leads: HashMap<Name, Name> = HashMap::new();
    for record in &message.answers {
        if let RData::CNAME(target) = &record.data
            && leads.len() < MOST_ALIASES
            && let (Some(from), Some(to)) = (plain(&record.name), plain(&target.0))
        {
            leads.entry(from).or_insert(to);
        }
    }
    let mut own = name;
    let mut steps = 0;
    while let Some(next) = leads.get(own) {
        (own, steps) = (next, steps + 1);
        if steps > MOST_ALIASES {
            break; // they lead to each other
        }
    }
    let mut items: Vec<Item> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let addresses = beside(message, kind);
    for record in &message.answers {
        if items.len() == MOST_RECORDS {
            break;
        }
        let item = match (&record.data, kind) {
            (RData::A(address), Kind::A) => Item::Address(address.0.into()),
            (RData::AAAA(address), Kind::Aaaa) => Item::Address(address.0.into()),
            (RData::SRV(service), Kind::Srv) => {
                let Some(target) = plain(&service.target) else { continue };
                let address = addresses.get(&target).copied();
                Item::Service(Service {
                    target,
                    port: service.port,
                    weight: service.weight,
                    priority: service.priority,
                    address,
                })
            }
            _ => continue,
        };
        if record.dns_class == DNSClass::IN
            && plain(&record.name).as_ref() == Some(own)
            && seen.insert(item.clone())
        {
            items.push(item);
        }
    }
    let code = match (items.is_empty(), steps) {
        (false, _) => Code::Found,
        (true, 0) => Code::NoRecord,
        (true, _) => Code::NoAlias,
    };
    Answer { code, truncated: false, aliases: steps > 0, items }
}

/// Addresses that stand beside the SRV records of an answer, the first of each name.
fn beside(message: &Message, kind: Kind) -> HashMap<Name, IpAddr> {
    let mut all = HashMap::new();
    if kind == Kind::Srv {
        for record in message.additionals.iter().take(MOST_RECORDS) {
            let address: IpAddr = match &record.data {
                RData::A(address) => address.0.into(),
                RData::AAAA(address) => address.0.into(),
                _ => continue,
            };
            if let Some(name) = plain(&record.name) {
                all.entry(name).or_insert(address);
            }
        }
    }
    all
}
