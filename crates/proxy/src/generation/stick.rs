//! Stick tables of a configuration.

use super::refuse::Refuse;
use manylane_config::tree::{self, Config, Proxy, ProxyKind};
use manylane_expr::{NamedTable, TableId};
use manylane_stick::{Data, Spec, Table};
use manylane_sync::Arc;

/// A table, and the proxy that it is named by.
#[derive(Clone, Debug)]
pub struct StickTable {
    /// The proxy's name.
    pub name: Box<str>,
    /// The table, which generations share.
    pub table: Arc<Table>,
}

/// Proxies with a table, in the order of the tables' numbers.
fn declared(config: &Config) -> impl Iterator<Item = (&Proxy, &tree::StickTable)> {
    let started = |proxy: &&Proxy| {
        proxy.kind != ProxyKind::Defaults && !proxy.settings.disabled.is_some_and(|set| set.value)
    };
    config.proxies.iter().filter(started).filter_map(|proxy| Some((proxy, proxy.stick_table.as_ref()?)))
}

/// The table of the proxy of that name.
pub(super) fn named(config: &Config, name: &[u8]) -> Option<NamedTable> {
    let (number, (_, table)) =
        declared(config).enumerate().find(|(_, (proxy, _))| proxy.name.bytes() == name)?;
    Some(NamedTable { id: TableId(number as u32), key: table.key })
}

/// All of them, empty.
pub(super) fn tables(config: &Config, refuse: &mut Refuse<'_>) -> Vec<StickTable> {
    let mut all = Vec::<StickTable>::new();
    for (proxy, table) in declared(config) {
        let tree::StickTable { key, key_bytes, size, expire, nopurge, data, pos } = table;
        let name: Box<str> = String::from_utf8_lossy(proxy.name.bytes()).into();
        if all.iter().any(|known| known.name == name) {
            let message = format!("'stick-table' : another proxy named '{name}' has a table already");
            refuse.found.alert(*pos, message);
        }
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let data = data.iter().map(|data| Data {
            kind: data.kind,
            count: data.count,
            period: u32::try_from(data.period.as_millis()).unwrap_or(u32::MAX),
        });
        let spec = Spec {
            key: *key,
            key_bytes: *key_bytes,
            size: *size,
            expire: expire.map_or(0, millis),
            nopurge: *nopurge,
            data: data.collect(),
        };
        all.push(StickTable { name, table: Arc::new(Table::new(spec)) });
    }
    all
}

/// Tables of the same name that are to be the same go on.
pub(super) fn inherit(tables: &mut [StickTable], before: &[StickTable]) {
    for table in tables {
        let was = before.iter().find(|was| was.name == table.name && was.table.spec() == table.table.spec());
        if let Some(was) = was {
            table.table = was.table.clone();
        }
    }
}
