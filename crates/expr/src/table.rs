//! Stick tables as expressions know them: which data entries have, and what may be asked of them. The tables
//! themselves are the crate `stick`'s.

use crate::sample::{Type, Value};

/// A stick table of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u32);

/// A table as names find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTable {
    /// Which.
    pub id: TableId,
    /// The type of its keys: `Ipv4`, `Ipv6`, `Int`, `Str` or `Bin`.
    pub key: Type,
}

/// What an entry may keep, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names of the configuration
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
    /// All of them.
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

    /// The name in the configuration.
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

    /// That of a name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|data| data.name().as_bytes() == name)
    }

    /// It is a rate over a period of its own.
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

    /// There are several, by number.
    pub const fn is_array(self) -> bool {
        matches!(self, Self::Gpt | Self::Gpc | Self::GpcRate)
    }
}

/// A place of an entry: the data, and which of an array; 0 for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datum {
    /// What.
    pub data: DataType,
    /// Which of them.
    pub index: u32,
}

impl From<DataType> for Datum {
    fn from(data: DataType) -> Self {
        Self { data, index: 0 }
    }
}

/// What is asked of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// Its number now; of a rate, events a period.
    Read(Datum),
    /// Counts one, in general counter 0 or 1 and its rate; the number then.
    Increment(u32),
    /// The same in an element of the arrays.
    IncrementElement(u32),
    /// Makes general counter 0 or 1 zero; what it was.
    Clear(u32),
    /// The same of an element of the array.
    ClearElement(u32),
    /// Counts one in `conn_cnt` and `conn_rate`; the number then.
    CountConnection,
    /// Who is counted in it.
    Trackers,
    /// Milliseconds until it expires.
    Expire,
    /// Milliseconds since it was used.
    Idle,
    /// Nothing but whether it is there: 1.
    Exists,
}

impl Ask {
    /// Whether the entry changes by it.
    pub fn changes(self) -> bool {
        use Ask::*;
        matches!(self, Increment(_) | IncrementElement(_) | Clear(_) | ClearElement(_) | CountConnection)
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The number.
    Number(i64),
    /// There is no such entry.
    NoEntry,
    /// The table keeps nothing of the kind.
    NotKept,
    /// Nothing is tracked there.
    NotTracked,
}

/// The tables of a generation, and the entries that a stream is counted in. Called while a program runs: it
/// must not block, and allocates for a new entry at most.
pub trait StickTables {
    /// Asks the entry that counter `counter` tracks, or where `table` is given the one with its key there.
    fn tracked(&self, counter: u32, table: Option<TableId>, ask: Ask) -> Outcome;
    /// Asks the entry of a key, whose type is the table's. What [changes](Ask::changes) an entry makes it
    /// first, if `makes`.
    fn keyed(&self, table: TableId, key: Value<'_>, ask: Ask, makes: bool) -> Outcome;
    /// The key that counter `counter` tracks, in its table's type; text goes through `bytes`.
    fn key_of<'b>(&self, counter: u32, bytes: &'b mut [u8]) -> Option<Value<'b>>;
    /// Entries that the table has, and those that it has room for.
    fn entries(&self, table: TableId) -> (u32, u32);
}
