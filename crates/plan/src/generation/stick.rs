//! Stick tables of a configuration.

use super::bind::text;
use super::refuse::Refuse;
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{self, Config, Proxy, ProxyKind};
use manylane_expr::{DataType, NamedTable, TableId, Type};
use manylane_stick::{Data, Spec, Table};
use manylane_sync::Arc;
use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

/// A stick table and its name.
#[derive(Clone, Debug)]
pub struct StickTable {
    /// Name of the proxy, or `<section>/<name>` for a table of a `peers` section.
    pub name: Box<str>,
    /// The table; generations share it.
    pub table: Arc<Table>,
    /// `srvkey addr`: entries store addresses of servers, else names.
    pub by_address: bool,
    /// Name of the `peers` section that shares the table.
    pub peers: Option<Box<str>>,
    /// `recv-only`: the table is not sent to peers.
    pub receives_only: bool,
    /// `write-to`: the table that also takes the peers' updates of this one.
    pub write_to: Option<TableId>,
}

fn started(proxy: &Proxy) -> bool {
    proxy.kind != ProxyKind::Defaults && !proxy.settings.disabled.is_some_and(|set| set.value)
}

impl StickTable {
    /// Returns the name of the table among peers. As in HAProxy, that of a table of the `peers` section
    /// itself has no section name.
    pub(super) fn wire_name(&self) -> &str {
        let section = self.peers.as_deref().unwrap_or_default();
        self.name.strip_prefix(section).filter(|rest| rest.starts_with('/')).unwrap_or(&self.name)
    }
}

/// A table in the file.
struct TableInFile<'c> {
    name: Cow<'c, [u8]>,
    table: &'c tree::StickTable,
    peers: Option<&'c Word>,
}

fn of_proxy(proxy: &Proxy) -> Option<TableInFile<'_>> {
    let table = proxy.stick_table.as_ref()?;
    Some(TableInFile { name: proxy.name.bytes().into(), table, peers: table.peers.as_ref() })
}

/// Returns the tables in the order of their numbers: those of proxies, then those of `peers` sections.
fn declared(config: &Config) -> impl Iterator<Item = TableInFile<'_>> {
    let of_peers = config.peers.iter().flat_map(|section| {
        section.tables.iter().map(|(name, table)| TableInFile {
            name: [section.name.bytes(), b"/", name.bytes()].concat().into(),
            table,
            peers: Some(&section.name),
        })
    });
    config.proxies.iter().filter(|proxy| started(proxy)).filter_map(of_proxy).chain(of_peers)
}

/// Returns the table with this name: that of a proxy, or `<section>/<name>`.
pub(super) fn named(config: &Config, name: &[u8]) -> Option<NamedTable> {
    match declared(config).enumerate().find(|(_, declared)| *declared.name == *name) {
        Some((number, found)) => Some(NamedTable { id: TableId(number as u32), key: found.table.key }),
        // A key of this type can be made of any other.
        None => is_refused(config, name).then_some(NamedTable { id: TableId(0), key: Type::Str }),
    }
}

/// Returns true if the line of the table with this name was refused.
fn is_refused(config: &Config, name: &[u8]) -> bool {
    let mut proxies = config.proxies.iter().filter(|proxy| proxy.name.bytes() == name);
    let slash = name.iter().position(|byte| *byte == b'/');
    proxies.any(|proxy| proxy.settings.is_refused("stick-table"))
        || slash.is_some_and(|slash| {
            let mut sections = config.peers.iter().filter(|section| section.name.bytes() == &name[..slash]);
            sections.any(|section| config.is_refused(&section.name, "table", &name[slash + 1..]))
        })
}

/// Returns the name of the table that a rule or filter of a proxy uses: `table`, or the proxy's own.
fn target<'a>(proxy: &'a Proxy, table: &'a Option<Word>) -> &'a [u8] {
    table.as_ref().map_or(proxy.name.bytes(), Word::bytes)
}

/// Returns the bandwidth limits that streams share through table entries.
fn limits(proxy: &Proxy) -> impl Iterator<Item = &tree::SharedLimit> {
    proxy.filters.iter().filter_map(|filter| match filter {
        tree::Filter::Bandwidth(limit) => limit.shared.as_ref(),
        tree::Filter::Trace(_) => None,
    })
}

/// Returns the period of a shared bandwidth limit: that of the byte rate in the table. If the table does not
/// store this rate, reports an error and returns `None`.
pub(super) fn period(
    config: &Config,
    proxy: &Proxy,
    (shared, incoming): (&tree::SharedLimit, bool),
    (name, pos): (&Word, Pos),
    refuse: &mut Refuse<'_>,
) -> Option<Duration> {
    let target = target(proxy, &shared.table);
    let kind = if incoming { DataType::BytesInRate } else { DataType::BytesOutRate };
    let table = declared(config).find(|declared| *declared.name == *target).map(|declared| declared.table);
    let Some(table) = table else {
        if is_refused(config, target) {
            return None;
        }
        let message = format!(
            "filter '{}' expects the name of a proxy with a 'stick-table', found '{}'",
            name.shown(),
            manylane_config::Shown(target)
        );
        refuse.found.alert(shared.table.as_ref().map_or(pos, Word::pos), message);
        return None;
    };
    match table.data.iter().find(|data| data.kind == kind) {
        Some(data) => Some(data.period),
        None => {
            let message = format!(
                "filter '{}' expects a stick-table that stores '{}', which '{}' does not",
                name.shown(),
                kind.name(),
                manylane_config::Shown(target)
            );
            refuse.found.alert(pos, message);
            None
        }
    }
}

/// Returns the `write-to` of each table.
fn targets(config: &Config, refuse: &mut Refuse<'_>) -> Vec<Option<TableId>> {
    let one = |TableInFile { name, table, .. }: TableInFile<'_>| {
        let word = table.write_to.as_ref()?;
        let found = declared(config).enumerate().find(|(_, other)| *other.name == *word.bytes());
        let Some((number, TableInFile { table: target, .. })) = found else {
            if !is_refused(config, word.bytes()) {
                let message = format!("'write-to' expects the name of a table, found '{}'", word.shown());
                refuse.found.alert(word.pos(), format!("'stick-table' : {message}"));
            }
            return None;
        };
        let expected = if (target.key, target.key_bytes) != (table.key, table.key_bytes) {
            "a table with keys of the same type and length"
        } else if *name == *word.bytes() {
            "another table"
        } else if target.write_to.is_some() {
            "a table without a 'write-to' of its own"
        } else {
            return Some(TableId(number as u32));
        };
        let message = format!("'write-to' expects {expected}, found '{}'", word.shown());
        refuse.found.alert(word.pos(), format!("'stick-table' : {message}"));
        None
    };
    declared(config).map(one).collect()
}

/// Builds all tables, empty.
pub(super) fn tables(config: &Config, refuse: &mut Refuse<'_>) -> Vec<StickTable> {
    let (mut stored, mut shared) = (HashSet::new(), HashSet::new());
    for proxy in config.proxies.iter().filter(|proxy| started(proxy)) {
        stored.extend(proxy.stick_rules.iter().map(|rule| target(proxy, &rule.table)));
        shared.extend(limits(proxy).map(|limit| target(proxy, &limit.table)));
    }
    let mut all = Vec::<StickTable>::new();
    let targets = targets(config, refuse);
    for (TableInFile { name: own_name, table, peers }, write_to) in declared(config).zip(targets) {
        let tree::StickTable {
            key,
            key_bytes,
            size,
            expire,
            nopurge,
            by_address,
            data,
            peers: _,
            receives_only,
            write_to: _,
            bytes_factor,
            pos,
        } = table;
        let name: Box<str> = String::from_utf8_lossy(&own_name).into();
        if all.iter().any(|known| known.name == name) {
            let message = format!("'stick-table' : another proxy named '{name}' has a table already");
            refuse.found.alert(*pos, message);
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let data = data.iter().map(|data| Data {
            kind: data.kind,
            count: data.count,
            period: u32::try_from(data.period.as_millis()).unwrap_or(u32::MAX),
        });
        let mut data: Vec<Data> = data.collect();
        // As in HAProxy, data of `stick` rules needs no `store`.
        if stored.contains(&*own_name) {
            for kind in [DataType::ServerId, DataType::ServerKey] {
                if let Err(index) = data.binary_search_by_key(&kind, |data| data.kind) {
                    data.insert(index, Data { kind, count: 1, period: 0 });
                }
            }
        }
        let spec = Spec {
            key: *key,
            key_bytes: *key_bytes,
            size: *size,
            expire: expire.map_or(0, millis),
            nopurge: *nopurge,
            data,
            bytes_factor: *bytes_factor,
            turns: shared.contains(&*own_name),
        };
        all.push(StickTable {
            name,
            table: Arc::new(Table::new(spec)),
            by_address: *by_address,
            peers: peers.map(text),
            receives_only: *receives_only,
            write_to,
        });
    }
    all
}

/// Takes over tables that have the same name and specification.
pub(super) fn inherit(tables: &mut [StickTable], before: &[StickTable]) {
    for table in tables {
        let was = before.iter().find(|was| was.name == table.name && was.table.spec() == table.table.spec());
        if let Some(was) = was {
            table.table = was.table.clone();
        }
    }
}
