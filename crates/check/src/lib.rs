#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod board;
mod health;
mod intervals;
mod past;
mod script;
pub mod states;
mod status;

pub use board::{Board, Report};
pub use health::{Change, Counted, Health, Init, Running};
pub use intervals::Intervals;
pub use past::{Past, Since};
pub use script::{
    Ask, CheckInput, Connect, ConnectTls, Evaluate, Exchange, Expect, HttpRequest, MOST_BYTES, NoExpressions,
    Pattern, PortOf, Script, Send, Sent, Service, Setting, StatusRanges, Step, Target, Text, Value, Words,
    agent, http, ldap, mysql, pgsql, redis, smtp, tcp, tls,
};
pub use status::{CheckResult, Status};
