//! Log formats: text with aliases (`%ci`) and sample expressions (`%[src]`), compiled to parts.
//!
//! | part | written as |
//! |---|---|
//! | text | it is; in log lines runs of spaces are one space |
//! | `%alias` | the table of aliases says; what is missing is `-` in log lines and nothing elsewhere |
//! | `%[expression]` | text; in header fields control characters as `%XX`, in log lines as `#XX` |
//! | `%{+Q}` `%{+X}` `%{+E}` | in quotes; addresses, ports and numbers in hexadecimal digits; `"`, `\` and `]` behind a backslash |
//! | `%{+Q}o` | for all that follows |
//! | `%(name)alias`, `%(name:type)[...]` | the same: the name is for encodings that have names |
//! | `%%` | `%` |

mod alias;

pub use alias::LogFacts;

use crate::convert::encode::put_hex;
use crate::env::Env;
use crate::error::{Error, found_at, none_of, unknown};
use crate::eval_points::EvalPoints;
use crate::names::{Compiler, Looks};
use crate::program::Expression;
use crate::scratch::{Scratch, Writer};
use crate::show::Shown;
use alias::Alias;

/// What a format is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A line of a log.
    Log,
    /// An identifier: blanks are as in a line, and what is missing is left out.
    Id,
    /// A header field, a path, a location: control characters cannot get out of it.
    Header,
    /// Anything else: a body, a variable, a key.
    Text,
    /// A body that need not be text: samples of bytes keep what follows a NUL.
    Bytes,
}

/// Parts of one format at most.
pub const MAX_PARTS: usize = 4096;

/// The format of `option tcplog`.
pub const TCP_LOG: &str = "%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq";
/// The format of `option httplog`.
pub const HTTP_LOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc \
                            %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
/// The format of `option httplog clf`.
pub const CLF_LOG: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr \
    %Ta \
                           %tsc %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl";
/// The format of `option httpslog`.
pub const HTTPS_LOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc \
                             %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r \
                             %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] \
                             %[ssl_fc_sni]/%sslv/%sslc";
/// The format without any of these options in HTTP mode.
pub const PLAIN_HTTP_LOG: &str = "Connect from %ci:%cp to %fi:%fp (%f/HTTP)";
/// The format without any of these options in TCP mode.
pub const PLAIN_TCP_LOG: &str = "Connect from %ci:%cp to %fi:%fp (%f/TCP)";

/// How a part is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    quote: bool,
    hex: bool,
    escape: bool,
}

#[derive(Debug)]
enum Part {
    Text(Box<[u8]>),
    /// One space, unless there is one before it: beside an alias that may vanish. Elsewhere it is text.
    Space,
    Alias(Alias, Flags),
    Sample(Box<Expression>, Flags),
}

/// A compiled format.
#[derive(Debug)]
pub struct Format {
    parts: Vec<Part>,
    usage: Use,
}

/// What stands between `%` and the alias or the bracket.
struct Head {
    flags: Flags,
    /// Where the alias or the bracket begins.
    at: usize,
}

impl Format {
    /// Compiles a format. Errors tell the offset in the text.
    pub fn compile(
        text: &[u8],
        usage: Use,
        place: EvalPoints,
        compiler: &mut Compiler<'_>,
    ) -> Result<Self, Error> {
        let mut parts: Vec<Part> = Vec::new();
        let mut plain = Vec::new();
        let mut flags = Flags::default();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            if byte == b' ' && matches!(usage, Use::Log | Use::Id) {
                flush(&mut parts, &mut plain);
                if !matches!(parts.last(), Some(Part::Space)) {
                    parts.push(Part::Space);
                }
                at += 1;
            } else if byte != b'%' {
                plain.push(byte);
                at += 1;
            } else if text.get(at + 1) == Some(&b'%') {
                plain.push(b'%');
                at += 2;
            } else {
                let head = head(text, at, flags)?;
                flush(&mut parts, &mut plain);
                if text.get(head.at) == Some(&b'[') {
                    let parsed = Expression::parse(text, head.at + 1, compiler)?;
                    if text.get(parsed.end) != Some(&b']') {
                        return Err(Error::new(
                            parsed.end,
                            format!(
                                "'%[' expects ']' behind the expression, found {}",
                                found_at(text, parsed.end)
                            ),
                        ));
                    }
                    parsed.expression.check_place(head.at + 1, place)?;
                    parts.push(Part::Sample(Box::new(parsed.expression), head.flags));
                    at = parsed.end + 1;
                } else {
                    let len = text[head.at..]
                        .iter()
                        .position(|byte| !byte.is_ascii_alphanumeric())
                        .unwrap_or(text.len() - head.at);
                    let name = &text[head.at..head.at + len];
                    if name == b"o" {
                        flags = head.flags;
                    } else if name.is_empty() {
                        return Err(Error::new(
                            head.at,
                            format!(
                                "'%' expects an alias or '[', found {}; write '%%' for a percent sign",
                                found_at(text, head.at)
                            ),
                        ));
                    } else {
                        let missing = std::str::from_utf8(name)
                            .map_or(None, |name| (compiler.missing)(name, Looks::Alias));
                        match Alias::find(name).map(|known| missing.map_or(known, Err)) {
                            Some(Ok(alias)) => {
                                compiler.looks_at_links |= alias.looks_at_link();
                                compiler.looks_at_course |= alias.looks_at_course();
                                parts.push(Part::Alias(alias, head.flags));
                            }
                            Some(Err(reason)) => {
                                let name = String::from_utf8_lossy(name);
                                return Err(Error::new(
                                    head.at,
                                    format!(
                                        "'%{name}' is an alias of HAProxy that this program refuses: {reason}"
                                    ),
                                ));
                            }
                            None => {
                                return Err(Error::new(
                                    head.at,
                                    unknown("log format alias", name, Alias::names()),
                                ));
                            }
                        }
                    }
                    at = head.at + len;
                }
            }
            if parts.len() > MAX_PARTS {
                return Err(Error::new(
                    at.min(text.len()),
                    format!("a format expects {MAX_PARTS} parts at most, found more"),
                ));
            }
        }
        flush(&mut parts, &mut plain);
        Ok(Self { parts: settled(parts), usage })
    }

    /// Writes the text. What does not fit is cut; the writer tells.
    ///
    /// Cost: no allocation; samples use the scratch one after another.
    pub fn write(&self, env: &Env<'_>, scratch: &mut Scratch<'_>, out: &mut Writer<'_>) {
        // A space at the beginning is none.
        let mut after_space = true;
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    out.put(text);
                    after_space = false;
                }
                Part::Space => {
                    if !after_space {
                        out.push(b' ');
                    }
                    after_space = true;
                }
                Part::Alias(alias, flags) => {
                    let written = out.len();
                    alias.write(env, *flags, self.usage, scratch, out);
                    after_space &= alias.may_vanish() && out.len() == written;
                }
                Part::Sample(expression, flags) => {
                    let mut scratch = scratch.reborrow();
                    let text = match self.usage {
                        Use::Bytes => expression.eval_bytes(env, &mut scratch),
                        Use::Log | Use::Id | Use::Header | Use::Text => {
                            expression.eval_text(env, &mut scratch)
                        }
                    };
                    put_text(text, *flags, self.usage, out);
                    after_space = false;
                }
            }
        }
    }

    /// The text in the scratch: at most half of what is free there; nothing when it does not fit.
    pub fn eval<'x>(&self, env: &Env<'_>, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
        if let [Part::Text(text)] = &self.parts[..] {
            return scratch.copy(text);
        }
        let area = scratch.take_half();
        let mut out = Writer::new(area);
        self.write(env, scratch, &mut out);
        out.into_written()
    }

    /// The text when it is always the same.
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.parts[..] {
            [] => Some(b""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether a part is an alias: those look at what is logged.
    pub fn has_aliases(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Alias(..)))
    }
}

/// Spaces that are always written become text, and texts that follow one another are one.
fn settled(parts: Vec<Part>) -> Vec<Part> {
    let vanishes = |part: Option<&Part>| matches!(part, Some(Part::Alias(alias, _)) if alias.may_vanish());
    let mut settled: Vec<Part> = Vec::with_capacity(parts.len());
    let mut before_vanishes = true; // at the beginning a space is none
    let mut parts = parts.into_iter().peekable();
    while let Some(part) = parts.next() {
        let vanishing = vanishes(Some(&part));
        let text: Box<[u8]> = match part {
            Part::Space if !before_vanishes && !vanishes(parts.peek()) => Box::new([b' ']),
            Part::Text(text) => text,
            part => {
                before_vanishes = vanishing || matches!(part, Part::Space);
                settled.push(part);
                continue;
            }
        };
        before_vanishes = false;
        match settled.last_mut() {
            Some(Part::Text(before)) => *before = [&**before, &*text].concat().into(),
            _ => settled.push(Part::Text(text)),
        }
    }
    settled
}

fn flush(parts: &mut Vec<Part>, plain: &mut Vec<u8>) {
    if !plain.is_empty() {
        parts.push(Part::Text(std::mem::take(plain).into()));
    }
}

/// Reads `(name:type)` and `{flags}` behind the percent sign at `at`.
fn head(text: &[u8], at: usize, inherited: Flags) -> Result<Head, Error> {
    let mut flags = inherited;
    let mut at = at + 1;
    if text.get(at) == Some(&b'(') {
        let Some(close) = memchr::memchr(b')', &text[at..]).map(|offset| at + offset) else {
            return Err(Error::new(at, "'%(' expects ')' behind the name, found the end of the format"));
        };
        let inside = &text[at + 1..close];
        let colon = memchr::memchr(b':', inside).unwrap_or(inside.len());
        if let Some(kind) = inside.get(colon + 1..)
            && !matches!(kind, b"sint" | b"str" | b"bool")
        {
            return Err(Error::new(at + 2 + colon, none_of("%(", ["sint", "str", "bool"], kind)));
        }
        at = close + 1;
    }
    if text.get(at) == Some(&b'{') {
        let Some(close) = memchr::memchr(b'}', &text[at..]).map(|offset| at + offset) else {
            return Err(Error::new(at, "'%{' expects '}' behind the flags, found the end of the format"));
        };
        let mut start = at + 1;
        for flag in text[at + 1..close].split(|byte| *byte == b',') {
            let on = match flag.first() {
                Some(b'+') => true,
                Some(b'-') => false,
                _ => {
                    let message = format!(
                        "'%{{' expects flags with '+' or '-' first, as in %{{+Q}}, found '{}'",
                        Shown(flag)
                    );
                    return Err(Error::new(start, message));
                }
            };
            match &flag[1..] {
                b"Q" => flags.quote = on,
                b"X" => flags.hex = on,
                b"E" => flags.escape = on,
                name @ (b"json" | b"cbor" | b"bin") => {
                    let name = String::from_utf8_lossy(name);
                    return Err(Error::new(
                        start + 1,
                        format!(
                            "'{name}' is an encoding of HAProxy that this program refuses: it is not built \
                                yet"
                        ),
                    ));
                }
                name => return Err(Error::new(start + 1, none_of("%{", ["Q", "X", "E"], name))),
            }
            start += flag.len() + 1;
        }
        at = close + 1;
    }
    Ok(Head { flags, at })
}

/// Writes text as flags and usage say.
fn put_text(text: Option<&[u8]>, flags: Flags, usage: Use, out: &mut Writer<'_>) -> Option<()> {
    let text = text.filter(|text| !text.is_empty());
    if flags.quote {
        out.push(b'"')?;
    }
    match (text, usage) {
        (Some(text), _) => {
            let is_marked = |byte| flags.escape && matches!(byte, b'"' | b'\\' | b']');
            out.put_mapped(
                text,
                |byte| !byte.is_ascii_control() && !is_marked(byte),
                |byte, out| {
                    if is_marked(byte) {
                        out.push(b'\\')?;
                    }
                    match usage {
                        Use::Log if byte.is_ascii_control() => put_code(b'#', byte, out),
                        Use::Header if byte.is_ascii_control() => put_code(b'%', byte, out),
                        _ => out.push(byte),
                    }
                },
            )?;
        }
        (None, Use::Log) if !flags.quote => out.push(b'-')?,
        (None, _) => {}
    }
    if flags.quote {
        out.push(b'"')?;
    }
    Some(())
}

fn put_code(sign: u8, byte: u8, out: &mut Writer<'_>) -> Option<()> {
    out.push(sign)?;
    put_hex(&[byte], out)
}

/// A number in the form that the flags ask for.
fn put_int(n: i64, flags: Flags, out: &mut Writer<'_>) -> Option<()> {
    if flags.hex { out.print(format_args!("{n:04X}")) } else { out.put_number(n, 1) }
}
