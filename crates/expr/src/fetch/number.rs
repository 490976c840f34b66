//! Numbers of proxies and servers, which [`Host`](crate::Host) supplies. Names are resolved at compilation.

use super::{Fetch, Row, row};
use crate::args::{ArgKind::*, Args};
use crate::env::Number;
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::names::ProxySide::{Back as BackSide, Front as FrontSide};
use crate::sample::{Type, Value};

/// The number to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadNumber(pub(super) Number);

impl ReadNumber {
    pub(super) fn value(self, n: i64) -> Value<'static> {
        match self.0 {
            Number::SrvIsUp(_) | Number::Stopping => Value::Bool(n != 0),
            _ => Value::Int(n),
        }
    }
}

fn number(number: Number) -> Result<Fetch, Error> {
    Ok(Fetch::Number(ReadNumber(number)))
}

const fn back(
    name: &'static str,
    help: &'static str,
    make: fn(&mut Args<'_, '_>) -> Result<Fetch, Error>,
) -> Row {
    row(name, &[Back], 0, Type::Int, EvalPoints::RUNNING, help, make)
}

const fn front(
    name: &'static str,
    help: &'static str,
    make: fn(&mut Args<'_, '_>) -> Result<Fetch, Error>,
) -> Row {
    row(name, &[Front], 0, Type::Int, EvalPoints::RUNNING, help, make)
}

const fn server(
    name: &'static str,
    help: &'static str,
    make: fn(&mut Args<'_, '_>) -> Result<Fetch, Error>,
) -> Row {
    row(name, &[Server], 1, Type::Int, EvalPoints::RUNNING, help, make)
}

pub(super) const ROWS: &[Row] = &[
    back("avg_queue", "waiting connections of the backend for each of its usable servers", |args| {
        number(Number::AvgQueue(args.proxy(0, BackSide)?))
    }),
    back("be_conn", "connections that the backend has now", |args| {
        number(Number::BackConn(args.proxy(0, BackSide)?))
    }),
    back("be_conn_free", "connections that the backend's servers would still take", |args| {
        number(Number::BackConnFree(args.proxy(0, BackSide)?))
    }),
    back("be_sess_rate", "sessions that reached the backend in the last second", |args| {
        number(Number::BackSessRate(args.proxy(0, BackSide)?))
    }),
    back("connslots", "free connections and free queue slots of the backend's servers", |args| {
        number(Number::ConnSlots(args.proxy(0, BackSide)?))
    }),
    front("fe_conn", "connections that the frontend has now", |args| {
        number(Number::FrontConn(args.proxy(0, FrontSide)?))
    }),
    front("fe_req_rate", "requests that the frontend received in the last second", |args| {
        number(Number::FrontReqRate(args.proxy(0, FrontSide)?))
    }),
    front("fe_sess_rate", "sessions that the frontend accepted in the last second", |args| {
        number(Number::FrontSessRate(args.proxy(0, FrontSide)?))
    }),
    back("nbsrv", "usable servers of the backend", |args| number(Number::NbSrv(args.proxy(0, BackSide)?))),
    back("queue", "connections that wait in the backend and its servers", |args| {
        number(Number::Queue(args.proxy(0, BackSide)?))
    }),
    server("srv_conn", "connections that the server has now", |args| {
        number(Number::SrvConn(args.server(0)?))
    }),
    server("srv_conn_free", "connections that the server would still take", |args| {
        number(Number::SrvConnFree(args.server(0)?))
    }),
    row("srv_is_up", &[Server], 1, Type::Bool, EvalPoints::RUNNING, "whether the server is up", |args| {
        number(Number::SrvIsUp(args.server(0)?))
    }),
    server("srv_iweight", "the server's weight in the file", |args| {
        number(Number::SrvIweight(args.server(0)?))
    }),
    server("srv_queue", "connections that wait for the server", |args| {
        number(Number::SrvQueue(args.server(0)?))
    }),
    server("srv_sess_rate", "sessions that reached the server in the last second", |args| {
        number(Number::SrvSessRate(args.server(0)?))
    }),
    server("srv_uweight", "the server's weight as it was set", |args| {
        number(Number::SrvUweight(args.server(0)?))
    }),
    server("srv_weight", "the server's weight as it works now", |args| {
        number(Number::SrvWeight(args.server(0)?))
    }),
    row("stopping", &[], 0, Type::Bool, EvalPoints::RUNNING, "whether the process ends", |_| {
        number(Number::Stopping)
    }),
    row("uptime", &[], 0, Type::Int, EvalPoints::EVERYWHERE, "seconds since the process began", |_| {
        number(Number::Uptime)
    }),
    row("thread", &[], 0, Type::Int, EvalPoints::EVERYWHERE, "the lane's number, from 0", |_| {
        number(Number::Thread)
    }),
];
