//! `acl`: evaluates named ACLs.

use super::{Fetch, Row, row};
use crate::acl::{Acl, Truth};
use crate::args::{ArgKind::*, Args, MAX_ARGS};
use crate::env::Env;
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::needs::{Needs, OfVariable};
use crate::sample::{Sample, Type, Value};
use crate::scratch::Scratch;
use manylane_sync::Arc;

/// A conjunction of ACLs, each optionally negated.
#[derive(Debug)]
pub(crate) struct AllOf(Box<[(Arc<Acl>, bool)]>);

/// Maximum nesting depth of ACLs. Each level is a recursive call.
pub(crate) const MAX_DEPTH: usize = 16;

fn all_of(args: &mut Args<'_, '_>) -> Result<Fetch, Error> {
    let mut acls = Vec::new();
    for index in 0..MAX_ARGS {
        let Some(word) = args.bytes(index).map(<[u8]>::to_vec) else { break };
        let (name, negated) = word.strip_prefix(b"!").map_or((&word[..], false), |name| (name, true));
        let acl = args.compiler.acl(name).map_err(|error| args.error(index, error.message))?;
        acls.push((acl, negated));
    }
    let all = AllOf(acls.into());
    if all.depth() > MAX_DEPTH {
        return Err(args.error(0, format!("ACLs can be nested at most {MAX_DEPTH} deep, found more")));
    }
    Ok(Fetch::Acl(all))
}

pub(super) const ROWS: &[Row] = &[row(
    "acl",
    &[Str; MAX_ARGS],
    1,
    Type::Bool,
    EvalPoints::EVERYWHERE,
    "whether all of these ACLs hold, or do not where a '!' stands before the name",
    all_of,
)];

impl AllOf {
    pub(super) fn depth(&self) -> usize {
        1 + self.0.iter().map(|(acl, _)| acl.depth()).max().unwrap_or(0)
    }

    pub(super) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        self.0.iter().map(|(acl, _)| acl.needs(variables)).collect()
    }

    pub(super) fn eval(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> Sample<'static> {
        let mut least = Truth::Pass;
        for (acl, negated) in &self.0 {
            let truth = acl.eval(env, scratch);
            least = least.min(if *negated { truth.negated() } else { truth });
            if least == Truth::Fail {
                break;
            }
        }
        Sample { value: Value::Bool(least == Truth::Pass), may_change: least == Truth::Wait }
    }
}
