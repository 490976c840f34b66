//! Stick tables for expressions: types of data, and operations on entries. The crate `stick` implements the
//! tables.

use crate::sample::{Type, Value};

/// A stick table of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// A stick table that a name resolved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTable {
    /// The table.
    pub id: TableId,
    /// Type of its keys: `Ipv4`, `Ipv6`, `Int`, `Str` or `Bin`.
    pub key: Type,
}

/// A type of data in an entry, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // named after the words of the configuration
pub enum DataType {
    ServerId,
    Gpt0,
    Gpc0,
    Gpc0Rate,
    ConnCnt,
    ConnRate,
    ConnCur,
    SessCnt,
    SessRate,
    HttpReqCnt,
    HttpReqRate,
    HttpErrCnt,
    HttpErrRate,
    BytesInCnt,
    BytesInRate,
    BytesOutCnt,
    BytesOutRate,
    Gpc1,
    Gpc1Rate,
    ServerKey,
    HttpFailCnt,
    HttpFailRate,
    Gpt,
    Gpc,
    GpcRate,
    GlitchCnt,
    GlitchRate,
}

impl DataType {
    /// All types.
    pub const ALL: [Self; 27] = [
        Self::ServerId,
        Self::Gpt0,
        Self::Gpc0,
        Self::Gpc0Rate,
        Self::ConnCnt,
        Self::ConnRate,
        Self::ConnCur,
        Self::SessCnt,
        Self::SessRate,
        Self::HttpReqCnt,
        Self::HttpReqRate,
        Self::HttpErrCnt,
        Self::HttpErrRate,
        Self::BytesInCnt,
        Self::BytesInRate,
        Self::BytesOutCnt,
        Self::BytesOutRate,
        Self::Gpc1,
        Self::Gpc1Rate,
        Self::ServerKey,
        Self::HttpFailCnt,
        Self::HttpFailRate,
        Self::Gpt,
        Self::Gpc,
        Self::GpcRate,
        Self::GlitchCnt,
        Self::GlitchRate,
    ];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ServerId => "server_id",
            Self::Gpt0 => "gpt0",
            Self::Gpc0 => "gpc0",
            Self::Gpc0Rate => "gpc0_rate",
            Self::ConnCnt => "conn_cnt",
            Self::ConnRate => "conn_rate",
            Self::ConnCur => "conn_cur",
            Self::SessCnt => "sess_cnt",
            Self::SessRate => "sess_rate",
            Self::HttpReqCnt => "http_req_cnt",
            Self::HttpReqRate => "http_req_rate",
            Self::HttpErrCnt => "http_err_cnt",
            Self::HttpErrRate => "http_err_rate",
            Self::BytesInCnt => "bytes_in_cnt",
            Self::BytesInRate => "bytes_in_rate",
            Self::BytesOutCnt => "bytes_out_cnt",
            Self::BytesOutRate => "bytes_out_rate",
            Self::Gpc1 => "gpc1",
            Self::Gpc1Rate => "gpc1_rate",
            Self::ServerKey => "server_key",
            Self::HttpFailCnt => "http_fail_cnt",
            Self::HttpFailRate => "http_fail_rate",
            Self::Gpt => "gpt",
            Self::Gpc => "gpc",
            Self::GpcRate => "gpc_rate",
            Self::GlitchCnt => "glitch_cnt",
            Self::GlitchRate => "glitch_rate",
        }
    }

    /// The type with this name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|data| data.name().as_bytes() == name)
    }

    /// True for a rate, which has a period.
    pub const fn is_rate(self) -> bool {
        matches!(
            self,
            Self::Gpc0Rate
                | Self::ConnRate
                | Self::SessRate
                | Self::HttpReqRate
                | Self::HttpErrRate
                | Self::BytesInRate
                | Self::BytesOutRate
                | Self::Gpc1Rate
                | Self::HttpFailRate
                | Self::GpcRate
                | Self::GlitchRate
        )
    }

    /// True for an array.
    pub const fn is_array(self) -> bool {
        matches!(self, Self::Gpt | Self::Gpc | Self::GpcRate)
    }
}

/// A value of an entry: the type of data, and the index in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datum {
    /// The type of data.
    pub data: DataType,
    /// Index in an array; 0 for other types.
    pub index: u32,
}

impl From<DataType> for Datum {
    fn from(data: DataType) -> Self {
        Self { data, index: 0 }
    }
}

/// An operation on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryOperation {
    /// Returns the current number; for a rate, events per period.
    Read(Datum),
    /// Increments general counter 0 or 1 and its rate. Returns the new number.
    Increment(u32),
    /// Increments an element of the array `gpc` and its rate. Returns the new number.
    IncrementElement(u32),
    /// Clears general counter 0 or 1. Returns the old number.
    Clear(u32),
    /// Clears an element of the array `gpc`. Returns the old number.
    ClearElement(u32),
    /// Increments `conn_cnt` and `conn_rate`. Returns the new number.
    CountConnection,
    /// Returns the number of streams and connections that track the entry.
    Trackers,
    /// Returns the milliseconds until it expires.
    Expire,
    /// Returns the milliseconds since its last use.
    Idle,
    /// Returns 1 if the entry exists.
    Exists,
}

impl EntryOperation {
    /// True if the operation changes the entry.
    pub fn changes(self) -> bool {
        use EntryOperation::*;
        matches!(self, Increment(_) | IncrementElement(_) | Clear(_) | ClearElement(_) | CountConnection)
    }
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result.
    Number(i64),
    /// The entry does not exist.
    NoEntry,
    /// The table does not store this type of data.
    NotKept,
    /// The counter tracks no entry.
    NotTracked,
}

/// The stick tables of a generation, and the entries that a stream tracks. Methods are called during
/// evaluation: they must not block, and may allocate for a new entry only.
pub trait StickTables {
    /// Runs an operation on the entry that counter `counter` tracks. If `table` is given, uses the entry of
    /// that table with the same key.
    fn tracked(&self, counter: u32, table: Option<TableId>, ask: EntryOperation) -> Outcome;
    /// Runs an operation on the entry of a key, which has the type of the table. If `makes` is true, an
    /// operation that [changes](EntryOperation::changes) the entry creates it first.
    fn keyed(&self, table: TableId, key: Value<'_>, ask: EntryOperation, makes: bool) -> Outcome;
    /// The key that counter `counter` tracks, with the type of its table. Text is written to `bytes`.
    fn key_of<'b>(&self, counter: u32, bytes: &'b mut [u8]) -> Option<Value<'b>>;
    /// Number of entries in the table, and its maximum.
    fn entries(&self, table: TableId) -> (u32, u32);
}
