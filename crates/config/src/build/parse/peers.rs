//! Lines of `peers` sections.

use super::{Builder, Line, address, bad_name_byte, bind_line, stick};
use crate::tree::Peer;
use manylane_net::Rules;

pub(crate) fn bind(b: &mut Builder<'_>, line: &Line<'_>) {
    if !b.has_room_for_bind(line.pos()) {
        return;
    }
    let bind = bind_line(b, line);
    b.peers().binds.push(bind);
}

/// `peer` and `server`
pub(crate) fn peer(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if !b.has_room_for_servers(line.pos(), 1) {
        return;
    }
    if name.bytes().is_empty() || bad_name_byte(name.bytes()).is_some() {
        let message = format!("'{}' expects a name of letters, digits and . : _ -", line.keyword.name);
        return b.found.alert(name.pos(), message);
    }
    if !b.takes_name(b'p', &name) {
        let message = format!("there is a peer '{}' in this section already", name.shown());
        return b.found.alert(name.pos(), message);
    }
    if let Some(option) = line.words.get(2) {
        let message = format!(
            "'{} {}' is an option of HAProxy that this program refuses: peers are connected to over plain \
             TCP, without options",
            line.keyword.name,
            option.shown()
        );
        return b.found.alert(option.pos(), message);
    }
    let rules = Rules { port_needed: true, ..Rules::SERVER };
    let address = match line.words.get(1) {
        None => None,
        Some(word) => match address(b, line.keyword.name, word, &rules) {
            None => return,
            address => address,
        },
    };
    b.peers().peers.push(Peer { name, address });
}

pub(crate) fn table(b: &mut Builder<'_>, line: &Line<'_>) {
    let name = line.word(0);
    if !b.takes_name(b't', &name) {
        let message = format!("there is a table '{}' in this section already", name.shown());
        return b.found.alert(name.pos(), message);
    }
    if let Some(mut table) = stick::read(b, line, line.words.get(1..).unwrap_or_default()) {
        if let Some(peers) = table.peers.take() {
            let message = "'table' : 'peers' is for tables of proxies: this one is shared by its section";
            b.found.alert(peers.pos(), message);
        }
        b.peers().tables.push((name, table));
    }
}
