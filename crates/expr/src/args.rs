//! Arguments in parentheses: splitting, unquoting, types.

use crate::cast::{parse_addr, parse_whole};
use crate::error::Error;
use crate::names::{Compiler, ProxyId, ProxySide, ServerId, UserlistId};
use crate::show::Shown;
use crate::table::NamedTable;
use crate::variable::VariableId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of arguments of a keyword. The longest signature has 5.
pub(crate) const MAX_ARGS: usize = 12;

/// Type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// An integer.
    Int,
    /// Text.
    Str,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A frontend; the current one by default.
    Front,
    /// A backend; the current one by default.
    Back,
    /// `backend/server`, or a server of the current backend.
    Server,
    /// A user list.
    Userlist,
    /// A stick table, named by its proxy.
    Table,
    /// `scope.name`.
    Variable,
    /// An integer or a variable.
    IntOrVariable,
    /// An IPv4 mask, in dotted notation or as a number of bits.
    Mask4,
    /// An IPv6 mask, as an address or as a number of bits.
    Mask6,
    /// A regular expression.
    Regex,
    /// A map file.
    File,
}

impl ArgKind {
    /// Its name in signatures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "integer",
            Self::Str => "string",
            Self::Ipv4 => "IPv4 address",
            Self::Ipv6 => "IPv6 address",
            Self::Front => "frontend",
            Self::Back => "backend",
            Self::Server => "server",
            Self::Userlist => "user list",
            Self::Table => "table",
            Self::Variable => "variable",
            Self::IntOrVariable => "integer or variable",
            Self::Mask4 => "IPv4 mask",
            Self::Mask6 => "IPv6 mask",
            Self::Regex => "regex",
            Self::File => "file",
        }
    }
}

/// An argument, unquoted, with its offset.
#[derive(Clone, Debug)]
struct Arg {
    bytes: Vec<u8>,
    at: usize,
    /// Offset of each of `bytes`, which quotes and escapes move.
    offsets: Vec<usize>,
}

impl Arg {
    fn new(at: usize) -> Self {
        Self { bytes: Vec::new(), at, offsets: Vec::new() }
    }

    fn push(&mut self, byte: u8, at: usize) {
        self.bytes.push(byte);
        self.offsets.push(at);
    }
}

/// The arguments of a keyword during compilation.
pub(crate) struct Args<'c, 'n> {
    /// The keyword.
    pub(crate) keyword: &'static str,
    args: Vec<Arg>,
    /// Offset of the closing parenthesis, or of the end of the keyword.
    end: usize,
    pub(crate) compiler: &'c mut Compiler<'n>,
}

/// Splits the arguments that begin at `open`, after the opening parenthesis. Returns them and the offset
/// after the closing one.
fn cut(text: &[u8], open: usize) -> Result<(Vec<Arg>, usize), Error> {
    let mut args = Vec::new();
    let mut arg = Arg::new(open);
    let mut quote = None;
    let mut i = open;
    loop {
        let Some(&byte) = text.get(i) else {
            let (what, from) = match quote {
                Some((_, from)) => ("closing quote", from),
                None => ("closing parenthesis", open - 1),
            };
            return Err(Error::new(from, format!("expected a {what}, found the end of the expression")));
        };
        match (byte, quote) {
            (b'\'' | b'"', None) => quote = Some((byte, i)),
            (_, Some((open, _))) if byte == open => quote = None,
            (b'\\', None | Some((b'"', _))) => match text.get(i + 1) {
                Some(&next @ (b'\\' | b'"' | b'\'')) => {
                    arg.push(next, i);
                    i += 1;
                }
                Some(&next @ (b'r' | b'n' | b't')) => {
                    let byte = match next {
                        b'r' => b'\r',
                        b'n' => b'\n',
                        _ => b'\t',
                    };
                    arg.push(byte, i);
                    i += 1;
                }
                Some(&next @ b' ') if quote.is_none() => {
                    arg.push(next, i);
                    i += 1;
                }
                _ => arg.push(byte, i),
            },
            (b',' | b')', None) => {
                args.push(arg);
                if args.len() > MAX_ARGS {
                    let message = format!("a keyword expects {MAX_ARGS} arguments at most, found more");
                    return Err(Error::new(args[MAX_ARGS].at, message));
                }
                arg = Arg::new(i + 1);
                if byte == b')' {
                    return Ok((args, i + 1));
                }
            }
            _ => arg.push(byte, i),
        }
        i += 1;
    }
}

/// The error for a wrong number of arguments: `'field' expects (<integer>,<string>[,<integer>]), found 1
/// argument`.
fn miscounted(keyword: &str, kinds: &[ArgKind], required: usize, found: usize) -> String {
    let mut shape = String::new();
    for (index, kind) in kinds.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        shape.push_str(if index >= required { "[" } else { "" });
        shape.push_str(comma);
        shape.push_str(&format!("<{}>", kind.name()));
    }
    shape.push_str(&"]".repeat(kinds.len() - required.min(kinds.len())));
    let shape = if kinds.is_empty() { "no argument".to_owned() } else { format!("({shape})") };
    let found = match found {
        0 => "none".to_owned(),
        1 => "1 argument".to_owned(),
        found => format!("{found} arguments"),
    };
    format!("'{keyword}' expects {shape}, found {found}")
}

/// Text after a keyword: its arguments.
pub(crate) struct Tail {
    args: Vec<Arg>,
    close: usize,
    /// Offset at which the expression continues.
    pub(crate) next: usize,
}

/// Parses `(...)` at `at`, if it is there.
pub(crate) fn tail(text: &[u8], at: usize) -> Result<Tail, Error> {
    if text.get(at) != Some(&b'(') {
        return Ok(Tail { args: Vec::new(), close: at, next: at });
    }
    let (args, next) = cut(text, at + 1)?;
    Ok(Tail { args, close: next.saturating_sub(1), next })
}

impl<'c, 'n> Args<'c, 'n> {
    /// Checks the number of arguments.
    pub(crate) fn new(
        keyword: &'static str,
        tail: Tail,
        kinds: &[ArgKind],
        required: usize,
        compiler: &'c mut Compiler<'n>,
    ) -> Result<Self, Error> {
        let mut tail = tail;
        // `name()` has one empty argument if the keyword takes arguments, and none otherwise.
        if kinds.is_empty() && matches!(&tail.args[..], [only] if only.bytes.is_empty()) {
            tail.args.clear();
        }
        if let Some(extra) = tail.args.get(kinds.len()) {
            return Err(Error::new(extra.at, miscounted(keyword, kinds, required, tail.args.len())));
        }
        if tail.args.len() < required {
            return Err(Error::new(tail.close, miscounted(keyword, kinds, required, tail.args.len())));
        }
        Ok(Self { keyword, args: tail.args, end: tail.close, compiler })
    }

    fn arg(&self, index: usize) -> Option<&Arg> {
        self.args.get(index)
    }

    /// Offset of an argument; the end of the arguments if it is missing.
    pub(crate) fn at(&self, index: usize) -> usize {
        self.arg(index).map_or(self.end, |arg| arg.at)
    }

    /// An error at a byte of an argument.
    pub(crate) fn error_in(&self, index: usize, byte: usize, message: impl Into<String>) -> Error {
        let at = self.arg(index).and_then(|arg| arg.offsets.get(byte)).copied();
        Error::new(at.unwrap_or(self.at(index)), message)
    }

    /// An error at an argument.
    pub(crate) fn error(&self, index: usize, message: impl Into<String>) -> Error {
        Error::new(self.at(index), message)
    }

    /// The error that argument `index` is not `what`.
    pub(crate) fn expected(&self, index: usize, what: &str) -> Error {
        let found = self.arg(index).map_or("none".into(), |arg| format!("'{}'", Shown(&arg.bytes)));
        let message = format!("'{}' expects {what} as argument {}, found {found}", self.keyword, index + 1);
        self.error(index, message)
    }

    /// The bytes of an argument; `None` if it is missing.
    pub(crate) fn bytes(&self, index: usize) -> Option<&[u8]> {
        self.arg(index).map(|arg| &arg.bytes[..])
    }

    /// Like [`Args::bytes`], but `None` for an empty argument.
    pub(crate) fn given(&self, index: usize) -> Option<&[u8]> {
        self.bytes(index).filter(|bytes| !bytes.is_empty())
    }

    /// A copy of an argument for the program; empty if it is missing.
    pub(crate) fn boxed(&self, index: usize) -> Box<[u8]> {
        self.bytes(index).unwrap_or_default().into()
    }

    /// An integer argument; `None` if it is missing or empty.
    pub(crate) fn int(&self, index: usize) -> Result<Option<i64>, Error> {
        match self.given(index) {
            None => Ok(None),
            Some(text) => match parse_whole(text) {
                Some(n) => Ok(Some(n)),
                None => Err(self.expected(index, "a whole number")),
            },
        }
    }

    /// An integer argument in `range`, or `default` if it is missing. An error if outside of the range.
    pub(crate) fn int_in(
        &self,
        index: usize,
        range: std::ops::RangeInclusive<i64>,
        default: i64,
    ) -> Result<i64, Error> {
        let n = self.int(index)?.unwrap_or(default);
        if range.contains(&n) {
            Ok(n)
        } else {
            let (least, most) = (range.start(), range.end());
            Err(self.expected(index, &format!("a number from {least} to {most}")))
        }
    }

    pub(crate) fn ipv4(&self, index: usize) -> Result<Ipv4Addr, Error> {
        match self.bytes(index).and_then(parse_addr) {
            Some(IpAddr::V4(addr)) => Ok(addr),
            _ => Err(self.expected(index, "an IPv4 address")),
        }
    }

    pub(crate) fn ipv6(&self, index: usize) -> Result<Ipv6Addr, Error> {
        match self.bytes(index).and_then(parse_addr) {
            Some(IpAddr::V6(addr)) => Ok(addr),
            _ => Err(self.expected(index, "an IPv6 address")),
        }
    }

    /// A mask with the bits to keep set.
    pub(crate) fn mask4(&self, index: usize) -> Result<u32, Error> {
        let text = self.bytes(index).unwrap_or_default();
        if let Some(bits @ 0..=32) = parse_whole(text) {
            return Ok(((1u64 << 32) - (1u64 << (32 - bits))) as u32);
        }
        match parse_addr(text) {
            Some(IpAddr::V4(addr)) => Ok(addr.to_bits()),
            _ => Err(self.expected(index, "an IPv4 mask such as 255.255.0.0 or 16")),
        }
    }

    pub(crate) fn mask6(&self, index: usize) -> Result<u128, Error> {
        let text = self.bytes(index).unwrap_or_default();
        if let Some(bits @ 0..=128) = parse_whole(text) {
            return Ok(if bits == 0 { 0 } else { u128::MAX << (128 - bits) });
        }
        match parse_addr(text) {
            Some(IpAddr::V6(addr)) => Ok(addr.to_bits()),
            _ => Err(self.expected(index, "an IPv6 mask such as ffff:ffff:: or 32")),
        }
    }

    pub(crate) fn proxy(&self, index: usize, side: ProxySide) -> Result<ProxyId, Error> {
        let kind = if side == ProxySide::Front { "frontend" } else { "backend" };
        match self.given(index) {
            None => self.compiler.names.current(side).ok_or_else(|| {
                let what = format!("the name of a {kind}, since the section here is none,");
                self.expected(index, &what)
            }),
            Some(name) => self
                .compiler
                .names
                .proxy(name, side)
                .ok_or_else(|| self.expected(index, &format!("the name of a {kind}"))),
        }
    }

    pub(crate) fn server(&self, index: usize) -> Result<ServerId, Error> {
        let text = self.bytes(index).unwrap_or_default();
        let names = self.compiler.names;
        let (backend, server) = match memchr::memrchr(b'/', text) {
            Some(slash) => (names.proxy(&text[..slash], ProxySide::Back), &text[slash + 1..]),
            None if self.compiler.in_defaults => {
                return Err(self.expected(index, "<backend>/<server> in a 'defaults' section"));
            }
            None => (names.current(ProxySide::Back), text),
        };
        backend
            .and_then(|backend| names.server(backend, server))
            .ok_or_else(|| self.expected(index, "<backend>/<server>, or a server of the backend here,"))
    }

    pub(crate) fn userlist(&self, index: usize) -> Result<UserlistId, Error> {
        self.compiler
            .names
            .userlist(self.bytes(index).unwrap_or_default())
            .ok_or_else(|| self.expected(index, "the name of a 'userlist' section"))
    }

    pub(crate) fn table(&self, index: usize) -> Result<NamedTable, Error> {
        let names = self.compiler.names;
        let table = self.given(index).map_or_else(|| names.own_table(), |name| names.table(name));
        table.ok_or_else(|| self.expected(index, "the name of a proxy with a 'stick-table'"))
    }

    pub(crate) fn variable(&mut self, index: usize) -> Result<VariableId, Error> {
        let (name, at) = match self.arg(index) {
            Some(arg) => (arg.bytes.clone(), arg.at),
            None => (Vec::new(), self.end),
        };
        self.compiler.variables.resolve(&name).map_err(|error| error.shifted(at))
    }
}
