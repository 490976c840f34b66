#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod choose;
mod message;
mod name;
mod records;
mod section;
mod service;
mod system;
mod tcp;

pub use choose::{AddressChoice, AddressPreference, Network, choose};
pub use message::{
    Answer, AnswerError, Code, Families, Item, Kind, LEAST_RECORD, LONGEST_MESSAGE, MOST_ALIASES,
    MOST_RECORDS, Service, query, read,
};
pub use name::{LONGEST_LABEL, LONGEST_NAME, Name};
pub use records::{Entry, Records};
pub use section::{
    AnswerOutcome, Counters, HoldTimes, Id, MOST_KEPT, MOST_NAMES, NameResult, NameResults, NameUpdate,
    Query, QueryId, SHORTEST_TIMEOUT, Section, Settings, Status,
};
pub use service::{AssignmentChange, ServiceMember, members, weight};
pub use system::{MOST_SYSTEM_SERVERS, system_servers};
pub use tcp::TcpMessage;
