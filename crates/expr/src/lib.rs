#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod acl;
mod args;
mod cast;
mod clock;
mod convert;
mod env;
mod error;
mod eval_points;
mod fetch;
mod format;
pub mod hash;
mod names;
mod nearest;
mod needs;
mod pattern;
mod program;
mod sample;
mod scratch;
mod show;
mod table;
mod variable;

pub use acl::{Acls, Condition, Truth, criteria};
pub use args::ArgKind;
pub use cast::{cast, is_castable, parse_int};
pub use clock::{Civil, Zone};
pub use convert::{SetConditions, http_date, is_forwarded, is_host, put_node_name, put_node_port};
pub use env::{
    Captures, ClientInfo, Data, Env, Host, LinkError, LinkInfo, LinkStream, Links, Number, ProxyInfo,
    RequestLine, ServerInfo, Settings, StreamInfo, StreamSetting, TcpInfo, Timestamp, TlsInfo,
};
pub use error::{Error, LISTED, choice, none_of};
pub use eval_points::{Direction, EvalPoints};
pub use fetch::{CertificateText, RevokedText, algorithms, basic, common_name};
pub use format::{
    CLF_LOG, Format, HTTP_LOG, HTTPS_LOG, LogInfo, MAX_PARTS, PLAIN_HTTP_LOG, PLAIN_TCP_LOG, TCP_LOG, Use,
};
pub use names::{
    Compiler, KeywordDoc, Missing, Names, ProxyId, ProxySide, SampleSource, ServerId, UserlistId, converters,
    fetches,
};
pub use nearest::{MAX_EDITS, MAX_GUESSED_BYTES, guess, nearest};
pub use needs::{Needs, OfVariable};
pub use pattern::{
    Comparison, Entries, Entry, EntrySelector, LONG_STEPS, MAX_BACKTRACK_BYTES, MAX_ENTRIES, MAX_LOOKAROUNDS,
    MAX_MACHINE_BYTES, MAX_REFERENCE_BYTES, MAX_REGEX_BYTES, MOST_REPLACED, MatchKind, NoVersion, NotAdded,
    Pair, Reference, References, Regex, SHORT_STEPS, SHORT_TEXT, Snapshot, Summary, View, given_up,
    regex_fault, split,
};
pub use program::{Expression, MAX_CONVERTERS};
pub use sample::{Absent, FetchResult, Sample, Type, Value};
pub use scratch::{Lane, MAX_MACHINES, SCRATCH_BYTES, Scratch, Writer};
pub use show::{MAX_SHOWN_BYTES, Shown, is_harmful};
pub use table::{DataType, Datum, EntryOperation, NamedTable, Outcome, StickTables, TableId};
pub use variable::{
    MAX_NAME_BYTES, MAX_SCOPE_BYTES, MAX_VARIABLES, ProcessVariables, Scope, Scopes, VARIABLE_BYTES,
    VariableId, VariableLimits, VariableNames, Variables,
};
