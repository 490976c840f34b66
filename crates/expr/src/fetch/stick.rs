//! Entries of stick tables: those that counters track, and that of the client address.

use super::{Fetch, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast::cast;
use crate::env::Env;
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::sample::{Absent, FetchResult, Type, Value, found};
use crate::scratch::Scratch;
use crate::table::{DataType, Datum, EntryOperation, NamedTable, Outcome, TableId};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stick {
    Tracked { counter: u32, table: Option<TableId>, query: Query },
    Source { table: NamedTable, query: Query },
    IsTracked { counter: u32, table: Option<TableId> },
    Key(u32),
    Used(TableId),
    Free(TableId),
}

/// An operation on an entry, and the form of its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    pub(crate) ask: EntryOperation,
    /// True to convert bytes to KiB.
    pub(crate) kilo: bool,
    /// True to create a missing entry.
    pub(crate) makes: bool,
}

pub(crate) const fn read(data: DataType) -> Query {
    plain(EntryOperation::Read(Datum { data, index: 0 }))
}

pub(crate) const fn plain(ask: EntryOperation) -> Query {
    Query { ask, kilo: false, makes: false }
}

pub(crate) const fn kilo(data: DataType) -> Query {
    Query { kilo: true, ..read(data) }
}

pub(crate) const fn makes(ask: EntryOperation) -> Query {
    Query { makes: true, ..plain(ask) }
}

impl Query {
    /// The result as a sample. A missing entry counts as 0.
    pub(crate) fn shown(self, outcome: Outcome) -> Option<i64> {
        match outcome {
            Outcome::Number(n) if self.kilo => Some(n >> 10),
            Outcome::Number(n) => Some(n),
            Outcome::NoEntry => Some(0),
            Outcome::NotKept | Outcome::NotTracked => None,
        }
    }
}

/// Maximum index of an array and of a counter, as in HAProxy.
pub(crate) const MAX_INDEX: i64 = 99;
const MAX_COUNTER: i64 = 14;

fn counter(args: &Args<'_, '_>, at: usize) -> Result<u32, Error> {
    Ok(args.int_in(at, 0..=MAX_COUNTER, 0)? as u32)
}

fn table(args: &Args<'_, '_>, at: usize) -> Result<Option<TableId>, Error> {
    match args.given(at) {
        None => Ok(None),
        Some(_) => Ok(Some(args.table(at)?.id)),
    }
}

fn tracked(counter: u32, table: Option<TableId>, query: Query) -> Result<Fetch, Error> {
    Ok(Fetch::Stick(Stick::Tracked { counter, table, query }))
}

/// Rows for one number of an entry: by counter number, for the first three counters, and by client address.
macro_rules! numbers {
    ($points:ident; $($query:expr, $help:literal,
        [$any:literal, $zero:literal, $one:literal, $two:literal, $src:literal];)*) => {
        &[$(
            row($any, &[Int, Table], 1, Type::Int, EvalPoints::$points,
                concat!($help, " of the entry that a counter tracks"),
                |args| tracked(counter(args, 0)?, table(args, 1)?, $query)),
            row($zero, &[Table], 0, Type::Int, EvalPoints::$points,
                concat!($help, " of the entry that counter 0 tracks"),
                |args| tracked(0, table(args, 0)?, $query)),
            row($one, &[Table], 0, Type::Int, EvalPoints::$points,
                concat!($help, " of the entry that counter 1 tracks"),
                |args| tracked(1, table(args, 0)?, $query)),
            row($two, &[Table], 0, Type::Int, EvalPoints::$points,
                concat!($help, " of the entry that counter 2 tracks"),
                |args| tracked(2, table(args, 0)?, $query)),
            row($src, &[Table], 0, Type::Int, EvalPoints::LINK,
                concat!($help, " of the entry of the client's address"),
                |args| Ok(Fetch::Stick(Stick::Source { table: args.table(0)?, query: $query }))),
        )*]
    };
}

use DataType as D;

pub(super) const NUMBERS: &[Row] = numbers! { RUNNING;
    read(D::BytesInRate), "bytes from the client a period",
        ["sc_bytes_in_rate", "sc0_bytes_in_rate", "sc1_bytes_in_rate", "sc2_bytes_in_rate",
         "src_bytes_in_rate"];
    read(D::BytesOutRate), "bytes to the client a period",
        ["sc_bytes_out_rate", "sc0_bytes_out_rate", "sc1_bytes_out_rate", "sc2_bytes_out_rate",
         "src_bytes_out_rate"];
    makes(EntryOperation::Clear(0)), "makes general counter 0 zero, and gives what it was,",
        ["sc_clr_gpc0", "sc0_clr_gpc0", "sc1_clr_gpc0", "sc2_clr_gpc0", "src_clr_gpc0"];
    makes(EntryOperation::Clear(1)), "makes general counter 1 zero, and gives what it was,",
        ["sc_clr_gpc1", "sc0_clr_gpc1", "sc1_clr_gpc1", "sc2_clr_gpc1", "src_clr_gpc1"];
    read(D::ConnCnt), "connections so far",
        ["sc_conn_cnt", "sc0_conn_cnt", "sc1_conn_cnt", "sc2_conn_cnt", "src_conn_cnt"];
    read(D::ConnCur), "connections now",
        ["sc_conn_cur", "sc0_conn_cur", "sc1_conn_cur", "sc2_conn_cur", "src_conn_cur"];
    read(D::ConnRate), "connections a period",
        ["sc_conn_rate", "sc0_conn_rate", "sc1_conn_rate", "sc2_conn_rate", "src_conn_rate"];
    read(D::Gpc0), "general counter 0",
        ["sc_get_gpc0", "sc0_get_gpc0", "sc1_get_gpc0", "sc2_get_gpc0", "src_get_gpc0"];
    read(D::Gpc1), "general counter 1",
        ["sc_get_gpc1", "sc0_get_gpc1", "sc1_get_gpc1", "sc2_get_gpc1", "src_get_gpc1"];
    read(D::Gpt0), "general tag 0",
        ["sc_get_gpt0", "sc0_get_gpt0", "sc1_get_gpt0", "sc2_get_gpt0", "src_get_gpt0"];
    read(D::GlitchCnt), "glitches of connections",
        ["sc_glitch_cnt", "sc0_glitch_cnt", "sc1_glitch_cnt", "sc2_glitch_cnt", "src_glitch_cnt"];
    read(D::GlitchRate), "glitches of connections a period",
        ["sc_glitch_rate", "sc0_glitch_rate", "sc1_glitch_rate", "sc2_glitch_rate", "src_glitch_rate"];
    read(D::Gpc0Rate), "counts of general counter 0 a period",
        ["sc_gpc0_rate", "sc0_gpc0_rate", "sc1_gpc0_rate", "sc2_gpc0_rate", "src_gpc0_rate"];
    read(D::Gpc1Rate), "counts of general counter 1 a period",
        ["sc_gpc1_rate", "sc0_gpc1_rate", "sc1_gpc1_rate", "sc2_gpc1_rate", "src_gpc1_rate"];
    read(D::HttpErrCnt), "requests that were in error",
        ["sc_http_err_cnt", "sc0_http_err_cnt", "sc1_http_err_cnt", "sc2_http_err_cnt", "src_http_err_cnt"];
    read(D::HttpErrRate), "requests in error a period",
        ["sc_http_err_rate", "sc0_http_err_rate", "sc1_http_err_rate", "sc2_http_err_rate",
         "src_http_err_rate"];
    read(D::HttpFailCnt), "responses of servers that failed",
        ["sc_http_fail_cnt", "sc0_http_fail_cnt", "sc1_http_fail_cnt", "sc2_http_fail_cnt",
         "src_http_fail_cnt"];
    read(D::HttpFailRate), "failures of servers a period",
        ["sc_http_fail_rate", "sc0_http_fail_rate", "sc1_http_fail_rate", "sc2_http_fail_rate",
         "src_http_fail_rate"];
    read(D::HttpReqCnt), "requests so far",
        ["sc_http_req_cnt", "sc0_http_req_cnt", "sc1_http_req_cnt", "sc2_http_req_cnt", "src_http_req_cnt"];
    read(D::HttpReqRate), "requests a period",
        ["sc_http_req_rate", "sc0_http_req_rate", "sc1_http_req_rate", "sc2_http_req_rate",
         "src_http_req_rate"];
    makes(EntryOperation::Increment(0)), "counts in general counter 0, and gives what it is then,",
        ["sc_inc_gpc0", "sc0_inc_gpc0", "sc1_inc_gpc0", "sc2_inc_gpc0", "src_inc_gpc0"];
    makes(EntryOperation::Increment(1)), "counts in general counter 1, and gives what it is then,",
        ["sc_inc_gpc1", "sc0_inc_gpc1", "sc1_inc_gpc1", "sc2_inc_gpc1", "src_inc_gpc1"];
    read(D::SessCnt), "sessions so far",
        ["sc_sess_cnt", "sc0_sess_cnt", "sc1_sess_cnt", "sc2_sess_cnt", "src_sess_cnt"];
    read(D::SessRate), "sessions a period",
        ["sc_sess_rate", "sc0_sess_rate", "sc1_sess_rate", "sc2_sess_rate", "src_sess_rate"];
};

/// Run-time commands have no KiB variants.
pub(super) const KILOBYTES: &[Row] = numbers! { LINK;
    kilo(D::BytesInCnt), "KiB from the client",
        ["sc_kbytes_in", "sc0_kbytes_in", "sc1_kbytes_in", "sc2_kbytes_in", "src_kbytes_in"];
    kilo(D::BytesOutCnt), "KiB to the client",
        ["sc_kbytes_out", "sc0_kbytes_out", "sc1_kbytes_out", "sc2_kbytes_out", "src_kbytes_out"];
};

/// Rows for an array element: `(<index>,<counter>[,<table>])`, `(<index>,<table>)`.
macro_rules! elements {
    ($($query:expr, $help:literal, [$any:literal, $src:literal];)*) => {
        &[$(
            row($any, &[Int, Int, Table], 2, Type::Int, EvalPoints::RUNNING,
                concat!($help, " of the entry that a counter tracks"),
                |args| tracked(counter(args, 1)?, table(args, 2)?, $query(index(args)?))),
            row($src, &[Int, Table], 1, Type::Int, EvalPoints::LINK,
                concat!($help, " of the entry of the client's address"),
                |args| {
                    let (table, query) = (args.table(1)?, $query(index(args)?));
                    Ok(Fetch::Stick(Stick::Source { table, query }))
                }),
        )*]
    };
}

pub(crate) fn index(args: &Args<'_, '_>) -> Result<u32, Error> {
    Ok(args.int_in(0, 0..=MAX_INDEX, 0)? as u32)
}

/// Reads an element of an array.
pub(crate) fn element(data: DataType) -> impl Fn(u32) -> Query {
    move |index| plain(EntryOperation::Read(Datum { data, index }))
}

pub(super) const ELEMENTS: &[Row] = elements! {
    (|index| makes(EntryOperation::ClearElement(index))),
        "makes a general counter zero, and gives what it was,",
        ["sc_clr_gpc", "src_clr_gpc"];
    element(D::Gpc), "a general counter", ["sc_get_gpc", "src_get_gpc"];
    element(D::Gpt), "a general tag", ["sc_get_gpt", "src_get_gpt"];
    element(D::GpcRate), "counts of a general counter a period", ["sc_gpc_rate", "src_gpc_rate"];
    (|index| makes(EntryOperation::IncrementElement(index))),
        "counts in a general counter, and gives what it is then,",
        ["sc_inc_gpc", "src_inc_gpc"];
};

pub(super) const ROWS: &[Row] = &[
    row(
        "sc1_clr_gpc",
        &[Int, Table],
        1,
        Type::Int,
        EvalPoints::RUNNING,
        "makes a general counter of the entry that counter 1 tracks zero, and gives what it was",
        |args| tracked(1, table(args, 1)?, makes(EntryOperation::ClearElement(index(args)?))),
    ),
    row(
        "sc_key",
        &[Int],
        1,
        Type::Any,
        EvalPoints::RUNNING,
        "the key of the entry that a counter tracks",
        |args| Ok(Fetch::Stick(Stick::Key(counter(args, 0)?))),
    ),
    row("sc0_key", &[], 0, Type::Any, EvalPoints::RUNNING, "the key that counter 0 tracks", |_| {
        Ok(Fetch::Stick(Stick::Key(0)))
    }),
    row("sc1_key", &[], 0, Type::Any, EvalPoints::RUNNING, "the key that counter 1 tracks", |_| {
        Ok(Fetch::Stick(Stick::Key(1)))
    }),
    row("sc2_key", &[], 0, Type::Any, EvalPoints::RUNNING, "the key that counter 2 tracks", |_| {
        Ok(Fetch::Stick(Stick::Key(2)))
    }),
    row(
        "sc_tracked",
        &[Int, Table],
        1,
        Type::Bool,
        EvalPoints::RUNNING,
        "whether a counter tracks an entry",
        |args| Ok(Fetch::Stick(Stick::IsTracked { counter: counter(args, 0)?, table: table(args, 1)? })),
    ),
    row(
        "sc0_tracked",
        &[Table],
        0,
        Type::Bool,
        EvalPoints::RUNNING,
        "whether counter 0 tracks an entry",
        |args| Ok(Fetch::Stick(Stick::IsTracked { counter: 0, table: table(args, 0)? })),
    ),
    row(
        "sc1_tracked",
        &[Table],
        0,
        Type::Bool,
        EvalPoints::RUNNING,
        "whether counter 1 tracks an entry",
        |args| Ok(Fetch::Stick(Stick::IsTracked { counter: 1, table: table(args, 0)? })),
    ),
    row(
        "sc2_tracked",
        &[Table],
        0,
        Type::Bool,
        EvalPoints::RUNNING,
        "whether counter 2 tracks an entry",
        |args| Ok(Fetch::Stick(Stick::IsTracked { counter: 2, table: table(args, 0)? })),
    ),
    row(
        "sc_trackers",
        &[Int, Table],
        1,
        Type::Int,
        EvalPoints::RUNNING,
        "connections and requests that are counted in the entry that a counter tracks",
        |args| tracked(counter(args, 0)?, table(args, 1)?, plain(EntryOperation::Trackers)),
    ),
    row(
        "sc0_trackers",
        &[Table],
        0,
        Type::Int,
        EvalPoints::RUNNING,
        "connections and requests that are counted in the entry that counter 0 tracks",
        |args| tracked(0, table(args, 0)?, plain(EntryOperation::Trackers)),
    ),
    row(
        "sc1_trackers",
        &[Table],
        0,
        Type::Int,
        EvalPoints::RUNNING,
        "connections and requests that are counted in the entry that counter 1 tracks",
        |args| tracked(1, table(args, 0)?, plain(EntryOperation::Trackers)),
    ),
    row(
        "sc2_trackers",
        &[Table],
        0,
        Type::Int,
        EvalPoints::RUNNING,
        "connections and requests that are counted in the entry that counter 2 tracks",
        |args| tracked(2, table(args, 0)?, plain(EntryOperation::Trackers)),
    ),
    row(
        "src_updt_conn_cnt",
        &[Table],
        0,
        Type::Int,
        EvalPoints::LINK,
        "counts a connection in the entry of the client's address, and gives their number",
        |args| {
            let query = makes(EntryOperation::CountConnection);
            Ok(Fetch::Stick(Stick::Source { table: args.table(0)?, query }))
        },
    ),
    row("table_avl", &[Table], 0, Type::Int, EvalPoints::RUNNING, "entries that fit into a table", |args| {
        Ok(Fetch::Stick(Stick::Free(args.table(0)?.id)))
    }),
    row("table_cnt", &[Table], 0, Type::Int, EvalPoints::RUNNING, "entries of a table", |args| {
        Ok(Fetch::Stick(Stick::Used(args.table(0)?.id)))
    }),
];

/// Maximum length of a key from `sc_key`, as in tables, in bytes.
const LONGEST_KEY: usize = 1024;

impl Stick {
    pub(super) fn eval<'x>(&self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        let tables = env.tables.ok_or(Absent::Never)?;
        let shown = |query: Query, outcome| match query.shown(outcome) {
            Some(n) => found(Value::Int(n)),
            None => Err(Absent::Never),
        };
        match *self {
            Self::Tracked { counter, table, query } => {
                shown(query, tables.tracked(counter, table, query.ask))
            }
            Self::Source { table, query } => {
                let source = env.client.source.ok_or(Absent::Never)?.ip();
                let key = cast(source.into(), table.key, scratch).ok_or(Absent::Never)?;
                shown(query, tables.keyed(table.id, key, query.ask, query.makes))
            }
            Self::IsTracked { counter, table } => {
                let outcome = tables.tracked(counter, table, EntryOperation::Exists);
                found(Value::Bool(matches!(outcome, Outcome::Number(_))))
            }
            Self::Key(counter) => {
                let mut bytes = [0; LONGEST_KEY];
                let key = tables.key_of(counter, &mut bytes).ok_or(Absent::Never)?;
                let copied = match key {
                    Value::Str(text) => scratch.copy(text).map(Value::Str),
                    Value::Bin(data) => scratch.copy(data).map(Value::Bin),
                    Value::Ipv4(addr) => Some(Value::Ipv4(addr)),
                    Value::Ipv6(addr) => Some(Value::Ipv6(addr)),
                    Value::Int(n) => Some(Value::Int(n)),
                    Value::Bool(_) | Value::Method(_) => None,
                };
                copied.map_or(Err(Absent::Never), found)
            }
            Self::Used(table) => found(Value::Int(tables.entries(table).0.into())),
            Self::Free(table) => found(Value::Int(tables.entries(table).1.into())),
        }
    }
}
