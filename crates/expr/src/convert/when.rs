//! `when`: passes the sample on if a condition holds.

use super::{Convert, Row, row};
use crate::acl::{Acl, Truth};
use crate::args::{ArgKind::*, Args};
use crate::env::{Env, Number};
use crate::error::Error;
use crate::fetch::MAX_DEPTH;
use crate::needs::{Needs, OfVariable};
use crate::sample::Type;
use crate::scratch::Scratch;
use manylane_sync::Arc;

#[derive(Debug)]
pub(crate) struct Conditional {
    condition: Condition,
    negated: bool,
}

#[derive(Debug)]
enum Condition {
    Acl(Arc<Acl>),
    /// The stream has failed, by the rule of `option dontlog-normal`.
    Error,
    Normal,
    /// The request was sent to a server.
    Forwarded,
    /// A service of the program responds to the request.
    ToService,
    /// Either of the two above.
    Processed,
    Stopping,
}

fn when(args: &mut Args<'_, '_>) -> Result<Convert, Error> {
    let word = args.boxed(0);
    let (name, negated) = word.strip_prefix(b"!").map_or((&word[..], false), |name| (name, true));
    let condition = match name {
        b"acl" => {
            let name = args.boxed(1);
            let acl = args.compiler.acl(&name).map_err(|error| args.error(1, error.message))?;
            if acl.depth() >= MAX_DEPTH {
                let why = format!("ACLs can be nested at most {MAX_DEPTH} deep, found more");
                return Err(args.error(1, why));
            }
            Condition::Acl(acl)
        }
        b"error" => Condition::Error,
        b"normal" => Condition::Normal,
        b"forwarded" => Condition::Forwarded,
        b"toapplet" => Condition::ToService,
        b"processed" => Condition::Processed,
        b"stopping" => Condition::Stopping,
        _ => {
            let what = "acl, error, forwarded, normal, processed, stopping or toapplet";
            return Err(args.expected(0, what));
        }
    };
    args.compiler.reads_stream_record |= !matches!(condition, Condition::Acl(_) | Condition::Stopping);
    Ok(Convert::When(Conditional { condition, negated }))
}

pub(super) const ROWS: &[Row] = &[row(
    "when",
    &[Str, Str],
    1,
    Type::Any,
    Type::Same,
    "the input, if an ACL holds (acl,NAME), or the stream or process is in this state: error, forwarded, \
        normal, processed, stopping, toapplet; else nothing; '!' before the name negates it",
    when,
)];

impl Conditional {
    pub(super) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match &self.condition {
            Condition::Acl(acl) => acl.needs(variables),
            Condition::Stopping => Needs::STATE,
            _ => Needs::SERVER,
        }
    }

    /// Nesting depth of ACLs.
    pub(super) fn depth(&self) -> usize {
        match &self.condition {
            Condition::Acl(acl) => 1 + acl.depth(),
            _ => 0,
        }
    }

    pub(super) fn holds(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> bool {
        let log = env.log;
        let failed = log.is_some_and(|log| log.is_failure());
        let forwarded = env.server.server.is_some() && log.is_some_and(|log| log.is_forwarded());
        let of_service = log.is_some_and(|log| log.is_of_service());
        let truth = match &self.condition {
            Condition::Acl(acl) => acl.eval(env, &mut scratch.reborrow()) == Truth::Pass,
            Condition::Error => failed,
            Condition::Normal => !failed,
            Condition::Forwarded => forwarded,
            Condition::ToService => of_service,
            Condition::Processed => forwarded || of_service,
            Condition::Stopping => env.host.number(Number::Stopping) == Some(1),
        };
        truth != self.negated
    }
}
