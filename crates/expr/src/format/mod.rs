//! Log formats: text with aliases (`%ci`) and sample expressions (`%[src]`), compiled to parts.
//!
//! | part | written as |
//! |---|---|
//! | text | as it is; in log lines, several spaces become one |
//! | `%alias` | see the table of aliases; a missing value is `-` in log lines and empty elsewhere |
//! | `%[expression]` | text; control characters as `%XX` in header fields and as `#XX` in log lines |
//! | `%{+Q}` | in quotes |
//! | `%{+X}` | addresses, ports and numbers in hexadecimal digits |
//! | `%{+E}` | with a backslash before `"`, `\` and `]` |
//! | `%{+Q}o` | sets the flags for all later parts |
//! | `%{+json}` `%{+cbor}` | in JSON, with `+utf8` without escaping UTF-8; in CBOR as hexadecimal digits |
//! | `%{+json}o` | a map of all named parts: `%(name)alias`, `%(name:type)[...]`; `+bin` for CBOR bytes |
//! | `%{+bin}o` | keeps the bytes of binary samples |
//! | `%%` | `%` |

mod alias;
mod encode;

pub use alias::LogInfo;

use crate::convert::encode::put_hex;
use crate::env::Env;
use crate::error::{Error, found_at, none_of, unknown};
use crate::eval_points::EvalPoints;
use crate::names::{Compiler, SampleSource};
use crate::needs::{Needs, OfVariable};
use crate::program::Expression;
use crate::scratch::{Scratch, Writer};
use crate::show::Shown;
use alias::Alias;
use encode::{Encoding, Item, ItemType};

/// Purpose of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A line of a log.
    Log,
    /// An identifier: spaces as in a log line, missing values are empty.
    Id,
    /// A header field, a path or a location. Control characters are encoded.
    Header,
    /// Anything else: a body, a variable, a key.
    Text,
    /// A binary body: samples keep the bytes after a NUL.
    Bytes,
}

/// Maximum number of parts in a format.
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
/// Default format in HTTP mode, without these options.
pub const PLAIN_HTTP_LOG: &str = "Connect from %ci:%cp to %fi:%fp (%f/HTTP)";
/// Default format in TCP mode, without these options.
pub const PLAIN_TCP_LOG: &str = "Connect from %ci:%cp to %fi:%fp (%f/TCP)";

/// Flags of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags {
    quote: bool,
    hex: bool,
    escape: bool,
    /// Keeps the bytes of binary samples.
    binary: bool,
    /// For encodings: no replacement of missing values, and no encoding of bytes.
    bare: bool,
}

#[derive(Debug)]
enum Part {
    Text(Box<[u8]>),
    /// One space, unless a space precedes it. Only next to an alias that may vanish; other spaces are text.
    Space,
    Alias(Alias, Flags),
    Sample(Box<Expression>, Flags),
    Encoded(Box<Encoded>),
}

/// An alias or a sample in an encoding.
#[derive(Debug)]
struct Encoded {
    name: Box<[u8]>,
    part: Part,
    kind: Option<ItemType>,
    encoding: Encoding,
}

/// A compiled format.
#[derive(Debug)]
pub struct Format {
    parts: Vec<Part>,
    usage: Use,
    /// Set if all parts are entries of a map.
    map: Option<Encoding>,
}

/// The text between `%` and the alias or the bracket.
struct Head {
    flags: Flags,
    encoding: Option<Encoding>,
    name: Box<[u8]>,
    kind: Option<ItemType>,
    /// Offset of the alias or the bracket.
    at: usize,
}

/// Name and type of a part, for encodings.
struct Named {
    part: usize,
    name: Box<[u8]>,
    kind: Option<ItemType>,
    encoding: Option<Encoding>,
}

impl Format {
    /// Compiles a format. Errors have the offset in the text.
    pub fn compile(
        text: &[u8],
        usage: Use,
        points: EvalPoints,
        compiler: &mut Compiler<'_>,
    ) -> Result<Self, Error> {
        let mut parts: Vec<Part> = Vec::new();
        let mut plain = Vec::new();
        let mut flags = Flags::default();
        let mut map = None;
        let mut named = Vec::new();
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
                let head = head(text, at, flags, map)?;
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
                    parsed.expression.check_points(head.at + 1, points)?;
                    named.push(Named {
                        part: parts.len(),
                        name: head.name,
                        kind: head.kind,
                        encoding: head.encoding,
                    });
                    // Only a flag for the whole format affects bytes.
                    let flags = Flags { binary: flags.binary, ..head.flags };
                    parts.push(Part::Sample(Box::new(parsed.expression), flags));
                    at = parsed.end + 1;
                } else {
                    let len = text[head.at..]
                        .iter()
                        .position(|byte| !byte.is_ascii_alphanumeric())
                        .unwrap_or(text.len() - head.at);
                    let name = &text[head.at..head.at + len];
                    if name == b"o" {
                        flags = head.flags;
                        map = head.encoding;
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
                            .map_or(None, |name| (compiler.missing)(name, SampleSource::Alias));
                        match Alias::find(name).map(|known| missing.map_or(Ok(known), Err)) {
                            Some(Ok(alias)) => {
                                compiler.reads_connections |= alias.reads_link();
                                compiler.reads_stream_record |= alias.reads_stream_record();
                                named.push(Named {
                                    part: parts.len(),
                                    name: head.name,
                                    kind: head.kind,
                                    encoding: head.encoding,
                                });
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
                                    unknown("log format alias", name, Alias::names(), "'ci' or 'ST'"),
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
        Ok(Self { parts: settled(encoded(parts, named, map)), usage, map })
    }

    /// Writes the text. Text that does not fit is cut, and the writer is marked as full.
    ///
    /// Cost: no allocation. Samples use the scratch one after another.
    pub fn write(&self, env: &Env<'_>, scratch: &mut Scratch<'_>, out: &mut Writer<'_>) {
        if let Some(map) = self.map {
            map.open(out);
        }
        // Omit a space at the start.
        let mut after_space = true;
        for (index, part) in self.parts.iter().enumerate() {
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
                        _ if flags.binary => expression.eval_bytes(env, &mut scratch),
                        Use::Log | Use::Id | Use::Header | Use::Text => {
                            expression.eval_text(env, &mut scratch)
                        }
                    };
                    put_text(text, *flags, self.usage, out);
                    after_space = false;
                }
                Part::Encoded(encoded) => {
                    if self.map.is_some() {
                        encoded.encoding.put_name(&encoded.name, index == 0, out);
                    }
                    encoded.write(env, self.usage, &mut scratch.reborrow(), out);
                    after_space = false;
                }
            }
        }
        if let Some(map) = self.map {
            map.close(out);
        }
    }

    /// Writes the text to the scratch, using at most half of its free bytes. `None` if it does not fit.
    pub fn eval<'x>(&self, env: &Env<'_>, scratch: &mut Scratch<'x>) -> Option<&'x [u8]> {
        if let [Part::Text(text)] = &self.parts[..] {
            return scratch.copy(text);
        }
        let area = scratch.take_half();
        let mut out = Writer::new(area);
        self.write(env, scratch, &mut out);
        out.into_written()
    }

    /// The text, if it is always the same.
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.parts[..] {
            _ if self.map.is_some() => None,
            [] => Some(b""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The inputs of all parts.
    pub fn needs(&self, variables: OfVariable<'_>) -> Needs {
        self.parts.iter().map(|part| part.needs(variables)).collect()
    }

    /// True if a part is an alias, which needs data of a log line.
    pub fn has_aliases(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Alias(..) => true,
            Part::Encoded(encoded) => matches!(encoded.part, Part::Alias(..)),
            Part::Text(_) | Part::Space | Part::Sample(..) => false,
        })
    }
}

impl Part {
    fn needs(&self, variables: OfVariable<'_>) -> Needs {
        match self {
            Self::Text(_) | Self::Space => Needs::NONE,
            Self::Alias(alias, _) if alias.reads_link() => Needs::SERVER,
            Self::Alias(alias, _) if alias.reads_stream_record() => Needs::STATE,
            Self::Alias(..) => Needs::NONE,
            Self::Sample(expression, _) => expression.needs(variables),
            Self::Encoded(encoded) => encoded.part.needs(variables),
        }
    }
}

impl Encoded {
    fn write<'x>(
        &'x self,
        env: &Env<'x>,
        usage: Use,
        scratch: &mut Scratch<'x>,
        out: &mut Writer<'_>,
    ) -> Option<()> {
        match &self.part {
            Part::Sample(expression, flags) => {
                let value = expression.eval(env, scratch).ok().map(|sample| sample.value);
                let item = Item::of(value, flags.binary, scratch).as_type(self.kind, scratch);
                self.encoding.put(item, out)
            }
            Part::Alias(alias, _) if alias.is_list() => alias.write_list(env, self.encoding, scratch, out),
            Part::Alias(alias, flags) => {
                let mut text = Writer::new(scratch.take_half());
                alias.write(env, Flags { bare: true, quote: false, ..*flags }, usage, scratch, &mut text);
                let text = text.into_written().unwrap_or_default(); // empty if it does not fit
                let item = match text {
                    b"" if alias.may_be_empty() => Item::Text(b""),
                    b"" if alias.may_vanish() => Item::Null,
                    b"" => Item::Missing,
                    text if alias.is_number() && !flags.hex => Item::Number(crate::parse_int(text)),
                    text => Item::Text(text),
                };
                self.encoding.put(item.as_type(self.kind, scratch), out)
            }
            Part::Text(_) | Part::Space | Part::Encoded(_) => Some(()),
        }
    }
}

/// Wraps parts that have an encoding. A map only keeps parts with names.
fn encoded(parts: Vec<Part>, named: Vec<Named>, map: Option<Encoding>) -> Vec<Part> {
    let mut named = named.into_iter().peekable();
    let mut made = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        match named.next_if(|named| named.part == index) {
            Some(Named { name, .. }) if map.is_some() && name.is_empty() => {}
            Some(Named { name, kind, encoding, part: _ }) => made.push(match map.or(encoding) {
                Some(encoding) => Part::Encoded(Box::new(Encoded { name, part, kind, encoding })),
                None => part,
            }),
            None if map.is_some() => {}
            None => made.push(part),
        }
    }
    made
}

/// Turns spaces that are always written into text, and joins adjacent texts.
fn settled(parts: Vec<Part>) -> Vec<Part> {
    let vanishes = |part: Option<&Part>| matches!(part, Some(Part::Alias(alias, _)) if alias.may_vanish());
    let mut settled: Vec<Part> = Vec::with_capacity(parts.len());
    let mut before_vanishes = true; // a space at the start is omitted
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

/// Parses `(name:type)` and `{flags}` after the percent sign at `at`.
fn head(text: &[u8], at: usize, inherited: Flags, map: Option<Encoding>) -> Result<Head, Error> {
    let mut flags = inherited;
    let (mut name, mut kind): (Box<[u8]>, _) = (Box::default(), None);
    let mut json = matches!(map, Some(Encoding::Json { .. }));
    let mut utf8 = matches!(map, Some(Encoding::Json { utf8: true }));
    let mut cbor = matches!(map, Some(Encoding::Cbor { .. }));
    let mut at = at + 1;
    if text.get(at) == Some(&b'(') {
        let Some(close) = memchr::memchr(b')', &text[at..]).map(|offset| at + offset) else {
            return Err(Error::new(at, "'%(' expects ')' behind the name, found the end of the format"));
        };
        let inside = &text[at + 1..close];
        let colon = memchr::memchr(b':', inside).unwrap_or(inside.len());
        name = inside[..colon].into();
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if let Some(wrong) = name.iter().position(|byte| !is_name(byte)) {
            let message = format!(
                "'%(' expects letters, digits, '_' and '-' in a name, found '{}'",
                Shown(&name[wrong..=wrong])
            );
            return Err(Error::new(at + 1 + wrong, message));
        }
        if let Some(word) = inside.get(colon + 1..) {
            kind = ItemType::by_name(word);
            if kind.is_none() {
                return Err(Error::new(at + 2 + colon, none_of("%(", ItemType::NAMES, word)));
            }
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
                b"bin" => flags.binary = on,
                b"json" => json = on,
                b"utf8" => utf8 = on,
                b"cbor" => cbor = on,
                name => {
                    let known = ["Q", "X", "E", "bin", "json", "utf8", "cbor"];
                    return Err(Error::new(start + 1, none_of("%{", known, name)));
                }
            }
            start += flag.len() + 1;
        }
        at = close + 1;
    }
    let encoding = match (json, cbor) {
        (true, _) => Some(Encoding::Json { utf8 }),
        (false, true) => Some(Encoding::Cbor { raw: flags.binary }),
        (false, false) => None,
    };
    Ok(Head { flags, encoding, name, kind, at })
}

/// Writes text according to flags and usage.
fn put_text(text: Option<&[u8]>, flags: Flags, usage: Use, out: &mut Writer<'_>) -> Option<()> {
    let text = text.filter(|text| !text.is_empty());
    if flags.bare {
        return out.put(text.unwrap_or_default());
    }
    if flags.quote {
        out.push(b'"')?;
    }
    match (text, usage) {
        (Some(text), _) if flags.binary => out.put(text)?,
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

/// Writes a number according to the flags.
fn put_int(n: i64, flags: Flags, out: &mut Writer<'_>) -> Option<()> {
    if flags.hex { out.print(format_args!("{n:04X}")) } else { out.put_number(n, 1) }
}
