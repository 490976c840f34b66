//! `stick-table`, and the `stick` rules that find and store servers in tables.

use super::{Builder, Line, split_condition};
use crate::lex::Word;
use crate::tree::{StickData, StickKind, StickRule, StickTable};
use crate::value::{self, Unit, ValueError};
use manylane_expr::{DataType, Type};
use std::num::NonZeroU32;
use std::time::Duration;

/// Default length of binary and text keys, and their maximum, in bytes. Each request compares keys.
const KEY_BYTES: i64 = 32;
const TEXT_KEY_BYTES: usize = 31;
const MAX_KEY_BYTES: i64 = 1024;

/// Maximum number of entries. Entry numbers have 28 bits.
const MAX_SIZE: u64 = (1 << 28) - (1 << 16);

/// Maximum number of elements of `gpt`, `gpc` and `gpc_rate`, as in HAProxy.
const MAX_ELEMENTS: i64 = 100;

/// Maximum period of a rate. Its times are 32-bit milliseconds that are compared by difference.
const LONGEST_PERIOD: Duration = Duration::from_millis(1 << 30);

/// Maximum number of bytes that a byte rate counts as one, as in HAProxy.
const MAX_BYTES_FACTOR: i64 = 1024;

const OPTIONS: [&str; 10] = [
    "type",
    "size",
    "expire",
    "nopurge",
    "srvkey",
    "peers",
    "recv-only",
    "write-to",
    "brates-factor",
    "store",
];

pub(crate) fn table(b: &mut Builder<'_>, line: &Line<'_>) {
    if b.proxy().stick_table.is_some() {
        let message = "'stick-table' : a proxy has one table, found a second";
        return b.found.alert(line.pos(), message);
    }
    let table = read(b, line, line.words);
    b.proxy().stick_table = table;
}

/// `stick match`, `stick on`, `stick store-request`, `stick store-response`
pub(crate) fn rule(b: &mut Builder<'_>, line: &Line<'_>) {
    let kind = match line.keyword.name {
        "stick match" => StickKind::Match,
        "stick store-request" => StickKind::StoreRequest,
        "stick store-response" => StickKind::StoreResponse,
        _ => StickKind::On,
    };
    let (words, condition) = split_condition(b, line);
    let (key, table) = match &words[..] {
        [key @ .., option, table] if *option == *"table" => (key, Some(table.clone())),
        key => (key, None),
    };
    if key.is_empty() || key.iter().any(|word| *word == *"table") {
        let message = format!(
            "'{}' expects <pattern> [table <name>] [if|unless <condition>], found '{}'",
            line.keyword.name,
            words.iter().map(|word| word.shown().to_string()).collect::<Vec<_>>().join(" ")
        );
        return b.found.alert(line.pos(), message);
    }
    b.proxy().stick_rules.push(StickRule { kind, key: key.to_vec(), table, condition, pos: line.pos() });
}

fn wrong<T>(b: &mut Builder<'_>, word: &Word, at: usize, message: &str) -> Option<T> {
    b.found.alert(word.pos_at(at), format!("'stick-table' : {message}"));
    None
}

/// Parses the value of the option at `index`, or reports an error.
fn option<'l, T>(
    b: &mut Builder<'_>,
    line: &Line<'_>,
    words: &'l [Word],
    index: usize,
    read: impl FnOnce(&'l [u8]) -> Result<T, ValueError>,
) -> Option<T> {
    let name = words[index].shown();
    let Some(word) = words.get(index + 1) else {
        b.found.alert(line.end(), format!("'stick-table' : '{name}' expects a value, found none"));
        return None;
    };
    match read(word.bytes()) {
        Ok(value) => Some(value),
        Err(error) => {
            let message = format!("'{name}' cannot be '{}': {}", word.shown(), error.message);
            wrong(b, word, error.at, &message)
        }
    }
}

/// Parses the options of a table.
pub(super) fn read(b: &mut Builder<'_>, line: &Line<'_>, words: &[Word]) -> Option<StickTable> {
    let (mut key, mut key_bytes, mut size, mut expire) = (None, KEY_BYTES as usize, None, None);
    let (mut nopurge, mut by_address, mut data) = (false, false, Vec::<StickData>::new());
    let (mut peers, mut receives_only, mut write_to) = (None, false, None);
    let mut bytes_factor = NonZeroU32::MIN;
    let mut index = 0;
    while let Some(word) = words.get(index) {
        match word.bytes() {
            b"type" => {
                let Some(kind) = words.get(index + 1) else {
                    b.found.alert(line.end(), "'stick-table' : 'type' expects a type, found none");
                    return None;
                };
                key = Some(match kind.bytes() {
                    b"ip" | b"ipv4" => Type::Ipv4,
                    b"ipv6" => Type::Ipv6,
                    b"integer" => Type::Int,
                    b"string" => Type::Str,
                    b"binary" => Type::Bin,
                    name => {
                        const KINDS: [&str; 6] = ["ip", "ipv4", "ipv6", "integer", "string", "binary"];
                        let message = manylane_expr::none_of("stick-table type", KINDS, name);
                        b.found.alert(kind.pos(), message);
                        return None;
                    }
                });
                let has_length = matches!(key, Some(Type::Str | Type::Bin));
                if key == Some(Type::Str) {
                    key_bytes = TEXT_KEY_BYTES; // as HAProxy, which reserves a byte for the terminator
                }
                if has_length && words.get(index + 2).is_some_and(|word| *word == *"len") {
                    let read = |bytes: &[u8]| value::integer(bytes, 1, MAX_KEY_BYTES);
                    key_bytes = option(b, line, words, index + 2, read)? as usize;
                    index += 2;
                }
                index += 2;
            }
            b"size" => {
                size = Some(option(b, line, words, index, |bytes| value::size(bytes, 1, MAX_SIZE))?);
                index += 2;
            }
            b"expire" => {
                let time = option(b, line, words, index, |bytes| value::time(bytes, Unit::Ms))?;
                if time.is_zero() {
                    let word = &words[index + 1];
                    let message = format!("'expire' expects a time above 0, found '{}'", word.shown());
                    return wrong(b, word, 0, &message);
                }
                expire = Some(time);
                index += 2;
            }
            b"nopurge" => {
                nopurge = true;
                index += 1;
            }
            b"srvkey" => {
                let Some(kind) = words.get(index + 1) else {
                    b.found.alert(line.end(), "'stick-table' : 'srvkey' expects name or addr, found none");
                    return None;
                };
                by_address = match kind.bytes() {
                    b"name" => false,
                    b"addr" => true,
                    name => {
                        let message = manylane_expr::none_of("stick-table srvkey", ["name", "addr"], name);
                        b.found.alert(kind.pos(), message);
                        return None;
                    }
                };
                index += 2;
            }
            b"peers" => {
                let Some(name) = words.get(index + 1) else {
                    b.found.alert(line.end(), "'stick-table' : 'peers' expects a section, found none");
                    return None;
                };
                peers = Some(name.clone());
                index += 2;
            }
            b"recv-only" => {
                receives_only = true;
                index += 1;
            }
            b"write-to" => {
                let Some(name) = words.get(index + 1) else {
                    b.found.alert(line.end(), "'stick-table' : 'write-to' expects a table, found none");
                    return None;
                };
                write_to = Some(name.clone());
                index += 2;
            }
            b"brates-factor" => {
                let read = |bytes: &[u8]| value::integer(bytes, 1, MAX_BYTES_FACTOR);
                let factor = option(b, line, words, index, read)?;
                bytes_factor = NonZeroU32::new(factor as u32)?; // in range, checked by `option`
                index += 2;
            }
            b"store" => {
                let Some(word) = words.get(index + 1) else {
                    b.found.alert(line.end(), "'stick-table' : 'store' expects data types, found none");
                    return None;
                };
                store(b, word, &mut data)?;
                index += 2;
            }
            name => {
                b.found.alert(word.pos(), manylane_expr::none_of("stick-table", OPTIONS, name));
                return None;
            }
        }
    }
    let (Some(key), Some(size)) = (key, size) else {
        let missing = if key.is_none() { "type" } else { "size" };
        b.found.alert(line.end(), format!("'stick-table' expects '{missing}', found none"));
        return None;
    };
    data.sort_by_key(|data| data.kind);
    let size = u32::try_from(size).ok()?; // in range, checked by `option`
    Some(StickTable {
        key,
        key_bytes,
        size,
        expire,
        nopurge,
        by_address,
        data,
        peers,
        receives_only,
        write_to,
        bytes_factor,
        pos: line.pos(),
    })
}

/// Parses `gpc0,http_req_rate(10s),gpc_rate(4,1m)`.
fn store(b: &mut Builder<'_>, word: &Word, data: &mut Vec<StickData>) -> Option<()> {
    let bytes = word.bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = rest.iter().position(|byte| matches!(byte, b',' | b'(')).unwrap_or(rest.len());
        let name = &rest[..end];
        let Some(kind) = DataType::by_name(name) else {
            let known = DataType::ALL.map(DataType::name);
            b.found.alert(word.pos_at(at), manylane_expr::none_of("stick-table store", known, name));
            return None;
        };
        let (mut arguments, mut next) = (Vec::new(), at + end);
        if rest.get(end) == Some(&b'(') {
            let Some(close) = rest.iter().position(|byte| *byte == b')') else {
                return wrong(b, word, at + end, "expected a closing parenthesis, found none");
            };
            let mut from = at + end + 1;
            for argument in rest[end + 1..close].split(|byte| *byte == b',') {
                arguments.push((from, argument));
                from += argument.len() + 1;
            }
            next = at + close + 1;
        }
        let expected = usize::from(kind.is_array()) + usize::from(kind.is_rate());
        if arguments.len() != expected {
            let shape = match (kind.is_array(), kind.is_rate()) {
                (true, true) => "(<elements>,<period>)",
                (true, false) => "(<elements>)",
                (false, true) => "(<period>)",
                (false, false) => "no argument",
            };
            let found = match arguments.len() {
                0 => "none".to_owned(),
                number => format!("{number}"),
            };
            let message = format!("'{}' expects {shape}, found {found}", kind.name());
            return wrong(b, word, at, &message);
        }
        let mut arguments = arguments.into_iter();
        let (mut count, mut period) = (1, Duration::ZERO);
        if kind.is_array()
            && let Some((from, argument)) = arguments.next()
        {
            match value::integer(argument, 1, MAX_ELEMENTS) {
                Ok(number) => count = number as u32,
                Err(error) => {
                    return wrong(b, word, from + error.at, &format!("'{}': {}", kind.name(), error.message));
                }
            }
        }
        if kind.is_rate()
            && let Some((from, argument)) = arguments.next()
        {
            match value::time(argument, Unit::Ms) {
                Ok(time) if (Duration::from_millis(1)..=LONGEST_PERIOD).contains(&time) => period = time,
                Ok(_) => {
                    let message = format!("'{}' expects a period from 1ms to 12 days", kind.name());
                    return wrong(b, word, from, &message);
                }
                Err(error) => {
                    return wrong(b, word, from + error.at, &format!("'{}': {}", kind.name(), error.message));
                }
            }
        }
        if data.iter().any(|known| known.kind == kind) {
            return wrong(b, word, at, &format!("'{}' is stored already", kind.name()));
        }
        data.push(StickData { kind, count, period });
        match bytes.get(next) {
            None => break,
            Some(b',') => at = next + 1,
            Some(_) => return wrong(b, word, next, "expected ',' between data types"),
        }
    }
    Some(())
}
