//! Checks that users, groups, descriptors and network namespaces of the configuration exist. It runs when the
//! files are read, so that `-c` reports what would make the start fail.

use crate::system;
use manylane_config::diag::Diagnostics;
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::table::BindOptions;
use manylane_config::tree::{Bind, Config, Global};
use manylane_io::namespace::Namespace;
use manylane_io::socket;
use manylane_net::address::Location;
use std::collections::HashMap;

/// Adds an alert to `found` for everything that is missing.
pub(crate) fn check(config: &Config, found: &mut Diagnostics) {
    let mut search = Search { found, known: HashMap::new() };
    let Global { user, group, unix_bind, stats_sockets, .. } = &config.global;
    for (is_group, word) in [(false, user), (true, group)] {
        word.iter().for_each(|set| search.owner(is_group, &set.value));
    }
    if let Some(set) = unix_bind {
        set.value.user.iter().for_each(|word| search.owner(false, word));
        set.value.group.iter().for_each(|word| search.owner(true, word));
    }
    stats_sockets.iter().for_each(|line| search.listener(line));
    for proxy in &config.proxies {
        proxy.binds.iter().for_each(|line| search.listener(line));
        for set in proxy.servers.iter().filter_map(|server| server.options.namespace.as_ref()) {
            if set.value != *"*" {
                search.namespace(&set.value);
            }
        }
    }
}

/// Kind and name of something to look up.
#[derive(PartialEq, Eq, Hash)]
enum Named {
    User(Vec<u8>),
    Group(Vec<u8>),
    Namespace(Vec<u8>),
    Descriptor(i32),
}

struct Search<'f> {
    found: &'f mut Diagnostics,
    /// Results of earlier lookups, with the alert if there is one: a file may use a name in each of its
    /// lines.
    known: HashMap<Named, Option<String>>,
}

impl Search<'_> {
    fn listener(&mut self, line: &Bind) {
        let Bind { addresses, options: BindOptions { user, group, namespace, .. }, pos: _ } = line;
        user.iter().for_each(|set| self.owner(false, &set.value));
        group.iter().for_each(|set| self.owner(true, &set.value));
        namespace.iter().for_each(|set| self.namespace(&set.value));
        for address in addresses {
            if let Location::Descriptor(number) | Location::SocketPair(number) = address.value.location {
                self.report_missing(Named::Descriptor(number), address.pos, || {
                    let missing = socket::inherited(number).err()?;
                    Some(format!("cannot use '{}': {missing}", address.value))
                });
            }
        }
    }

    fn owner(&mut self, is_group: bool, word: &Word) {
        let name = word.bytes().to_vec();
        let named = if is_group { Named::Group(name) } else { Named::User(name) };
        self.report_missing(named, word.pos(), || {
            system::owner(is_group, &String::from_utf8_lossy(word.bytes())).err()
        });
    }

    fn namespace(&mut self, word: &Word) {
        let name = String::from_utf8_lossy(word.bytes());
        self.report_missing(Named::Namespace(word.bytes().to_vec()), word.pos(), || {
            let missing = Namespace::named(&name).err()?;
            Some(format!(
                "'namespace' expects a network namespace of this system, found '{name}': {missing}; 'ip \
                    netns add' \
                makes one"
            ))
        });
    }

    fn report_missing(&mut self, named: Named, pos: Pos, missing: impl FnOnce() -> Option<String>) {
        if let Some(message) = self.known.entry(named).or_insert_with(missing) {
            self.found.alert(pos, message.clone());
        }
    }
}
