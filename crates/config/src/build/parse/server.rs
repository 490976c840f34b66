//! `server`, `default-server` and `server-template` lines, name servers, and server options with several
//! values.

use super::{Builder, Line, address, bad_name_byte, options};
use crate::Shown;
use crate::lex::{Word, arguments};
use crate::table::KeywordContext;
use crate::tree::{Mailer, Nameserver, Server, Source};
use crate::value;
use manylane_net::Rules;
use manylane_net::address::Transports;

/// Servers in `mode log` may take datagrams. A later line may set the mode, so the final checks reject
/// datagrams in other modes.
const SERVER: Rules = Rules { transports: Transports::StreamOrDatagram, multipath: true, ..Rules::SERVER };

pub(crate) fn server(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if !check_name(b, line, &name) || !b.has_room_for_servers(line.pos(), 1) {
        return;
    }
    let address = address(b, line.keyword.name, &line.words[1], &SERVER);
    let base = b.settings().default_server.clone();
    b.server = base;
    options(b, KeywordContext::ServerOption, &line.words[2..]);
    let options = std::mem::take(&mut b.server);
    let Some(address) = address else { return };
    let server = Server { name, address, options, pos: line.pos(), template: None };
    b.proxy().servers.push(Box::new(server));
}

fn check_name(b: &mut Builder<'_>, line: &Line<'_>, name: &Word) -> bool {
    if name.bytes().is_empty() {
        b.found.alert(name.pos(), format!("'{}' expects a name that is not empty", line.keyword.name));
        return false;
    }
    if let Some(at) = bad_name_byte(name.bytes()) {
        let message = format!(
            "character '{}' is not permitted in server name '{}'",
            Shown(&name.bytes()[at..=at]),
            name.shown()
        );
        b.found.alert(name.pos_at(at), message);
        return false;
    }
    true
}

pub(crate) fn dispatch(b: &mut Builder<'_>, line: &Line<'_>) {
    line.no_more(b, 1);
    if let Some(address) =
        address(b, "dispatch", &line.words[0], &Rules { port_needed: true, ..Rules::SERVER })
    {
        b.settings().dispatch = Some(address);
    }
}

pub(crate) fn default_server(b: &mut Builder<'_>, line: &Line<'_>) {
    b.server = std::mem::take(&mut b.settings().default_server);
    options(b, KeywordContext::ServerOption, line.words);
    b.settings().default_server = std::mem::take(&mut b.server);
    if let Some(id) = b.settings().default_server.id.take() {
        b.found
            .alert(id.pos, "'id' expects one server, found a line for several: give each a line of its own");
    }
}

pub(crate) fn server_template(b: &mut Builder<'_>, line: &Line<'_>) {
    let [prefix, numbers, host, rest @ ..] = line.words else { return };
    if !check_name(b, line, prefix) {
        return;
    }
    let Some((low, high)) = template_range(b, line, numbers) else { return };
    let address = address(b, line.keyword.name, host, &SERVER);
    b.server = b.settings().default_server.clone();
    options(b, KeywordContext::ServerOption, rest);
    let options = std::mem::take(&mut b.server);
    let Some(address) = address else { return };
    if !b.has_room_for_servers(numbers.pos(), high - low + 1) {
        return;
    }
    for number in low..=high {
        let name = Word::plain([prefix.bytes(), number.to_string().as_bytes()].concat(), prefix.pos());
        let mut options = options.clone();
        if number != low {
            // Only the first server gets the given number.
            options.id = None;
        }
        let server =
            Server { name, address: address.clone(), options, pos: line.pos(), template: Some(number) };
        b.proxy().servers.push(Box::new(server));
    }
}

/// `count` or `low-high`.
fn template_range(b: &mut Builder<'_>, line: &Line<'_>, numbers: &Word) -> Option<(u64, u64)> {
    let max = i64::from(i32::MAX);
    let read = |bytes: &[u8]| value::integer(bytes, 0, max).ok().map(|number| number as u64);
    let range = match numbers.bytes().split_once_byte(b'-') {
        None => read(numbers.bytes()).map(|count| (1, count)),
        Some((low, high)) => read(low).zip(read(high)),
    };
    match range {
        Some((low, high)) if low <= high => Some((low, high)),
        _ => {
            let message = format!(
                "'{}' expects a number of servers, or a range such as 1-10, found '{}'",
                line.keyword.name,
                numbers.shown()
            );
            b.found.alert(numbers.pos(), message);
            None
        }
    }
}

trait SplitOnce {
    fn split_once_byte(&self, byte: u8) -> Option<(&[u8], &[u8])>;
}

impl SplitOnce for [u8] {
    fn split_once_byte(&self, byte: u8) -> Option<(&[u8], &[u8])> {
        let at = self.iter().position(|b| *b == byte)?;
        Some((&self[..at], &self[at + 1..]))
    }
}

pub(crate) fn proxy_v2_options(b: &mut Builder<'_>, line: &Line<'_>) {
    const KNOWN: [&str; 8] =
        ["ssl", "cert-cn", "ssl-cipher", "cert-sig", "cert-key", "authority", "crc32c", "unique-id"];
    let list = line.word(0);
    let mut start = 0;
    for part in list.bytes().split(|byte| *byte == b',') {
        let word = list.slice(start..start + part.len());
        start += part.len() + 1;
        if !KNOWN.iter().any(|known| word == **known) {
            let message = manylane_expr::none_of("proxy-v2-options", KNOWN, word.bytes());
            b.found.alert(word.pos(), message);
        }
    }
    b.server.proxy_v2_options = Some(line.set(list));
}

/// `set-proxy-v2-tlv-fmt(id) format`
pub(crate) fn proxy_tlv(b: &mut Builder<'_>, line: &Line<'_>) {
    let (head, open) = (line.head.bytes(), line.keyword.name.len());
    let found = if head.len() > open { arguments(head, open).ok() } else { None };
    let id = found.filter(|found| found.end == head.len() && found.list.len() == 1).and_then(|found| {
        let text = std::str::from_utf8(&found.list[0].bytes).ok()?;
        match text.strip_prefix("0x") {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u8::from_str_radix(digits, 16).ok()
            }
            Some(_) => None,
            None => value::integer(text.as_bytes(), 0, 255).ok().map(|number| number as u8),
        }
    });
    match id {
        Some(id) => b.server.proxy_tlvs.push((id, line.word(0))),
        None => {
            let message = format!(
                "'{}' expects a number up to 255 in parentheses, found '{}'",
                line.keyword.name,
                line.head.shown()
            );
            b.found.alert(line.head.pos_at(open), message);
        }
    }
}

pub(crate) fn server_source(b: &mut Builder<'_>, line: &Line<'_>) {
    if let Some(address) = address(b, "source", &line.words[0], &Rules::SOURCE) {
        b.server.source = Some(line.set(Source { address, usesrc: None, interface: None }));
    }
}

pub(crate) fn server_usesrc(b: &mut Builder<'_>, line: &Line<'_>) {
    match &mut b.server.source {
        Some(source) => source.value.usesrc = Some(line.word(0)),
        None => b.found.alert(line.pos(), "'usesrc' expects 'source <address>' before it, found none"),
    }
}

pub(crate) fn server_interface(b: &mut Builder<'_>, line: &Line<'_>) {
    match &mut b.server.source {
        Some(source) => source.value.interface = Some(line.word(0)),
        None => b.found.alert(line.pos(), "'interface' expects 'source <address>' before it, found none"),
    }
}

pub(crate) fn server_socks4(b: &mut Builder<'_>, line: &Line<'_>) {
    let rules = Rules {
        statement: "socks4",
        port_needed: true,
        port_offset: false,
        unix: false,
        socket_pair: false,
        ..Rules::SERVER
    };
    b.server.socks4 = address(b, "socks4", &line.words[0], &rules);
}

pub(crate) fn nameserver(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    line.no_more(b, 2);
    let Some(address) = address(b, "nameserver", &line.words[1], &Rules::NAMESERVER) else { return };
    if !b.declares(b'n', "name server", &name) {
        return;
    }
    b.resolvers().nameservers.push(Nameserver { name, address });
}

pub(crate) fn mailer(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    line.no_more(b, 2);
    let rules = Rules { port_needed: true, ..Rules::SERVER };
    let Some(address) = address(b, "mailer", &line.words[1], &rules) else { return };
    if !b.declares(b'm', "mailer", &name) {
        return;
    }
    if b.has_room_for_servers(line.pos(), 1) {
        b.mailers().mailers.push(Mailer { name, address });
    }
}

pub(crate) fn ring_server(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if !check_name(b, line, &name) || !b.has_room_for_servers(line.pos(), 1) {
        return;
    }
    let address = address(b, "server", &line.words[1], &Rules { port_needed: true, ..Rules::SERVER });
    b.server = Default::default();
    options(b, KeywordContext::ServerOption, &line.words[2..]);
    let options = std::mem::take(&mut b.server);
    if let Some(address) = address {
        let server = Server { name, address, options, pos: line.pos(), template: None };
        b.ring().servers.push(server);
    }
}
