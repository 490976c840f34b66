//! Data about the stream so far, as the aliases of log lines have it.

use super::{Fetch, Row, row};
use crate::args::ArgKind::*;
use crate::env::{Env, Number};
use crate::eval_points::EvalPoints;
use crate::fetch::constant::Unit;
use crate::sample::{Absent, FetchResult, Type, Value, found};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Course {
    BytesIn,
    BytesOut,
    Handshake,
    TotalOfConnection,
    RequestHead,
    Idle,
    Queue,
    WholeRequest,
    ResponseHead,
    ResponseData,
    Connect,
    Active,
    AsUserSeesIt,
    Retries,
    Redispatched,
    Termination,
    RequestCount,
    ProcessConnections,
    ProcessId,
    RequestDate(Unit),
    BackendQueue,
    ServerQueue,
    Reused,
}

/// A row of a fetch without arguments.
macro_rules! plain {
    ($name:literal, $out:ident, $points:ident, $help:expr, $what:ident) => {
        row($name, &[], 0, Type::$out, EvalPoints::$points, $help, |_| Ok(Fetch::Course(Course::$what)))
    };
}

pub(super) const ROWS: &[Row] = &[
    plain!("act_conn", Int, EVERYWHERE, "connections of the process", ProcessConnections),
    plain!("bc.timer.connect", Int, ANSWERED, "milliseconds until the server was connected (%Tc)", Connect),
    plain!("bc_be_queue", Int, ANSWERED, "streams before it in the backend's queue (%bq)", BackendQueue),
    plain!("bc_reused", Bool, ANSWERED, "whether the server's connection served a request before", Reused),
    plain!("bc_srv_queue", Int, ANSWERED, "streams before it in the server's queue (%sq)", ServerQueue),
    plain!("bytes_in", Int, STREAM, "bytes to the server so far (%U)", BytesIn),
    plain!("bytes_out", Int, AT_SERVER, "bytes to the client so far (%B)", BytesOut),
    plain!("fc.timer.handshake", Int, LINK, "milliseconds that handshakes took (%Th)", Handshake),
    plain!("fc.timer.total", Int, CLIENT, "milliseconds since the session began (%Tt)", TotalOfConnection),
    plain!("pid", Int, EVERYWHERE, "the process's number", ProcessId),
    plain!("req.timer.hdr", Int, REQUEST, "milliseconds that the request's head took (%TR)", RequestHead),
    plain!("req.timer.idle", Int, REQUEST, "milliseconds before the request's first byte (%Ti)", Idle),
    plain!("req.timer.queue", Int, ANSWERED, "milliseconds in queues (%Tw)", Queue),
    plain!("req.timer.tq", Int, REQUEST, "handshakes, idle time and the request's head (%Tq)", WholeRequest),
    row(
        "request_date",
        &[Str],
        0,
        Type::Int,
        EvalPoints::STREAM,
        "when the request's first byte came, in seconds, or in 'ms' or 'us', since 1970",
        |args| Ok(Fetch::Course(Course::RequestDate(Unit::of(args, 0)?))),
    ),
    plain!("res.timer.data", Int, AT_SERVER, "milliseconds that data took so far (%Td)", ResponseData),
    plain!("res.timer.hdr", Int, RESPONSE, "milliseconds until the response's head (%Tr)", ResponseHead),
    plain!("txn.conn_retries", Int, ANSWERED, "tries after the first (%rc)", Retries),
    plain!("txn.id32", Int, RUNNING, "the stream's number (%rt)", RequestCount),
    plain!("txn.redispatched", Bool, ANSWERED, "whether a try went to another server", Redispatched),
    plain!(
        "txn.sess_term_state",
        Str,
        RUNNING,
        "how the stream ends, as far as it is known (%ts)",
        Termination
    ),
    plain!("txn.timer.total", Int, STREAM, "milliseconds since the request's first byte (%Ta)", Active),
    plain!("txn.timer.user", Int, STREAM, "milliseconds as the user sees it (%Tu)", AsUserSeesIt),
];

impl Course {
    pub(super) fn eval<'x>(self, env: &Env<'x>) -> FetchResult<'x> {
        let int = |n: i64| found(Value::Int(n));
        match self {
            Self::ProcessConnections => {
                return env.host.number(Number::ProcessConn).map_or(Err(Absent::Never), int);
            }
            Self::ProcessId => return int(std::process::id().into()),
            Self::Reused => {
                return found(Value::Bool(env.server.reused));
            }
            _ => {}
        }
        let log = env.log.ok_or(Absent::Never)?;
        match self {
            Self::BytesIn => int(i64::try_from(log.bytes_uploaded).unwrap_or(i64::MAX)),
            Self::BytesOut => int(i64::try_from(log.bytes_read).unwrap_or(i64::MAX)),
            Self::Handshake => int(log.handshake),
            Self::TotalOfConnection => int(log.total),
            Self::RequestHead => int(log.request),
            Self::Idle => int(log.idle),
            Self::Queue => int(log.queue),
            Self::WholeRequest if log.request < 0 => int(-1),
            Self::WholeRequest => int(log.handshake + log.idle + log.request),
            Self::ResponseHead => int(log.response),
            Self::ResponseData => int(log.data),
            Self::Connect => int(log.connect),
            Self::Active => int(log.active),
            Self::AsUserSeesIt => int(log.user),
            Self::Retries => int(log.retries),
            Self::Redispatched => found(Value::Bool(log.redispatched)),
            Self::Termination => found(Value::Str(&log.termination[..2])),
            Self::RequestCount => int(i64::from(log.request_number())),
            Self::RequestDate(unit) => int(unit.of_date(log.request_date)),
            Self::BackendQueue => int(log.backend_queue),
            Self::ServerQueue => int(log.server_queue),
            Self::ProcessConnections | Self::ProcessId | Self::Reused => Err(Absent::Never),
        }
    }

    /// True if only the record of the stream has the value.
    pub(super) fn reads_stream_record(self) -> bool {
        !matches!(self, Self::ProcessConnections | Self::ProcessId | Self::Reused)
    }
}
