//! Choice, variables, look-ups by name, debugging.

use super::{Convert, Row, row};
use crate::args::ArgKind::*;
use crate::args::Args;
use crate::env::{Env, Number};
use crate::error::{Error, none_of};
use crate::eval_points::Direction;
use crate::sample::{Type, Value};
use crate::scratch::Scratch;
use crate::variable::{Scope, VariableId};

#[derive(Debug)]
pub(crate) enum Misc {
    Capture(Direction, Option<usize>),
    If { yes: Box<[u8]>, no: Box<[u8]> },
    SetVar { id: VariableId, when: SetConditions },
    UnsetVar(VariableId),
    NbSrv,
    SrvQueue,
    SrvIsUp,
    VerifyError,
    Debug { prefix: Box<[u8]>, sink: Box<[u8]> },
}

/// Conditions for setting a variable, one bit each. All must be true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetConditions(u8);

const CONDITIONS: [(&str, u8); 8] = [
    ("ifexists", 1),
    ("ifnotexists", 2),
    ("ifempty", 4),
    ("ifnotempty", 8),
    ("ifset", 16),
    ("ifnotset", 32),
    ("ifgt", 64),
    ("iflt", 128),
];

impl SetConditions {
    /// No condition.
    pub const ALWAYS: Self = Self(0);

    /// Adds a condition by name. An error is a sentence.
    pub fn with(self, name: &[u8]) -> Result<Self, String> {
        match CONDITIONS.iter().find(|(known, _)| known.as_bytes() == name) {
            Some((_, bit)) => Ok(Self(self.0 | bit)),
            None => Err(none_of("set-var", CONDITIONS.iter().map(|(known, _)| *known), name)),
        }
    }

    /// True if the variable is to be set; `old` is its value and `new` the next one. Variables of the process
    /// always exist, possibly without a value. `ifgt` and `iflt` only apply to numbers and are true for other
    /// values.
    pub fn holds(self, id: VariableId, old: Option<Value<'_>>, new: Value<'_>) -> bool {
        let exists = old.is_some() || id.scope == Scope::Process;
        let empty = new.bytes().is_some_and(<[u8]>::is_empty);
        let numbers = match (old, new) {
            (Some(Value::Int(old)), Value::Int(new)) => Some(old.cmp(&new)),
            _ => None,
        };
        let has = |bit: u8| self.0 & bit != 0;
        (!has(1) || exists)
            && (!has(2) || !exists)
            && (!has(16) || old.is_some())
            && (!has(32) || old.is_none())
            && (!has(4) || empty)
            && (!has(8) || !empty)
            && (!has(64) || numbers.is_none_or(std::cmp::Ordering::is_gt))
            && (!has(128) || numbers.is_none_or(std::cmp::Ordering::is_lt))
    }
}

/// The number of a slot. A negative one is accepted, and is that of no slot, as in HAProxy.
fn capture(direction: Direction, args: &mut Args<'_, '_>) -> Result<Convert, Error> {
    Ok(Convert::Misc(Misc::Capture(direction, usize::try_from(args.int(0)?.unwrap_or(-1)).ok())))
}

pub(super) const ROWS: &[Row] = &[
    row(
        "capture-req",
        &[Int],
        1,
        Type::Str,
        Type::Str,
        "the input, whose beginning this capture slot for requests keeps; nothing if there is no such slot",
        |a| capture(Direction::Request, a),
    ),
    row(
        "capture-res",
        &[Int],
        1,
        Type::Str,
        Type::Str,
        "the input, whose beginning this capture slot for responses keeps; nothing if there is no such slot",
        |a| capture(Direction::Response, a),
    ),
    row(
        "debug",
        &[Str, Str],
        0,
        Type::Any,
        Type::Same,
        "the input, which is also written to a sink of events",
        |a| Ok(Convert::Misc(Misc::Debug { prefix: a.boxed(0), sink: a.boxed(1) })),
    ),
    row(
        "iif",
        &[Str, Str],
        2,
        Type::Bool,
        Type::Str,
        "the first text when it is true, else the second",
        |a| Ok(Convert::Misc(Misc::If { yes: a.boxed(0), no: a.boxed(1) })),
    ),
    row("nbsrv", &[], 0, Type::Str, Type::Int, "usable servers of the backend of that name", |_| {
        Ok(Convert::Misc(Misc::NbSrv))
    }),
    row(
        "set-var",
        &[Variable, Str, Str, Str, Str],
        1,
        Type::Any,
        Type::Same,
        "the input, which a variable keeps too; nothing if there are conditions that do not hold",
        |a| {
            let id = a.variable(0)?;
            let mut when = SetConditions::ALWAYS;
            for index in 1..5 {
                if let Some(name) = a.given(index) {
                    when = when.with(name).map_err(|why| a.error(index, why))?;
                }
            }
            Ok(Convert::Misc(Misc::SetVar { id, when }))
        },
    ),
    row(
        "srv_is_up",
        &[],
        0,
        Type::Str,
        Type::Bool,
        "whether the server of that name is up, as backend/server, or a server of the backend here",
        |_| Ok(Convert::Misc(Misc::SrvIsUp)),
    ),
    row(
        "srv_queue",
        &[],
        0,
        Type::Str,
        Type::Int,
        "connections that wait for the server of that name, as backend/server",
        |_| Ok(Convert::Misc(Misc::SrvQueue)),
    ),
    row("unset-var", &[Variable], 1, Type::Any, Type::Same, "the input; removes the variable", |a| {
        Ok(Convert::Misc(Misc::UnsetVar(a.variable(0)?)))
    }),
    row(
        "x509_v_err_str",
        &[],
        0,
        Type::Int,
        Type::Str,
        "OpenSSL's name of that result of verification, or the number if there is none",
        |_| Ok(Convert::Misc(Misc::VerifyError)),
    ),
];

impl Misc {
    pub(super) fn apply<'x>(
        &'x self,
        value: Value<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Value<'x>> {
        match self {
            Self::Capture(direction, slot) => {
                env.stream.captures?.store(*direction, (*slot)?, value.bytes()?).then_some(value)
            }
            Self::If { yes, no } => Some(Value::Str(if value == Value::Bool(true) { yes } else { no })),
            Self::SetVar { id, when } => {
                if *when != SetConditions::ALWAYS {
                    let mut scratch = scratch.reborrow();
                    if !when.holds(*id, env.variables.get(*id, env.reader, &mut scratch), value) {
                        return None; // as in HAProxy
                    }
                }
                env.variables.set(*id, Some(value));
                env.variables.has(id.scope).then_some(value)
            }
            Self::UnsetVar(id) => {
                env.variables.set(*id, None);
                env.variables.has(id.scope).then_some(value)
            }
            Self::NbSrv => {
                let backend = env.host.backend(value.bytes()?)?;
                env.host.number(Number::NbSrv(backend)).map(Value::Int)
            }
            Self::SrvQueue => {
                let text = value.bytes()?;
                let slash = memchr::memchr(b'/', text)?;
                let backend = env.host.backend(&text[..slash])?;
                let server = env.host.server(backend, &text[slash + 1..])?;
                env.host.number(Number::SrvQueue(server)).map(Value::Int)
            }
            Self::SrvIsUp => {
                let text = value.bytes()?;
                let (backend, server) = match memchr::memchr(b'/', text) {
                    Some(slash) => (&text[..slash], &text[slash + 1..]),
                    None => (env.server.backend.unwrap_or(env.client.frontend).name, text),
                };
                let server = env.host.server(env.host.backend(backend)?, server)?;
                env.host.number(Number::SrvIsUp(server)).map(|up| Value::Bool(up != 0))
            }
            Self::VerifyError => {
                let Value::Int(code) = value else { return None };
                let text = match (code, env.host.verify_error(code)) {
                    (0, _) => return Some(Value::Str(b"X509_V_OK")),
                    (_, Some(name)) => scratch.print(format_args!("X509_V_ERR_{name}")),
                    (code, None) => scratch.print(format_args!("{code}")),
                };
                text.map(Value::Str)
            }
            Self::Debug { prefix, sink } => {
                env.host.debug(prefix, sink, Some(value));
                Some(value)
            }
        }
    }
}
