//! Sample expressions: a fetch and its converters, compiled to steps.

use crate::args::{self, Args};
use crate::cast::{cast, is_castable};
use crate::convert::{self, Convert};
use crate::env::Env;
use crate::error::{Error, FETCHES, found_at, unknown};
use crate::eval_points::EvalPoints;
use crate::fetch::{self, Fetch};
use crate::names::{Compiler, SampleSource};
use crate::needs::{Needs, OfVariable};
use crate::sample::{Absent, FetchResult, Sample, Type, Value};
use crate::scratch::Scratch;
use crate::show::Shown;
use std::ops::ControlFlow;

/// Maximum number of converters in an expression. It bounds the work of one word.
pub const MAX_CONVERTERS: usize = 64;

/// A compiled sample expression, such as `req.hdr(host),lower,map(hosts.map)`.
#[derive(Debug)]
pub struct Expression {
    fetch: Fetch,
    steps: Vec<Step>,
    gives: Type,
    points: EvalPoints,
}

#[derive(Debug)]
struct Step {
    takes: Type,
    convert: Convert,
}

/// An expression and the offset of its end in the text.
pub(crate) struct Parsed {
    pub(crate) expression: Expression,
    pub(crate) end: usize,
}

impl Expression {
    /// Compiles a word that is an expression as a whole. The fetch must have a value at `points`.
    pub fn compile(text: &[u8], points: EvalPoints, compiler: &mut Compiler<'_>) -> Result<Self, Error> {
        let parsed = Self::parse(text, 0, compiler)?;
        if parsed.end < text.len() {
            return Err(Error::new(
                parsed.end,
                format!("an expression expects ',' and a converter, found '{}'", Shown(&text[parsed.end..])),
            ));
        }
        parsed.expression.check_points(0, points)?;
        Ok(parsed.expression)
    }

    /// Compiles the expression at `start`, up to where it ends. Does not check the evaluation point.
    pub(crate) fn parse(text: &[u8], start: usize, compiler: &mut Compiler<'_>) -> Result<Parsed, Error> {
        let (name, at) = keyword(text, start);
        if name.is_empty() {
            return Err(Error::new(
                start,
                format!("an expression expects the name of a fetch, found {}", found_at(text, start)),
            ));
        }
        let Some(row) = fetch::find(name) else {
            let known = fetch::table().iter().filter(|row| row.refused().is_none()).map(|row| row.name);
            return Err(Error::new(start, unknown("fetch method", name, known, FETCHES)));
        };
        let make = match row.make {
            fetch::Make::Built(make) => make,
            fetch::Make::Refused(reason) => return Err(refused(start, "fetch", row.name, reason)),
        };
        let tail = args::tail(text, at)?;
        let mut end = tail.next;
        let mut args = Args::new(row.name, tail, row.args, row.required, compiler)?;
        let fetch = make(&mut args)?;
        if let Some(reason) = (compiler.missing)(row.name, fetch.source()) {
            return Err(refused(start, "fetch", row.name, reason));
        }
        compiler.reads_data |= fetch.reads_data();
        compiler.reads_connections |= fetch.reads_link();
        compiler.reads_stream_record |= fetch.reads_stream_record();
        let mut expression = Self { fetch, steps: Vec::new(), gives: row.out, points: row.points };
        while text.get(end) == Some(&b',') {
            let start = end + 1;
            let (name, at) = keyword(text, start);
            let Some(row) = convert::find(name) else {
                let known = convert::table().iter().filter(|row| row.refused().is_none()).map(|row| row.name);
                return Err(Error::new(start, unknown("converter", name, known, "'lower' or 'field(1,:)'")));
            };
            let make = match row.make {
                convert::Make::Built(make) => make,
                convert::Make::Refused(reason) => return Err(refused(start, "converter", row.name, reason)),
            };
            if !is_castable(expression.gives, row.takes) {
                return Err(Error::new(
                    start,
                    format!(
                        "converter '{}' expects a sample of type {}, found one of type {}",
                        row.name, row.takes, expression.gives
                    ),
                ));
            }
            if expression.steps.len() >= MAX_CONVERTERS {
                return Err(Error::new(
                    start,
                    format!("an expression expects {MAX_CONVERTERS} converters at most, found more"),
                ));
            }
            let tail = args::tail(text, at)?;
            end = tail.next;
            let mut args = Args::new(row.name, tail, row.args, row.required, compiler)?;
            let convert = make(&mut args)?;
            if let Some(reason) = (compiler.missing)(row.name, SampleSource::Converter) {
                return Err(refused(start, "converter", row.name, reason));
            }
            expression.steps.push(Step { takes: row.takes, convert });
            if row.gives != Type::Same {
                expression.gives = row.gives;
            }
        }
        Ok(Parsed { expression, end })
    }

    /// An error if the fetch has no value at `points`.
    pub(crate) fn check_points(&self, at: usize, points: EvalPoints) -> Result<(), Error> {
        if self.points.meets(points) {
            return Ok(());
        }
        Err(Error::new(
            at,
            format!(
                "this sample has no value in {}; it has one in {}",
                points.some_names(),
                self.points.some_names()
            ),
        ))
    }

    /// Type of the result.
    pub fn gives(&self) -> Type {
        self.gives
    }

    /// Points at which the fetch has a value.
    pub fn points(&self) -> EvalPoints {
        self.points
    }

    /// True if the expression has a converter.
    pub(crate) fn is_converted(&self) -> bool {
        !self.steps.is_empty()
    }

    /// True if the value is the client's address ([`ClientInfo::source`](crate::ClientInfo::source)), so
    /// that callers who have it need no environment.
    pub fn is_client_address(&self) -> bool {
        self.fetch.is_client_address() && self.steps.is_empty()
    }

    /// Evaluates the sample. If a field or parameter has several values, the fetch selects one, mostly the
    /// last.
    ///
    /// Cost: no allocation. Converters write to the scratch; a chain that needs more than
    /// [`crate::SCRATCH_BYTES`] has no result.
    pub fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        let sample = self.fetch.eval(env, scratch)?;
        self.convert(sample, env, scratch).ok_or(Absent::Never)
    }

    /// Evaluates the sample and casts it to `to`.
    pub fn eval_as<'x>(
        &'x self,
        to: Type,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Result<Value<'x>, Absent> {
        let value = self.eval(env, scratch)?.value;
        cast(value, to, scratch).ok_or(Absent::Never)
    }

    /// Evaluates the sample to its bytes if it is binary, or to its text otherwise.
    pub(crate) fn eval_bytes<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
        match self.eval(env, scratch).ok()?.value {
            Value::Bin(bytes) => Some(bytes),
            value => cast(value, Type::Str, scratch)?.bytes(),
        }
    }

    /// Evaluates the sample to text. Binary samples end at the first NUL byte.
    pub fn eval_text<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
        self.eval_as(Type::Str, env, scratch).ok()?.bytes()
    }

    /// Evaluates the sample to a number.
    pub fn eval_int(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> Option<i64> {
        let mut scratch = scratch.reborrow();
        match self.eval_as(Type::Int, env, &mut scratch).ok()? {
            Value::Int(n) => Some(n),
            _ => None,
        }
    }

    /// The inputs of the fetch and of its converters.
    pub fn needs(&self, variables: OfVariable<'_>) -> Needs {
        let steps = self.steps.iter().map(|step| step.convert.needs(variables));
        self.fetch.needs(variables) | steps.collect()
    }

    /// Nesting depth of ACLs, by the fetch `acl` and the converter `when`.
    pub(crate) fn acl_depth(&self) -> usize {
        let steps = self.steps.iter().map(|step| step.convert.acl_depth());
        steps.max().unwrap_or(0).max(self.fetch.acl_depth())
    }

    /// The user list whose groups the fetch returns.
    pub(crate) fn groups_of(&self) -> Option<crate::names::UserlistId> {
        self.fetch.groups_of()
    }

    /// Passes each value to `visit` until it breaks.
    pub(crate) fn each(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        mut visit: impl FnMut(Sample<'_>, &mut Scratch<'_>) -> ControlFlow<()>,
    ) -> Result<(), Absent> {
        let mut any = false;
        self.fetch.each(env, scratch, &mut |sample, scratch| {
            let mut scratch = scratch.reborrow();
            match self.convert(sample, env, &mut scratch) {
                Some(sample) => {
                    any = true;
                    visit(sample, &mut scratch)
                }
                None => ControlFlow::Continue(()),
            }
        })?;
        if any { Ok(()) } else { Err(Absent::Never) }
    }

    fn convert<'x>(
        &'x self,
        sample: Sample<'x>,
        env: &Env<'x>,
        scratch: &mut Scratch<'x>,
    ) -> Option<Sample<'x>> {
        let mut value = sample.value;
        for step in &self.steps {
            value = cast(value, step.takes, scratch)?;
            value = step.convert.apply(value, env, scratch)?;
        }
        Some(Sample { value, may_change: sample.may_change })
    }
}

/// The keyword at `start`, and the offset of its end.
pub(crate) fn keyword(text: &[u8], start: usize) -> (&[u8], usize) {
    let rest = text.get(start..).unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.+:".contains(byte);
    let len = rest.iter().position(|byte| !is_name(byte)).unwrap_or(rest.len());
    (&rest[..len], start + len)
}

pub(crate) fn refused(at: usize, what: &str, name: &str, reason: &str) -> Error {
    Error::new(at, format!("'{name}' is a {what} of HAProxy that this program refuses: {reason}"))
}
