//! Entries of stick tables with the sample as the key.

use super::{Convert, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::cast::cast;
use crate::env::Env;
use crate::error::Error;
use crate::fetch::{Query, element, index, kilo, makes, plain, read};
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::table::{DataType as D, EntryOperation, NamedTable, Outcome};

#[derive(Debug)]
pub(crate) struct InTable {
    table: NamedTable,
    query: Query,
    shows: Shows,
}

/// The result of the converter.
#[derive(Clone, Copy, Debug)]
enum Shows {
    /// The number; 0 if there is no entry.
    Number,
    /// True if there is an entry.
    Exists,
    /// The number; the default if there is no entry, or no sample without a default.
    Or(Option<i64>),
}

fn made(args: &Args<'_, '_>, at: usize, query: Query, shows: Shows) -> Result<Convert, Error> {
    Ok(Convert::Stick(InTable { table: args.table(at)?, query, shows }))
}

macro_rules! numbers {
    ($($name:literal, $query:expr, $help:literal;)*) => {
        &[$(
            row($name, &[Table], 0, Type::Any, Type::Int, concat!($help, " of the entry with the key"),
                |args| made(args, 0, $query, Shows::Number)),
        )*]
    };
}

pub(super) const NUMBERS: &[Row] = numbers! {
    "table_bytes_in_rate", read(D::BytesInRate), "bytes from clients a period";
    "table_bytes_out_rate", read(D::BytesOutRate), "bytes to clients a period";
    "table_clr_gpc0", makes(EntryOperation::Clear(0)), "makes general counter 0 zero, and gives what it was,";
    "table_clr_gpc1", makes(EntryOperation::Clear(1)), "makes general counter 1 zero, and gives what it was,";
    "table_conn_cnt", read(D::ConnCnt), "connections so far";
    "table_conn_cur", read(D::ConnCur), "connections now";
    "table_conn_rate", read(D::ConnRate), "connections a period";
    "table_glitch_cnt", read(D::GlitchCnt), "glitches of connections";
    "table_glitch_rate", read(D::GlitchRate), "glitches of connections a period";
    "table_gpc0", read(D::Gpc0), "general counter 0";
    "table_gpc0_rate", read(D::Gpc0Rate), "counts of general counter 0 a period";
    "table_gpc1", read(D::Gpc1), "general counter 1";
    "table_gpc1_rate", read(D::Gpc1Rate), "counts of general counter 1 a period";
    "table_gpt0", read(D::Gpt0), "general tag 0";
    "table_http_err_cnt", read(D::HttpErrCnt), "requests that were in error";
    "table_http_err_rate", read(D::HttpErrRate), "requests in error a period";
    "table_http_fail_cnt", read(D::HttpFailCnt), "responses of servers that failed";
    "table_http_fail_rate", read(D::HttpFailRate), "failures of servers a period";
    "table_http_req_cnt", read(D::HttpReqCnt), "requests so far";
    "table_http_req_rate", read(D::HttpReqRate), "requests a period";
    "table_inc_gpc0", makes(EntryOperation::Increment(0)),
        "counts in general counter 0, and gives what it is then,";
    "table_inc_gpc1", makes(EntryOperation::Increment(1)),
        "counts in general counter 1, and gives what it is then,";
    "table_kbytes_in", kilo(D::BytesInCnt), "KiB from clients";
    "table_kbytes_out", kilo(D::BytesOutCnt), "KiB to clients";
    "table_server_id", read(D::ServerId), "the id of the server";
    "table_sess_cnt", read(D::SessCnt), "sessions so far";
    "table_sess_rate", read(D::SessRate), "sessions a period";
    "table_trackers", plain(EntryOperation::Trackers), "connections and requests that are counted in it,";
};

pub(super) const ROWS: &[Row] = &[
    row(
        "in_table",
        &[Table],
        0,
        Type::Any,
        Type::Bool,
        "whether the table has an entry with the key",
        |args| made(args, 0, plain(EntryOperation::Exists), Shows::Exists),
    ),
    row(
        "table_clr_gpc",
        &[Int, Table],
        1,
        Type::Any,
        Type::Int,
        "makes a general counter of the entry with the key zero, and gives what it was",
        |args| made(args, 1, makes(EntryOperation::ClearElement(index(args)?)), Shows::Number),
    ),
    row(
        "table_expire",
        &[Table, Int],
        1,
        Type::Any,
        Type::Int,
        "milliseconds until the entry with the key expires",
        |args| made(args, 0, plain(EntryOperation::Expire), Shows::Or(args.int(1)?)),
    ),
    row("table_gpc", &[Int, Table], 1, Type::Any, Type::Int, "a general counter of the entry", |args| {
        made(args, 1, element(D::Gpc)(index(args)?), Shows::Number)
    }),
    row(
        "table_gpc_rate",
        &[Int, Table],
        1,
        Type::Any,
        Type::Int,
        "counts of a general counter of the entry with the key a period",
        |args| made(args, 1, element(D::GpcRate)(index(args)?), Shows::Number),
    ),
    row("table_gpt", &[Int, Table], 1, Type::Any, Type::Int, "a general tag of the entry", |args| {
        made(args, 1, element(D::Gpt)(index(args)?), Shows::Number)
    }),
    row(
        "table_idle",
        &[Table, Int],
        1,
        Type::Any,
        Type::Int,
        "milliseconds since the entry with the key was used",
        |args| made(args, 0, plain(EntryOperation::Idle), Shows::Or(args.int(1)?)),
    ),
    row(
        "table_inc_gpc",
        &[Int, Table],
        1,
        Type::Any,
        Type::Int,
        "counts in a general counter of the entry with the key, and gives what it is then",
        |args| made(args, 1, makes(EntryOperation::IncrementElement(index(args)?)), Shows::Number),
    ),
];

impl InTable {
    pub(super) fn apply<'x>(
        &self,
        value: Value<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        let tables = env.tables?;
        let key = cast(value, self.table.key, scratch)?;
        let outcome = tables.keyed(self.table.id, key, self.query.ask, self.query.makes);
        match (self.shows, outcome) {
            (Shows::Exists, found) => Some(Value::Bool(matches!(found, Outcome::Number(_)))),
            (Shows::Or(default), Outcome::NoEntry) => default.map(Value::Int),
            (_, found) => self.query.shown(found).map(Value::Int),
        }
    }
}
