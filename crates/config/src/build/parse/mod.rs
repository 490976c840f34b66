//! Parsers of keywords with their own grammar.

mod filter;
mod listen;
mod log;
mod peers;
mod proxy;
mod server;
mod stick;

pub(crate) use filter::filter;
pub(crate) use listen::{bind, bind_line, bind_line_with, dgram_bind, octal};
pub(crate) use log::{LOG_FORMATS, log};
pub(crate) use peers::{
    bind as peers_bind, default_bind as peers_default_bind, default_server as peers_default_server, peer,
    table as peers_table,
};
pub use proxy::algorithms;
pub(super) use proxy::algorithms_for_logs;
pub(crate) use proxy::{
    RDP_TOKEN, balance, capture, cookie, persist_rdp, retry_on, source, split_condition, use_backend,
    use_server,
};
pub(crate) use server::{
    default_server, dispatch, mailer, nameserver, proxy_tlv, proxy_v2_options, ring_server, server,
    server_interface, server_socks4, server_source, server_template, server_usesrc,
};
pub(crate) use stick::{rule as stick_rule, table as stick_table};

use super::{Builder, Line};
use crate::lex::{Environment, Word};
use crate::source::Pos;
use crate::table::{KeywordContext, Shape, Table};
use crate::tree::Set;
use manylane_net::{Address, Rules};
use std::borrow::Cow;

/// Offset of the first byte that is invalid in names of sections and servers.
pub(crate) fn bad_name_byte(name: &[u8]) -> Option<usize> {
    name.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b".:_-".contains(byte)))
}

/// Parses an address, or reports the error at its position.
pub(super) fn address(b: &mut Builder<'_>, name: &str, word: &Word, rules: &Rules) -> Option<Set<Address>> {
    let Some(text) = word.text() else {
        b.found.alert(
            word.pos(),
            format!("'{name}' expects an address, found '{}', which is not UTF-8", word.shown()),
        );
        return None;
    };
    let expanded = expanded(&b.environment, text);
    if expanded.is_empty() && !text.is_empty() {
        let message = format!("'{name}' expects an address, and '{text}' is empty: is the variable set?");
        b.found.alert(word.pos(), message);
        return None;
    }
    match Address::parse(&expanded, rules) {
        Ok(value) => Some(Set { value, pos: word.pos() }),
        Err(error) if *expanded != *text => {
            b.found.alert(word.pos(), format!("'{name}' : {}; {}", error.wrong_in(), error.remedy()));
            None
        }
        Err(error) => {
            let message = format!("'{name}' : {}; {}", error.wrong_in(), error.remedy());
            b.found.alert(word.pos_at(error.span().start), message);
            None
        }
    }
}

/// An address with `$NAME` and `${NAME}` replaced from the environment. HAProxy also does this outside of
/// double quotes. Unset variables are empty.
fn expanded<'t>(environment: &Environment, text: &'t str) -> Cow<'t, str> {
    if !text.contains('$') {
        return text.into();
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let braced = after.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let end = || after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        let (name, behind) = braced.unwrap_or_else(|| after.split_at(end()));
        let value = environment.get(name.as_bytes()).unwrap_or_default();
        out.push_str(&String::from_utf8_lossy(value));
        rest = behind;
    }
    out.push_str(rest);
    out.into()
}

/// Runs the handlers of the options in `words` that are rows of `context`.
fn options(b: &mut Builder<'_>, context: KeywordContext, words: &[Word]) {
    let mut rest = words;
    while let [head, after @ ..] = rest {
        let name = head.bytes().split(|byte| *byte == b'(').next().unwrap_or_default();
        let keyword = std::str::from_utf8(name).ok().and_then(|name| Table::get().find(name, context));
        let Some(keyword) =
            keyword.filter(|_| name.len() == head.bytes().len() || name == b"set-proxy-v2-tlv-fmt")
        else {
            let known =
                Table::get().rows().iter().filter(|row| row.contexts.contains(context)).map(|row| row.name);
            let message = format!("unknown keyword '{}' of a '{}' line", head.shown_name(), context.name());
            b.found.alert_with(head.pos(), message, || match super::proposal(head, known) {
                none if none.is_empty() => "; docs/configuration.md lists those that there are".into(),
                guess => guess,
            });
            // The next word may be the value of the unknown option. Stop, since guessing would add false
            // errors.
            return;
        };
        let takes = match &keyword.shape {
            Shape::Flag => 0,
            Shape::Args(args) => args.len(),
            Shape::Own(_, words) => *words,
        };
        // As the last word of the line it is a TLV without a value.
        let is_empty = after.is_empty() && name == b"set-proxy-v2-tlv-fmt";
        if after.len() < takes && !is_empty {
            return b.found.alert(head.pos(), keyword.expects(after.len()));
        }
        let takes = takes.min(after.len());
        let mut arguments = Cow::Borrowed(&after[..takes]);
        if is_empty {
            arguments = vec![Word::plain("", head.pos())].into();
        }
        if matches!(&keyword.shape, Shape::Args(args)
            if args.first().is_some_and(|arg| arg.name == "address"))
            && let Some(text) = after.first().and_then(Word::text).filter(|text| text.contains('$'))
        {
            let address = expanded(&b.environment, text).into_owned();
            arguments = vec![Word::plain(address, after[0].pos())].into();
        }
        b.obey(keyword, super::Prefix::None, head, &arguments);
        rest = &after[takes..];
    }
}

/// `, found 'word'` for messages.
fn got(word: Option<&Word>) -> String {
    word.map_or_else(|| ", found nothing".into(), |word| format!(", found '{}'", word.shown()))
}

/// Position of a word, or of the end of the line.
fn at(word: Option<&Word>, line: &Line<'_>) -> Pos {
    word.map_or_else(|| line.end(), Word::pos)
}
