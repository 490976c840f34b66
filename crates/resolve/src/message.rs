//! DNS messages (RFC 1035): a query with one name, and the answer to it. `hickory-proto` parses and writes
//! the bytes.
//!
//! Records of an answer that were not asked for are ignored: none of them is kept for another name (RFC 5452,
//! 6). The exception are the addresses of an SRV record's targets, which apply to that record only.

use crate::Name;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, RData, RecordType};
use std::collections::HashMap;
use std::net::IpAddr;

/// Largest message, in bytes: the limit of the two length bytes before it over TCP.
pub const LONGEST_MESSAGE: usize = 65_535;
/// Size of a header, in bytes.
const HEADER: usize = 12;
/// Size of the shortest record, in bytes: the root's name, type, class, time to live, and empty data. A
/// message that announces more records than can fit is refused unread.
pub const LEAST_RECORD: usize = 11;
/// Size of the shortest question, in bytes: the root's name, type and class.
const LEAST_QUESTION: usize = 5;
/// Largest number of records of an answer that are kept; the others are ignored. It is also the largest
/// number of servers that a template can fill from one name.
pub const MOST_RECORDS: usize = 4096;
/// Largest number of names that a name may lead to, one after the other (`CNAME`).
pub const MOST_ALIASES: usize = 16;

/// Kind of record to ask for.
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

    /// Returns the kind to ask for if there are no records of this one.
    pub fn other_family(self) -> Option<Self> {
        match self {
            Self::A => Some(Self::Aaaa),
            Self::Aaaa => Some(Self::A),
            Self::Srv => None,
        }
    }
}

/// Families of addresses that are asked for and accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// IPv4: A records.
    pub ipv4: bool,
    /// IPv6: AAAA records.
    pub ipv6: bool,
}

impl Families {
    /// Both families.
    pub const BOTH: Self = Self { ipv4: true, ipv6: true };

    /// Returns whether records of the kind are asked for.
    pub fn accepts(self, kind: Kind) -> bool {
        match kind {
            Kind::A => self.ipv4,
            Kind::Aaaa => self.ipv6,
            Kind::Srv => true,
        }
    }

    /// Returns the kind to ask for first, for a user who prefers `kind`.
    pub(crate) fn first(self, kind: Kind) -> Kind {
        kind.other_family().filter(|other| !self.accepts(kind) && self.accepts(*other)).unwrap_or(kind)
    }

    /// Returns the kind to ask for if there are no records of `kind`.
    pub(crate) fn other(self, kind: Kind) -> Option<Kind> {
        kind.other_family().filter(|other| self.accepts(*other))
    }
}

/// A server of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Host name of the server.
    pub target: Name,
    /// Port.
    pub port: u16,
    /// Weight: its share of the load.
    pub weight: u16,
    /// Priority; lower is better.
    pub priority: u16,
    /// Address, if the answer has one for the target.
    pub address: Option<IpAddr>,
}

/// Data of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// An address.
    Address(IpAddr),
    /// A server of a service.
    Service(Service),
}

/// Result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// There are records of the kind.
    Found,
    /// The name does not exist.
    NoName,
    /// There are no records of the kind.
    NoRecord,
    /// The name leads to another one without records of the kind, or through too many names.
    NoAlias,
    /// The name server refuses to answer this client.
    Refused,
    /// The name server could not answer.
    Failed,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Result.
    pub code: Code,
    /// True if the answer was truncated; its records are not used.
    pub truncated: bool,
    /// True if the name leads to other names.
    pub aliases: bool,
    /// The data of its records, without duplicates; empty unless something was found.
    pub items: Vec<Item>,
}

/// Reason why bytes are not the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// The bytes are no message.
    Garbage,
    /// The message is no answer to a query.
    NotAnAnswer,
    /// The message answers a query with another number.
    Id,
    /// The message answers another question.
    Question,
}

fn wire(name: &Name) -> Option<hickory_proto::rr::Name> {
    let labels = name.as_str().split('.').map(str::as_bytes);
    hickory_proto::rr::Name::from_labels(labels).ok()
}

/// Returns the name, if it is a valid name of a host or a service.
fn plain(name: &hickory_proto::rr::Name) -> Option<Name> {
    let mut text = String::new();
    for label in name.iter() {
        if !text.is_empty() {
            text.push('.');
        }
        // A dot inside of a label would turn it into another name.
        let label = std::str::from_utf8(label).ok().filter(|label| !label.contains('.'))?;
        text.push_str(label);
    }
    Name::parse(&text).ok()
}

/// Builds a query: one question, with recursion, and room for an answer of `payload` bytes.
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

/// Returns whether a message can be as long as its header says. If not, reading it would allocate for records
/// that do not exist.
fn counts_fit(bytes: &[u8]) -> bool {
    if bytes.len() < HEADER || bytes.len() > LONGEST_MESSAGE {
        return false;
    }
    let count = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let least = count(4) * LEAST_QUESTION + (count(6) + count(8) + count(10)) * LEAST_RECORD;
    least <= bytes.len() - HEADER
}

/// Parses the answer to a query. Addresses of a service's servers are of `families` only.
///
/// # Errors
/// [`AnswerError`] if it is not the answer.
pub fn read(
    bytes: &[u8],
    id: u16,
    name: &Name,
    kind: Kind,
    families: Families,
) -> Result<Answer, AnswerError> {
    if !counts_fit(bytes) {
        return Err(AnswerError::Garbage);
    }
    if u16::from_be_bytes([bytes[0], bytes[1]]) != id {
        return Err(AnswerError::Id);
    }
    let message = Message::from_vec(bytes).map_err(|_| AnswerError::Garbage)?;
    if message.metadata.message_type != MessageType::Response || message.metadata.op_code != OpCode::Query {
        return Err(AnswerError::NotAnAnswer);
    }
    let [question] = &message.queries[..] else { return Err(AnswerError::Question) };
    let requested = question.query_class() == DNSClass::IN && question.query_type() == kind.record_type();
    if !requested || plain(question.name()).as_ref() != Some(name) {
        return Err(AnswerError::Question);
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
    Ok(found(&message, name, kind, families))
}

/// Extracts the records of `name` from an answer without an error.
fn found(message: &Message, name: &Name, kind: Kind, families: Families) -> Answer {
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
            break; // they form a loop
        }
    }
    let mut items: Vec<Item> = Vec::new();
    let mut unique = std::collections::HashSet::new();
    let addresses = beside(message, kind, families);
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
            && unique.insert(item.clone())
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

/// Returns the addresses in the additional section of an SRV answer, the first of each name.
fn beside(message: &Message, kind: Kind, families: Families) -> HashMap<Name, IpAddr> {
    let mut all = HashMap::new();
    if kind == Kind::Srv {
        for record in message.additionals.iter().take(MOST_RECORDS) {
            let address: IpAddr = match &record.data {
                RData::A(address) if families.ipv4 => address.0.into(),
                RData::AAAA(address) if families.ipv6 => address.0.into(),
                _ => continue,
            };
            if let Some(name) = plain(&record.name) {
                all.entry(name).or_insert(address);
            }
        }
    }
    all
}
