//! Grammars of keywords that have one of their own.

mod listen;
mod log;
mod proxy;
mod server;

pub(crate) use listen::{bind, bind_line, octal};
pub(crate) use log::{LOG_FORMATS, log};
pub(crate) use proxy::{
    balance, capture, cookie, retry_on, source, split_condition, use_backend, use_server,
};
pub(crate) use server::{
    default_server, dispatch, nameserver, proxy_tlv, proxy_v2_options, ring_server, server, server_interface,
    server_source, server_template, server_usesrc,
};

use super::{Builder, Line};
use crate::lex::Word;
use crate::source::Pos;
use crate::table::{SectionKind, Shape, Table};
use crate::tree::Set;
use manylane_net::{Address, Rules};

/// Offset of the first byte that names of sections and servers may not have.
pub(crate) fn bad_name_byte(name: &[u8]) -> Option<usize> {
    name.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b".:_-".contains(byte)))
}

/// An address, or a report that points at what is wrong in it.
pub(super) fn address(b: &mut Builder<'_>, name: &str, word: &Word, rules: &Rules) -> Option<Set<Address>> {
    let Some(text) = word.text() else {
        b.found.alert(word.pos(), format!("'{name}' : '{}' is no address, it is not UTF-8", word.shown()));
        return None;
    };
    match Address::parse(text, rules) {
        Ok(value) => Some(Set { value, pos: word.pos() }),
        Err(error) => {
            let message = format!("'{name}' : {} in '{}', {}", error.wrong(), word.shown(), error.remedy());
            b.found.alert(word.pos_at(error.span().start), message);
            None
        }
    }
}

/// Obeys the options in `words` that are rows of `place`. `owner` is what they belong to, for messages.
fn options(b: &mut Builder<'_>, owner: &str, place: SectionKind, words: &[Word]) {
    let mut rest = words;
    while let [head, after @ ..] = rest {
        let name = head.bytes().split(|byte| *byte == b'(').next().unwrap_or_default();
        let keyword = std::str::from_utf8(name).ok().and_then(|name| Table::get().find(name, place));
        let Some(keyword) =
            keyword.filter(|_| name.len() == head.bytes().len() || name == b"set-proxy-v2-tlv-fmt")
        else {
            if b.found.is_full() {
                return b.found.alert(head.pos(), "unknown keyword");
            }
            let known =
                Table::get().rows().iter().filter(|row| row.places.contains(place)).map(|row| row.name);
            let message =
                format!("'{owner}' : unknown keyword '{}'{}", head.shown(), super::proposal(head, known));
            b.found.alert(head.pos(), message);
            // What follows an unknown option may be its value: guessing which would only make more noise.
            return;
        };
        let takes = match &keyword.shape {
            Shape::Flag => 0,
            Shape::Args(args) => args.len(),
            Shape::Own(_, words) => *words,
        };
        if after.len() < takes {
            return b.found.alert(head.pos(), format!("'{owner}' : '{}' : missing value", keyword.name));
        }
        b.obey(keyword, super::Prefix::None, head, &after[..takes]);
        rest = &after[takes..];
    }
}

/// For messages: a word in quotes, or nothing.
fn got(word: Option<&Word>) -> String {
    word.map_or_else(|| " and got nothing".into(), |word| format!(" and got '{}'", word.shown()))
}

/// Where a word stands, or the end of the line.
fn at(word: Option<&Word>, line: &Line<'_>) -> Pos {
    word.map_or_else(|| line.end(), Word::pos)
}
