//! Stick tables: `show table`, `set table`, `clear table`, in HAProxy's form.

use super::Call;
use crate::level::Level;
use crate::reply::ReplyError;
use manylane_expr::{DataType, Datum, Type, Value};
use manylane_sched::Time;
use manylane_stick::{Entry, MAX_KEY_BYTES, Table, server_key_text, with_key};
use manylane_sync::Arc;
use std::fmt::Write;

/// Entries of one call of [`Table::each`].
const AT_ONCE: u32 = 64;

/// Entries to walk, absent ones included, before the lane runs other tasks, whatever they added to the
/// answer.
const MOST_WALKED: u32 = 256;

/// A comparison with a number of the entry. An entry is shown if all filters of the command hold.
struct Filter {
    datum: Datum,
    operator: &'static str,
    /// Any signed or unsigned number of 64 bits.
    value: i128,
}

impl Filter {
    fn holds(&self, entry: &Entry<'_>, now: u64) -> bool {
        let number = match self.datum.data {
            DataType::ServerKey => 0, // as with HAProxy: it is not a number
            kind => value_of(kind, entry.get(self.datum, now).unwrap_or_default()), // the table has this type
        };
        match self.operator {
            "eq" => number == self.value,
            "ne" => number != self.value,
            "le" => number <= self.value,
            "ge" => number >= self.value,
            "lt" => number < self.value,
            _ => number > self.value,
        }
    }
}

/// The entries that a command selects.
enum EntrySelection {
    Key(String),
    Number(u32),
    Those(Vec<Filter>),
}

/// Parses a signed or unsigned number of 64 bits.
fn parse_number(word: &str) -> Option<i128> {
    word.parse::<i64>().map(i128::from).or_else(|_| word.parse::<u64>().map(i128::from)).ok()
}

/// Returns the value of what an entry keeps: the number of a server has a sign, as with HAProxy.
fn value_of(kind: DataType, kept: u64) -> i128 {
    match kind {
        DataType::ServerId => (kept as u32).cast_signed().into(),
        _ => kept.into(),
    }
}

/// Returns what an entry keeps of a value. As with HAProxy, a negative one loses its sign: its lower bits are
/// kept, 64 of bytes and 32 of others.
fn kept_of(kind: DataType, value: i128) -> u64 {
    match kind {
        DataType::BytesInCnt | DataType::BytesOutCnt => value as u64,
        _ if value < 0 => (value as u32).into(),
        _ => value as u64,
    }
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

fn find(call: &mut Call<'_, '_>) -> Option<(Box<str>, Arc<Table>)> {
    let name = call.word(0);
    let found = call.generation.stick_tables.iter().find(|table| *table.name == *name);
    match found {
        Some(found) => {
            call.words = &call.words[1..];
            Some((found.name.clone(), found.table.clone()))
        }
        None => {
            call.error("No such table");
            None
        }
    }
}

/// Parses `data.gpc0` or `data.gpc[1]`. `None` if the word has another form, `Some(Err)` if it is wrong.
fn datum(word: &str, table: &Table) -> Option<Result<Datum, &'static str>> {
    let name = word.strip_prefix("data.")?;
    let (name, index) = match name.split_once('[') {
        Some((name, rest)) => match rest.strip_suffix(']').and_then(|digits| digits.parse().ok()) {
            Some(index) => (name, index),
            None => return Some(Err("Unknown data type")),
        },
        None => (name, 0),
    };
    Some(match DataType::by_name(name.as_bytes()) {
        None => Err("Unknown data type"),
        Some(data) if table.keeps(Datum { data, index }) => Ok(Datum { data, index }),
        Some(data) if table.keeps(Datum { data, index: 0 }) => Err("index out of range in this data array"),
        Some(_) => Err("Data type not stored in this table"),
    })
}

const NO_POINTER: &str = "Pointer expected (0xffff notation)";
const NO_SELECTION: &str =
    "Optional argument only supports \"data.<store_data_type>\" <operator> <value> or key <key> or ptr <ptr>";
const CLEAR_USAGE: &str = "Required arguments: <table> \"data.<store_data_type>\" <operator> <value> or \
                           <table> key <key> or <table> ptr <ptr>";
const IN_USE: &str = "Entry currently in use, cannot remove";
const NO_ENTRY: &str = "No entry can be found matching ptr.";

/// Parses an entry's number as `show table` shows it. A number that is too large gives 0, which no entry has.
/// `None` if it is not a number.
fn number_of(word: &str) -> Option<u32> {
    let number = u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()?;
    Some(u32::try_from(number).unwrap_or_default())
}

/// Parses the words after the table's name. If they are wrong, replies with an error and returns `None`. The
/// error is `other` for an unknown word.
fn chosen(call: &mut Call<'_, '_>, table: &Table, other: &str) -> Option<EntrySelection> {
    match call.words {
        [word, key, ..] if word == "key" => return Some(EntrySelection::Key(key.clone())),
        [word] if word == "key" => {
            call.error("Key value expected");
            return None;
        }
        [word, rest @ ..] if word == "ptr" => {
            let number = rest.first().and_then(|word| number_of(word));
            if number.is_none() {
                call.error(NO_POINTER);
            }
            return number.map(EntrySelection::Number);
        }
        _ => {}
    }
    let mut filters = Vec::new();
    for (index, words) in call.words.chunks(3).enumerate() {
        let of_entry = |what: &str| format!("Filter entry #{}: {what}", index + 1);
        let wrong = match datum(&words[0], table) {
            None => other.to_owned(),
            Some(Err(why)) => of_entry(why),
            Some(Ok(datum)) => {
                const OPERATORS: [&str; 6] = ["eq", "ne", "le", "ge", "lt", "gt"];
                let operator =
                    words.get(1).and_then(|word| OPERATORS.into_iter().find(|known| known == word));
                match (operator, words.get(2).and_then(|word| parse_number(word))) {
                    (None, _) => {
                        of_entry("Require and operator among \"eq\", \"ne\", \"le\", \"ge\", \"lt\", \"gt\"")
                    }
                    (_, None) => of_entry("Require a valid integer value to compare against"),
                    (Some(operator), Some(value)) => {
                        filters.push(Filter { datum, operator, value });
                        continue;
                    }
                }
            }
        };
        call.error(&wrong);
        return None;
    }
    Some(EntrySelection::Those(filters))
}

/// Calls `work` with the words of a key. `None` if the key does not parse as the table's type.
fn with_words<R>(table: &Table, key: &str, work: impl FnOnce(&[u64]) -> R) -> Option<R> {
    let value = match table.spec().key {
        Type::Ipv4 => Value::Ipv4(key.parse().ok()?),
        Type::Ipv6 => Value::Ipv6(key.parse().ok()?),
        Type::Str => Value::Str(key.as_bytes()),
        Type::Bin => Value::Bin(key.as_bytes()),
        _ => Value::Int(manylane_expr::parse_int(key.as_bytes())),
    };
    with_key(table.spec(), value, work)
}

/// Escapes characters that would end the value.
fn escaped(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = match byte {
            b' ' | b'\\' | b'=' => write!(out, "\\{}", char::from(*byte)),
            b'\t' => write!(out, "\\t"),
            b'\n' => write!(out, "\\n"),
            b'\r' => write!(out, "\\r"),
            0x1b => write!(out, "\\e"),
            0x21..=0x7e => write!(out, "{}", char::from(*byte)),
            byte => write!(out, "\\x{byte:02x}"),
        };
    }
}

/// The line of an entry.
fn line(entry: &Entry<'_>, table: &Table, now: u64, out: &mut String) {
    let mut bytes = [0; MAX_KEY_BYTES];
    let _ = write!(out, "{:#x}: key=", entry.number());
    let _ = match entry.key(&mut bytes) {
        Value::Ipv4(addr) => write!(out, "{addr}"),
        Value::Ipv6(addr) => write!(out, "{addr}"),
        Value::Int(n) => write!(out, "{n}"),
        Value::Str(text) => {
            escaped(text, out);
            Ok(())
        }
        Value::Bin(data) => data.iter().try_for_each(|byte| write!(out, "{byte:02X}")),
        Value::Bool(_) | Value::Method(_) => Ok(()),
    };
    let holders = entry.holders().saturating_sub(1); // without this one
    let _ = write!(out, " use={holders} exp={} shard=0", entry.expires_in(now));
    for data in &table.spec().data {
        for index in 0..data.count {
            let number = entry.get(Datum { data: data.kind, index }, now).unwrap_or_default();
            let name = data.kind.name();
            let _ = match data.kind {
                DataType::ServerKey => write!(out, " {name}={}", server_key_text(number).unwrap_or("-")),
                DataType::Gpt | DataType::Gpc => write!(out, " {name}{index}={number}"),
                DataType::GpcRate => write!(out, " gpc{index}_rate({})={number}", data.period),
                kind if kind.is_rate() => write!(out, " {name}({})={number}", data.period),
                kind => write!(out, " {name}={}", value_of(kind, number)),
            };
        }
    }
    out.push('\n');
}

fn head(name: &str, table: &Table) -> String {
    let kind = match table.spec().key {
        Type::Ipv4 => "ip",
        Type::Ipv6 => "ipv6",
        Type::Str => "string",
        Type::Bin => "binary",
        _ => "integer",
    };
    format!("# table: {name}, type: {kind}, size:{}, used:{}\n", table.spec().size, table.used())
}

/// `show table`
pub(super) async fn show(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    if call.words.is_empty() {
        let generation = call.generation.clone();
        for table in generation.stick_tables.iter().rev() {
            call.reply.put(&head(&table.name, &table.table));
            call.reply.breathe().await?;
        }
        return Ok(());
    }
    let Some((name, table)) = find(call) else { return Ok(()) };
    let Some(chosen) = chosen(call, &table, NO_SELECTION) else { return Ok(()) };
    let may_see = call.settings.level >= Level::Operator;
    let now = millis(call.here.now());
    let mut out = String::new();
    let filters = match chosen {
        EntrySelection::Key(_) | EntrySelection::Number(_) if !may_see => {
            call.error("Permission denied");
            return Ok(());
        }
        EntrySelection::Key(key) => {
            let found = with_words(&table, &key, |words| {
                table.get(words, now).map(|entry| line(&entry, &table, now, &mut out))
            });
            match found {
                None => call.error("Invalid key"),
                Some(None) => {}
                Some(Some(())) => {
                    call.reply.put(&head(&name, &table));
                    call.reply.put(&out);
                }
            }
            return Ok(());
        }
        EntrySelection::Number(number) => {
            table.each(number, now, |entry| {
                if entry.number() == number {
                    line(entry, &table, now, &mut out);
                }
                false
            });
            if out.is_empty() {
                call.error(NO_ENTRY);
            } else {
                call.reply.put(&head(&name, &table));
                call.reply.put(&out);
            }
            return Ok(());
        }
        EntrySelection::Those(filters) => filters,
    };
    call.reply.put(&head(&name, &table));
    if !may_see {
        call.reply.put("# contents not dumped due to insufficient privileges\n");
        return Ok(());
    }
    let (mut next, mut walked) = (Some(0), 0);
    while let Some(from) = next {
        let (mut visited, now) = (0, millis(call.here.now()));
        next = table.each(from, now, |entry| {
            if filters.iter().all(|filter| filter.holds(entry, now)) {
                line(entry, &table, now, &mut out);
            }
            visited += 1;
            visited < AT_ONCE
        });
        call.reply.put(&out);
        out.clear();
        walked += next.map_or(0, |next| next - from);
        if call.reply.breathe().await? {
            walked = 0;
        } else if walked >= MOST_WALKED {
            // A filter may hold for few entries, and most of a table may be absent.
            call.here.yield_now().await;
            walked = 0;
        }
    }
    Ok(())
}

/// `set table`
pub(super) fn set(call: &mut Call<'_, '_>) {
    if call.words.is_empty() {
        return call.error(
            "Required arguments: <table> key <key> [data.<store_data_type> <value>]* or <table> ptr <ptr> \
             [data.<store_data_type> <value>]*",
        );
    }
    let Some((_, table)) = find(call) else { return };
    let [word, key, pairs @ ..] = call.words else {
        return match call.words {
            [word] if word == "key" => call.error("Key value expected"),
            [word] if word == "ptr" => call.error(NO_POINTER),
            [word] => refuse_filter(call, word),
            _ => {}
        };
    };
    let by_number = word == "ptr";
    if word != "key" && !by_number {
        return refuse_filter(call, word);
    }
    if table.spec().key == Type::Bin && !by_number {
        return call.error(
            "Inserting keys into tables of type other than ip, ipv6, string and integer is not supported",
        );
    }
    let mut data = Vec::new();
    for pair in pairs.chunks(2) {
        let wrong = match datum(&pair[0], &table) {
            None => "\"data.<type>\" followed by a value expected",
            Some(Err(why)) => why,
            Some(Ok(datum)) => match pair.get(1).and_then(|word| parse_number(word)) {
                Some(number) => {
                    data.push((datum, kept_of(datum.data, number)));
                    continue;
                }
                None => "Require a valid integer value to store",
            },
        };
        return call.error(wrong);
    }
    let now = millis(call.here.now());
    let fill = |entry: &Entry<'_>| {
        // As with HAProxy: a server's name is not a number and is left as it is.
        let numbers = data.iter().filter(|(datum, _)| datum.data != DataType::ServerKey);
        numbers.for_each(|(datum, number)| _ = entry.set(*datum, *number, now));
        entry.touch(now);
    };
    if by_number {
        let Some(number) = number_of(key) else { return call.error(NO_POINTER) };
        let mut found = false;
        table.each(number, now, |entry| {
            if entry.number() == number {
                found = true;
                fill(entry);
            }
            false
        });
        if !found {
            call.error(NO_ENTRY);
        }
        return;
    }
    let made = with_words(&table, key, |words| table.get_or_make(words, now).map(|entry| fill(&entry)));
    match made {
        None => call.error("Invalid key"),
        Some(None) => call.error("Unable to allocate a new entry"),
        Some(Some(())) => {}
    }
}

fn refuse_filter(call: &mut Call<'_, '_>, word: &str) {
    if word.starts_with("data.") {
        call.error("content-based lookup is only supported with the \"show\" and \"clear\" actions");
    } else {
        call.error(NO_SELECTION);
    }
}

/// `clear table`
pub(super) async fn clear(call: &mut Call<'_, '_>) {
    if call.words.is_empty() {
        return call.error(CLEAR_USAGE);
    }
    let Some((_, table)) = find(call) else { return };
    let Some(chosen) = chosen(call, &table, CLEAR_USAGE) else { return };
    let now = millis(call.here.now());
    match chosen {
        EntrySelection::Key(key) => match with_words(&table, &key, |words| table.clear_key(words)) {
            None => call.error("Invalid key"),
            Some(false) => call.error(IN_USE),
            Some(true) => {}
        },
        EntrySelection::Number(number) => match table.clear_number(number, now) {
            None => call.error(NO_ENTRY),
            Some(false) => call.error(IN_USE),
            Some(true) => {}
        },
        EntrySelection::Those(filters) => {
            for mut clearing in table.clearing() {
                while clearing.step(|entry| filters.iter().all(|filter| filter.holds(entry, now))) {
                    call.here.yield_now().await;
                }
                drop(clearing);
                call.here.yield_now().await;
            }
        }
    }
}
