#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod health;
mod history;
mod intervals;
mod report;
mod script;
pub mod states;
mod status;

pub use health::{Change, ErrorWeight, Health, HealthState, Init};
pub use history::{History, HistoryCell};
pub use intervals::Intervals;
pub use report::{Report, ReportCell};
pub use script::{
    CheckInput, Connect, ConnectTls, Evaluate, Exchange, Expect, HttpRequest, MOST_BYTES, NextAction,
    NoExpressions, Pattern, PortSource, Script, Send, SendSource, Service, Setting, StatusRanges, Step,
    Target, Text, TextSource, Value, agent, http, ldap, mysql, pgsql, redis, smtp, spop, tcp, tls,
};
pub use status::{CheckResult, Status};
