#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod choose;
mod message;
mod name;
mod records;
mod section;
mod service;
mod system;

pub use choose::{Choice, Network, Wish, choose};
pub use message::{
    Answer, Code, Item, Kind, LEAST_RECORD, LONGEST_MESSAGE, MOST_ALIASES, MOST_RECORDS, Service, Wrong,
    query, read,
};
pub use name::{LONGEST_LABEL, LONGEST_NAME, Name};
pub use records::{Entry, Records};
pub use section::{
    Ask, Counters, Heard, Holds, Id, MOST_KEPT, MOST_NAMES, Memo, Past, QueryId, SHORTEST_TIMEOUT, Section,
    Settings, Settled, Status,
};
pub use service::{Move, ServiceMember, members, weight};
pub use system::{MOST_SYSTEM_SERVERS, system_servers};
