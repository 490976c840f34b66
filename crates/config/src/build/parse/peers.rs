//! Lines of `peers` sections.

use super::{Builder, Line, address, bad_name_byte, bind_line_with, options, stick};
use crate::table::KeywordContext;
use crate::tree::Peer;
use manylane_net::Rules;

pub(crate) fn bind(b: &mut Builder<'_>, line: &Line<'_>) {
    if !b.has_room_for_bind(line.pos()) {
        return;
    }
    let base = b.peers().default_bind.clone();
    let bind = bind_line_with(b, line, base);
    b.peers().binds.push(bind);
}

pub(crate) fn default_bind(b: &mut Builder<'_>, line: &Line<'_>) {
    b.bind = std::mem::take(&mut b.peers().default_bind);
    options(b, KeywordContext::BindOption, line.words);
    b.peers().default_bind = std::mem::take(&mut b.bind);
}

pub(crate) fn default_server(b: &mut Builder<'_>, line: &Line<'_>) {
    b.server = std::mem::take(&mut b.peers().default_server);
    options(b, KeywordContext::ServerOption, line.words);
    b.peers().default_server = std::mem::take(&mut b.server);
}

/// `peer` and `server`
pub(crate) fn peer(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if !b.has_room_for_servers(line.pos(), 1) {
        return;
    }
    if name.bytes().is_empty() || bad_name_byte(name.bytes()).is_some() {
        let message = format!(
            "'{}' expects a name of letters, digits and . : _ -, found '{}'",
            line.keyword.name,
            name.shown()
        );
        return b.found.alert(name.pos(), message);
    }
    if !b.declares(b'p', "peer", &name) {
        return;
    }
    let rules = Rules { port_needed: true, ..Rules::SERVER };
    let address = match line.words.get(1) {
        None => None,
        Some(word) => match address(b, line.keyword.name, word, &rules) {
            None => return,
            address => address,
        },
    };
    b.server = b.peers().default_server.clone();
    options(b, KeywordContext::ServerOption, line.words.get(2..).unwrap_or_default());
    let options = std::mem::take(&mut b.server);
    b.peers().peers.push(Peer { name, address, options });
}

pub(crate) fn table(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if !b.declares(b't', "table", &name) {
        return;
    }
    if let Some(mut table) = stick::read(b, line, line.words.get(1..).unwrap_or_default()) {
        if let Some(peers) = table.peers.take() {
            let message = "'table' : 'peers' is for tables of proxies: this one is shared by its section";
            b.found.alert(peers.pos(), message);
        }
        b.peers().tables.push((name, table));
    }
}
