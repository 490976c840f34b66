//! ACLs and conditions.
//!
//! An ACL is a list of tests, and passes if any of them does. A condition is a disjunction of conjunctions of
//! ACLs. Both evaluate to a [`Truth`]. [`Truth::Wait`] means that more bytes may change the result, so
//! content rules wait.

use crate::cast::{cast, is_castable, parse_whole};
use crate::env::Env;
use crate::error::{Error, FETCHES, none_of, unknown};
use crate::eval_points::EvalPoints;
use crate::fetch;
use crate::names::Compiler;
use crate::needs::{Needs, OfVariable};
use crate::pattern::{MatchKind, Range, Reference, View, regex_fault};
use crate::program::{Expression, keyword};
use crate::sample::{Absent, Type};
use crate::scratch::Scratch;
use crate::show::Shown;
use manylane_sync::Arc;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Result of an ACL or a condition. The variants are ordered: a disjunction is the maximum of its parts, a
/// conjunction the minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Truth {
    /// It is false.
    Fail,
    /// It is unknown until more data arrives.
    Wait,
    /// It is true.
    Pass,
}

impl Truth {
    /// The negation; [`Truth::Wait`] stays.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Fail => Self::Pass,
            Self::Wait => Self::Wait,
            Self::Pass => Self::Fail,
        }
    }
}

/// ACL-only criteria: name, fetch, kind of matching.
const DERIVED: &[(&str, &str, MatchKind)] = &[
    ("base", "base", MatchKind::Str),
    ("cook", "req.cook", MatchKind::Str),
    ("hdr", "req.hdr", MatchKind::Str),
    ("http_auth_group", "http_auth_groups", MatchKind::Str),
    ("path", "path", MatchKind::Str),
    ("payload", "req.payload", MatchKind::Bin),
    ("payload_lv", "req.payload_lv", MatchKind::Bin),
    ("req.ssl_ver", "req.ssl_ver", MatchKind::Version),
    ("req_rdp_cookie", "req.rdp_cookie", MatchKind::Str),
    ("req_rdp_cookie_cnt", "req.rdp_cookie_cnt", MatchKind::Int),
    ("req_ssl_sni", "req.ssl_sni", MatchKind::Str),
    ("req_ssl_ver", "req.ssl_ver", MatchKind::Version),
    ("req_ver", "req.ver", MatchKind::Str),
    ("resp_ver", "res.ver", MatchKind::Str),
    ("scook", "res.cook", MatchKind::Str),
    ("shdr", "res.hdr", MatchKind::Str),
    ("ssl_fc_sni_end", "ssl_fc_sni", MatchKind::End),
    ("ssl_fc_sni_reg", "ssl_fc_sni", MatchKind::Reg),
    ("url", "url", MatchKind::Str),
    ("urlp", "urlp", MatchKind::Str),
];

/// Names that form a criterion with each of [`SUFFIXES`], and their fetches.
const SUFFIXED: &[(&str, &str)] = &[
    ("base", "base"),
    ("cook", "req.cook"),
    ("hdr", "req.hdr"),
    ("path", "path"),
    ("scook", "res.cook"),
    ("shdr", "res.hdr"),
    ("url", "url"),
    ("urlp", "urlp"),
];

const SUFFIXES: &[(&str, MatchKind)] = &[
    ("_beg", MatchKind::Beg),
    ("_dir", MatchKind::Dir),
    ("_dom", MatchKind::Dom),
    ("_end", MatchKind::End),
    ("_len", MatchKind::Len),
    ("_reg", MatchKind::Reg),
    ("_sub", MatchKind::Sub),
];

/// The fetch and the kind of matching of an ACL-only criterion.
fn derived(name: &[u8]) -> Option<(&'static str, MatchKind)> {
    if let Some((_, fetch, kind)) = DERIVED.iter().find(|(known, ..)| known.as_bytes() == name) {
        return Some((fetch, *kind));
    }
    SUFFIXES.iter().find_map(|(suffix, kind)| {
        let head = name.strip_suffix(suffix.as_bytes())?;
        SUFFIXED.iter().find(|(known, _)| known.as_bytes() == head).map(|(_, fetch)| (*fetch, *kind))
    })
}

/// All ACL-only criteria with their fetches and kinds of matching, for the reference.
pub fn criteria() -> impl Iterator<Item = (String, &'static str, MatchKind)> {
    let suffixed = SUFFIXED.iter().flat_map(|(name, fetch)| {
        SUFFIXES.iter().map(move |(suffix, kind)| (format!("{name}{suffix}"), *fetch, *kind))
    });
    DERIVED.iter().map(|(name, fetch, kind)| ((*name).to_owned(), *fetch, *kind)).chain(suffixed)
}

/// A criterion with its patterns.
#[derive(Debug)]
struct Test {
    expression: Expression,
    kind: MatchKind,
    /// Type to which samples are cast.
    takes: Type,
    patterns: Vec<(Arc<Reference>, View)>,
}

/// A comparison operator of integer patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    AtLeast,
    Above,
    AtMost,
    Below,
}

impl Operator {
    fn named(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"eq" => Self::Equal,
            b"ge" => Self::AtLeast,
            b"gt" => Self::Above,
            b"le" => Self::AtMost,
            b"lt" => Self::Below,
            _ => return None,
        })
    }

    fn range(self, n: i64) -> Option<Range> {
        let range = match self {
            Self::Equal => Range { least: n, most: n },
            Self::AtLeast => Range { least: n, most: i64::MAX },
            Self::Above => Range { least: n.checked_add(1)?, most: i64::MAX },
            Self::AtMost => Range { least: i64::MIN, most: n },
            Self::Below => Range { least: i64::MIN, most: n.checked_sub(1)? },
        };
        Some(range)
    }
}

impl Test {
    /// Compiles criterion, flags and patterns. The word of an error is an index of `words`.
    fn compile(words: &[&[u8]], compiler: &mut Compiler<'_>) -> Result<Self, Error> {
        let Some(&criterion) = words.first() else {
            return Err(Error::new(0, "an ACL expects a criterion such as src or hdr(host), found none"));
        };
        let (name, behind) = keyword(criterion, 0);
        let own = derived(name);
        let parsed = match own {
            Some((fetch, _)) => {
                // Compile the same arguments and converters with the name of the fetch.
                let text = [fetch.as_bytes(), &criterion[behind..]].concat();
                let moved = |error: Error| Error {
                    at: match error.at.checked_sub(fetch.len()) {
                        Some(offset) => (behind + offset).min(criterion.len()),
                        None => 0,
                    },
                    message: error.message.replacen(&format!("'{fetch}'"), &format!("'{}'", Shown(name)), 1),
                    ..error
                };
                let parsed = Expression::parse(&text, 0, compiler).map_err(moved)?;
                if parsed.end < text.len() {
                    return Err(trailing(criterion, parsed.end + behind - fetch.len()));
                }
                parsed.expression
            }
            None => {
                if fetch::find(name).is_none() && !name.is_empty() {
                    let known =
                        fetch::table().iter().filter(|row| row.refused().is_none()).map(|row| row.name);
                    let all: Vec<String> = criteria().map(|(name, ..)| name).collect();
                    let known = known.chain(all.iter().map(String::as_str));
                    return Err(Error::new(
                        0,
                        unknown("ACL criterion or fetch method", name, known, FETCHES),
                    ));
                }
                let parsed = Expression::parse(criterion, 0, compiler)?;
                if parsed.end < criterion.len() {
                    return Err(trailing(criterion, parsed.end));
                }
                parsed.expression
            }
        };
        // After converters only the type of the sample matters.
        let mut kind = match own {
            Some((_, kind)) if !parsed.is_converted() => Some(kind),
            _ => MatchKind::default_of(parsed.gives()),
        };
        let mut ignore_case = false;
        let mut as_map = false;
        let mut number = None;
        let mut files = Vec::new();
        let mut at = 1;
        while let Some(&flag @ [b'-', letter, ..]) = words.get(at) {
            let value = |what: &str| {
                words.get(at + 1).copied().ok_or_else(|| {
                    Error::new(flag.len(), format!("'{}' expects {what}, found none", Shown(flag)))
                        .in_word(at)
                })
            };
            match flag {
                b"--" => {
                    at += 1;
                    break;
                }
                b"-i" => ignore_case = true,
                b"-n" => {}
                b"-M" => as_map = true,
                b"-u" => {
                    let id = value("the ACL's number")?;
                    let Some(id) = parse_whole(id).and_then(|id| u32::try_from(id).ok()) else {
                        let message =
                            format!("'-u' expects a number from 0 to {}, found '{}'", u32::MAX, Shown(id));
                        return Err(Error::new(0, message).in_word(at + 1));
                    };
                    number = Some((at + 1, id));
                    at += 1;
                }
                b"-m" => {
                    let word = value("a kind of matching")?;
                    let Some((found, _)) = MatchKind::ALL.iter().find(|(_, name)| name.as_bytes() == word)
                    else {
                        let known = MatchKind::ALL.iter().map(|(_, name)| *name);
                        return Err(Error::new(0, none_of("-m", known, word)).in_word(at + 1));
                    };
                    if !files.is_empty() {
                        return Err(Error::new(0, "'-m' stands behind '-f': write it before").in_word(at));
                    }
                    kind = Some(*found);
                    at += 1;
                }
                b"-f" => {
                    let file = value("a file of patterns")?;
                    files.push((at + 1, file, ignore_case));
                    at += 1;
                }
                // A negative number, or a text that begins with a dash.
                _ if letter.is_ascii_digit() || flag.len() > 2 => break,
                _ => {
                    let message = format!(
                        "unknown flag '{}': there are -f, -i, -m, -n, -u and -M; write '--' before a pattern \
                            that begins with a dash",
                        Shown(flag)
                    );
                    return Err(Error::new(0, message).in_word(at));
                }
            }
            at += 1;
        }
        let gives = parsed.gives();
        let Some(kind) = kind else {
            let message = format!(
                "'{}' has no usual comparison for its type {gives}; name one with '-m'",
                Shown(criterion)
            );
            return Err(Error::new(0, message));
        };
        let takes = kind.takes();
        if !is_castable(gives, takes) {
            let message = format!(
                "'-m {}' expects a sample of type {takes}, found '{}' of type {gives}",
                kind.name(),
                Shown(criterion)
            );
            return Err(Error::new(0, message));
        }
        let mut patterns = Vec::new();
        for (word, file, ignore_case) in files {
            let open = compiler.references.open(file, as_map, compiler.names);
            let reference = open.map_err(|why| Error::new(0, why).in_word(word))?;
            let view = reference.view(kind, ignore_case);
            let view = view.map_err(|(_, why)| Error::new(0, why).in_word(word))?;
            reference.used_by(format!("by acl at {}", compiler.at()));
            patterns.push((reference, view));
        }
        let rest = &words[at..];
        if let Some(list) = parsed.groups_of() {
            if rest.is_empty() && patterns.is_empty() {
                return Err(Error::new(
                    criterion.len(),
                    format!("'{}' expects the name of a group, found none", Shown(criterion)),
                ));
            }
            if let Some(unknown) = rest.iter().position(|group| !compiler.names.has_group(list, group)) {
                let message = format!(
                    "'{}' expects a group of the user list, found '{}'",
                    Shown(criterion),
                    Shown(rest[unknown])
                );
                return Err(Error::new(0, message).in_word(at + unknown));
            }
        }
        if !rest.is_empty() && !matches!(kind, MatchKind::Found | MatchKind::Bool) {
            let (reference, view) = inline(kind, ignore_case, rest, at, compiler)?;
            reference.used_by(format!("acl '{}' {}", Shown(name), compiler.at()));
            patterns.push((reference, view));
        }
        if let (Some((word, number)), Some((reference, _))) = (number, patterns.last())
            && !compiler.references.number(reference, number)
        {
            let message = format!("'-u' expects a number of its own, found {number}, which another ACL has");
            return Err(Error::new(0, message).in_word(word));
        }
        if patterns.is_empty() && !matches!(kind, MatchKind::Found | MatchKind::Bool) {
            let message = format!("'{}' expects a pattern, found none: it never matches", Shown(criterion));
            compiler.warnings.push(Error::new(criterion.len(), message));
        }
        Ok(Self { expression: parsed, kind, takes, patterns })
    }

    fn eval(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> Truth {
        let mut truth = Truth::Fail;
        let mut wait = false;
        let ended = self.expression.each(env, scratch, |sample, scratch| {
            wait |= sample.may_change;
            let mut scratch = scratch.reborrow();
            let holds = match self.kind {
                MatchKind::Found => true,
                _ => cast(sample.value, self.takes, &mut scratch).is_some_and(|value| match self.kind {
                    MatchKind::Bool => value == crate::sample::Value::Bool(true),
                    _ => self.patterns.iter().any(|(reference, view)| {
                        reference.load(env.reader).is_match(*view, value, &mut scratch)
                    }),
                }),
            };
            if holds {
                truth = Truth::Pass;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        match (truth, ended) {
            (Truth::Pass, _) => Truth::Pass,
            (_, Err(Absent::NotYet)) => Truth::Wait,
            _ if wait => Truth::Wait,
            _ => Truth::Fail,
        }
    }
}

fn trailing(criterion: &[u8], at: usize) -> Error {
    let at = at.min(criterion.len());
    Error::new(at, format!("a criterion expects ',' and a converter, found '{}'", Shown(&criterion[at..])))
}

/// Compiles patterns of the configuration line.
fn inline(
    kind: MatchKind,
    ignore_case: bool,
    words: &[&[u8]],
    first: usize,
    compiler: &mut Compiler<'_>,
) -> Result<(Arc<Reference>, View), Error> {
    let written: Vec<Written<'_>> = if matches!(kind, MatchKind::Int | MatchKind::Version | MatchKind::Len) {
        ranges(kind, words, first)?
    } else {
        words.iter().enumerate().map(|(at, word)| (first + at, Cow::Borrowed(*word))).collect()
    };
    let patterns: Vec<&[u8]> = written.iter().map(|(_, pattern)| &**pattern).collect();
    let reference = compiler.references.inline(&patterns);
    let view = reference.view(kind, ignore_case);
    let view = view.map_err(|(number, why)| {
        let at = if kind == MatchKind::Reg { regex_fault(patterns[number]) } else { 0 };
        Error::new(at, why).in_word(written[number].0)
    })?;
    Ok((reference, view))
}

/// A pattern with the index of its word.
type Written<'w> = (usize, Cow<'w, [u8]>);

/// Numbers and ranges of a line. A number after an operator becomes a range.
fn ranges<'w>(kind: MatchKind, words: &[&'w [u8]], first: usize) -> Result<Vec<Written<'w>>, Error> {
    let mut ranges = Vec::new();
    let mut operator = None;
    for (at, word) in words.iter().enumerate() {
        let at = first + at;
        if let Some(found) = Operator::named(word) {
            operator = Some(found);
            continue;
        }
        match operator {
            // An operator does not apply to ranges.
            Some(_) if Range::separator(kind, word).is_some() => ranges.push((at, Cow::Borrowed(*word))),
            None | Some(Operator::Equal) => ranges.push((at, Cow::Borrowed(*word))),
            Some(operator) => {
                let n = kind.number(word).ok_or_else(|| {
                    let what = kind.expects();
                    let why = format!("a comparison expects {what}, found '{}'", Shown(word));
                    Error::new(0, why).in_word(at)
                })?;
                // No number is greater than the maximum: no range.
                let range = operator.range(n).and_then(|range| range.pattern(kind));
                ranges.extend(range.map(|range| (at, Cow::Owned(range.into_bytes()))));
            }
        }
    }
    if words.iter().all(|word| Operator::named(word).is_some()) {
        let last = Shown(words[words.len() - 1]);
        let what = kind.expects();
        let why = format!("'{last}' expects {what}, found none");
        return Err(Error::new(0, why).in_word(first + words.len() - 1));
    }
    Ok(ranges)
}

/// An ACL: passes if any of its tests does.
#[derive(Debug)]
pub(crate) struct Acl {
    tests: Vec<Test>,
}

impl Acl {
    pub(crate) fn eval(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> Truth {
        let mut best = Truth::Fail;
        for test in &self.tests {
            best = best.max(test.eval(env, scratch));
            if best == Truth::Pass {
                break;
            }
        }
        best
    }

    pub(crate) fn needs(&self, variables: OfVariable<'_>) -> Needs {
        self.tests.iter().map(|test| test.expression.needs(variables)).collect()
    }

    /// Returns whether the ACL passes, evaluated without the inputs in `absent`.
    ///
    /// # Errors
    /// The absent inputs on which the result depends.
    fn judge(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        absent: Needs,
        variables: OfVariable<'_>,
    ) -> Result<bool, Needs> {
        let mut open = Needs::NONE;
        for test in &self.tests {
            let unknown = test.expression.needs(variables).of(env.direction).and(absent);
            if !unknown.is_none() {
                open |= unknown;
            } else if test.eval(env, scratch) == Truth::Pass {
                return Ok(true);
            }
        }
        if open.is_none() { Ok(false) } else { Err(open) }
    }

    /// Nesting depth of ACLs, by the fetch `acl`.
    pub(crate) fn depth(&self) -> usize {
        self.tests.iter().map(|test| test.expression.acl_depth()).max().unwrap_or(0)
    }

    fn points(&self) -> EvalPoints {
        self.tests.iter().fold(EvalPoints::NONE, |points, test| points | test.expression.points())
    }
}

/// Predefined ACLs.
const PREDEFINED: &[(&str, &[&[u8]])] = &[
    ("FALSE", &[b"always_false"]),
    ("HTTP", &[b"req.proto_http"]),
    ("HTTP_1.0", &[b"req.ver", b"1.0"]),
    ("HTTP_1.1", &[b"req.ver", b"1.1"]),
    ("HTTP_2.0", &[b"req.ver", b"2.0"]),
    ("HTTP_3.0", &[b"req.ver", b"3.0"]),
    ("HTTP_CONTENT", &[b"req.hdr_val(content-length)", b"gt", b"0"]),
    ("HTTP_URL_ABS", &[b"url", b"-m", b"reg", b"^[^/:]*://"]),
    ("HTTP_URL_SLASH", &[b"url", b"-m", b"beg", b"/"]),
    ("HTTP_URL_STAR", &[b"url", b"*"]),
    ("LOCALHOST", &[b"src", b"127.0.0.1/8", b"::1"]),
    ("METH_CONNECT", &[b"method", b"CONNECT"]),
    ("METH_DELETE", &[b"method", b"DELETE"]),
    ("METH_GET", &[b"method", b"GET", b"HEAD"]),
    ("METH_HEAD", &[b"method", b"HEAD"]),
    ("METH_OPTIONS", &[b"method", b"OPTIONS"]),
    ("METH_POST", &[b"method", b"POST"]),
    ("METH_PUT", &[b"method", b"PUT"]),
    ("METH_TRACE", &[b"method", b"TRACE"]),
    ("RDP_COOKIE", &[b"req.rdp_cookie_cnt", b"gt", b"0"]),
    ("REQ_CONTENT", &[b"req.len", b"gt", b"0"]),
    ("TRUE", &[b"always_true"]),
    ("WAIT_END", &[b"wait_end"]),
];

/// The named ACLs of one proxy. Add all lines of a proxy before compiling its conditions.
#[derive(Debug, Default)]
pub struct Acls {
    open: HashMap<Vec<u8>, Vec<Test>>,
    done: HashMap<Vec<u8>, Arc<Acl>>,
}

impl Compiler<'_> {
    /// Adds an `acl` line; `words` are the words after the name. The word of an error is an index of `words`.
    /// A line with an existing name adds an alternative. It is an error if a compiled condition uses the
    /// name, since that condition would not see the alternative.
    pub fn add_acl(&mut self, name: &[u8], words: &[&[u8]]) -> Result<(), Error> {
        let late = |acls: &Acls| {
            if !acls.done.contains_key(name) {
                return Ok(());
            }
            let message = format!(
                "ACL '{}' gets another line behind a condition that uses it: write it before",
                Shown(name)
            );
            Err(Error::new(0, message))
        };
        late(&self.acls)?;
        let test = Test::compile(words, self);
        late(&self.acls)?; // the line itself may use the ACL
        // Add the name even if the line is wrong, so that its uses do not cause further errors.
        let tests = self.acls.open.entry(name.to_vec()).or_default();
        tests.push(test?);
        Ok(())
    }

    /// Declares an ACL whose line was refused, so that its uses do not cause further errors.
    pub fn declare_acl(&mut self, name: &[u8]) {
        self.acls.open.entry(name.to_vec()).or_default();
    }

    /// The ACL with this name. No line can be added to it afterwards.
    pub(crate) fn acl(&mut self, name: &[u8]) -> Result<Arc<Acl>, Error> {
        if let Some(acl) = self.acls.done.get(name) {
            return Ok(acl.clone());
        }
        let tests = match self.acls.open.remove(name) {
            Some(tests) => tests,
            None => {
                let Some((_, words)) = PREDEFINED.iter().find(|(known, _)| known.as_bytes() == name) else {
                    let acls = &self.acls;
                    let names = acls.open.keys().chain(acls.done.keys());
                    let known = names.filter_map(|name| std::str::from_utf8(name).ok());
                    let known = known.chain(PREDEFINED.iter().map(|(name, _)| *name));
                    if let [b'{', rest @ ..] = name {
                        let message =
                            format!("'{{' expects blanks around it, found '{}' behind it", Shown(rest));
                        return Err(Error::new(0, message));
                    }
                    return Err(Error::new(
                        0,
                        unknown("ACL", name, known, "TRUE, or that of an 'acl' line above,"),
                    ));
                };
                let test = Test::compile(words, self).map_err(|error| Error::new(0, error.message))?;
                vec![test]
            }
        };
        let acl = Arc::new(Acl { tests });
        self.acls.done.insert(name.to_vec(), acl.clone());
        Ok(acl)
    }
}

/// An ACL in a conjunction.
#[derive(Debug)]
struct Term {
    acl: Arc<Acl>,
    negated: bool,
}

/// The condition after `if` or `unless`.
#[derive(Debug)]
pub struct Condition {
    unless: bool,
    /// A disjunction of conjunctions.
    any_of: Vec<Vec<Term>>,
}

impl Condition {
    /// Compiles the words after `if` or `unless`. The word of an error is an index of `words`.
    pub fn compile(
        unless: bool,
        words: &[&[u8]],
        points: EvalPoints,
        compiler: &mut Compiler<'_>,
    ) -> Result<Self, Error> {
        let mut any_of = Vec::new();
        let mut all_of = Vec::new();
        let mut negated = false;
        let mut at = 0;
        let end = |at: usize, all_of: &[Term], negated: bool| {
            if negated || all_of.is_empty() {
                let found = words.get(at).map_or("none".into(), |word| format!("'{}'", Shown(word)));
                let message = format!("a condition expects an ACL or a criterion in braces, found {found}");
                return Err(Error::new(0, message).in_word(at));
            }
            Ok(())
        };
        while let Some(&word) = words.get(at) {
            let mut name = word;
            if matches!(word, b"or" | b"OR" | b"||") {
                end(at, &all_of, negated)?;
                any_of.push(std::mem::take(&mut all_of));
                at += 1;
                continue;
            }
            while let [b'!', rest @ ..] = name {
                negated = !negated;
                name = rest;
            }
            let bangs = word.len() - name.len();
            if name.is_empty() {
                at += 1;
                // `! !name` is a double negation; a trailing `!` is an error.
                if at == words.len() {
                    return Err(Error::new(0, "'!' expects an ACL, found none").in_word(at - 1));
                }
                continue;
            }
            let (mut criterion, mut mark) = (name, Error::new(bangs, "").in_word(at));
            let mut acl = if name == b"{" {
                let open = at;
                criterion = words.get(at + 1).copied().unwrap_or(name);
                mark = Error::new(0, "").in_word(at + 1);
                let close = words[at..].iter().position(|word| *word == b"}");
                let Some(close) = close.map(|offset| at + offset) else {
                    return Err(
                        Error::new(bangs, "'{' expects '}' as a word of its own, found none").in_word(open)
                    );
                };
                if close == open + 1 {
                    return Err(Error::new(bangs, "'{ }' expects a criterion, found none").in_word(open));
                }
                let shift = |error: Error| Error { word: error.word + open + 1, ..error };
                let before = compiler.warnings.len();
                let test = Test::compile(&words[open + 1..close], compiler).map_err(shift)?;
                compiler.warnings[before..].iter_mut().for_each(|warning| warning.word += open + 1);
                at = close;
                Arc::new(Acl { tests: vec![test] })
            } else {
                let acl = compiler.acl(name);
                acl.map_err(|error| error.shifted(bangs).in_word(at))?
            };
            if !acl.tests.is_empty() && !acl.points().meets(points) {
                let message = format!(
                    "'{}' never matches in {}: it has a value in {}",
                    Shown(criterion),
                    points.some_names(),
                    acl.points().some_names()
                );
                compiler.warnings.push(Error { message, ..mark });
                // The warning was reported. Drop the ACL: it can never pass here.
                acl = Arc::new(Acl { tests: Vec::new() });
            }
            all_of.push(Term { acl, negated });
            negated = false;
            at += 1;
        }
        end(words.len().saturating_sub(1), &all_of, negated)?;
        any_of.push(all_of);
        Ok(Self { unless, any_of })
    }

    /// Evaluates the condition. [`Truth::Wait`] is only possible while `env.is_final` is false.
    pub fn eval(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> Truth {
        let mut best = Truth::Fail;
        for all_of in &self.any_of {
            let mut least = Truth::Pass;
            for term in all_of {
                let truth = term.acl.eval(env, scratch);
                least = least.min(if term.negated { truth.negated() } else { truth });
                if least == Truth::Fail {
                    break;
                }
            }
            best = best.max(least);
            if best == Truth::Pass {
                break;
            }
        }
        if env.is_final && best == Truth::Wait {
            best = Truth::Fail;
        }
        if self.unless { best.negated() } else { best }
    }

    /// The inputs of the condition.
    pub fn needs(&self, variables: OfVariable<'_>) -> Needs {
        self.any_of.iter().flatten().map(|term| term.acl.needs(variables)).collect()
    }

    /// Returns whether the rule applies, evaluated without the inputs in `absent`.
    ///
    /// # Errors
    /// The absent inputs on which the result depends.
    pub fn judge(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        absent: Needs,
        variables: OfVariable<'_>,
    ) -> Result<bool, Needs> {
        let mut open = Needs::NONE;
        for all_of in &self.any_of {
            let mut unknown = Needs::NONE;
            let fails = all_of.iter().any(|term| match term.acl.judge(env, scratch, absent, variables) {
                Ok(holds) => holds == term.negated,
                Err(needs) => {
                    unknown |= needs;
                    false
                }
            });
            match (fails, unknown.is_none()) {
                (true, _) => {}
                (false, true) => return Ok(!self.unless),
                (false, false) => open |= unknown,
            }
        }
        if open.is_none() { Ok(self.unless) } else { Err(open) }
    }

    /// True if the condition passes. Treats [`Truth::Wait`] as false, so use it only where nothing waits.
    pub fn holds(&self, env: &Env<'_>, scratch: &mut Scratch<'_>) -> bool {
        self.eval(env, scratch) == Truth::Pass
    }
}
