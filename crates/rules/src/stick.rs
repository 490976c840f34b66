//! `stick` rules: send requests with the same key to the same server.
//!
//! A request stores its server only once that has responded. Until then the keys are kept beside the stream,
//! since the request head, from which they were made, is gone by then.

use super::apply::holds;
use super::context::{EvalContext, EvalPhase};
use manylane_balance::Index;
use manylane_expr::{DataType, TableId};
use manylane_lanes::table_millis as millis;
use manylane_plan::generation::{Backend, Server, Stick, StickTable};
use manylane_pool::{Pool, Pooled};
use manylane_stick::{Entry, MAX_KEY_BYTES, server_key_text, with_key};
use std::cell::RefCell;

/// Limit of keys that a request and its response store, as in HAProxy.
const MAX_STORES: usize = 8;

/// A key under which the request's server will be stored.
#[derive(Debug)]
struct Store {
    table: TableId,
    /// Length of the key, in words.
    words: usize,
    key: [u64; MAX_KEY_BYTES / 8],
    next: Option<Pooled<Store>>,
}

manylane_sync::lazy_static! {
    static STORES: Pool<Store> =
        Pool::new("keys to store").expect("the size is a constant below the bound");
}

/// Keys that a request stores: a linked list, short for most requests.
#[derive(Debug, Default)]
pub struct Stores(RefCell<Option<Pooled<Store>>>);

fn iter(first: &Option<Pooled<Store>>) -> impl Iterator<Item = &Store> {
    std::iter::successors(first.as_deref(), |store| store.next.as_deref())
}

/// Returns the server that an entry names, if it is one of this backend.
fn server_of(entry: &Entry<'_>, backend: &Backend, table: &StickTable, now: u64) -> Option<Index> {
    let servers = backend.balancer.servers();
    let number = |data| entry.get(data, now).unwrap_or_default();
    let by_id = || servers.by_id(u32::try_from(number(DataType::ServerId)).ok()?);
    let key = number(DataType::ServerKey);
    if table.by_address {
        let is_there = |server: &Server| key != 0 && u64::from(server.stick_key(true)) == key;
        let by_id = by_id();
        if by_id.is_some_and(|index| is_there(&backend.servers[index.get()])) {
            return by_id; // most servers keep their address
        }
        let there = backend.listed().find(|server| is_there(server));
        return there.and_then(|server| servers.index(server.index)).or(by_id);
    }
    server_key_text(key).and_then(|name| servers.by_name(name)).or_else(by_id)
}

/// Stores a server in an entry.
fn store(entry: &Entry<'_>, server: &Server, table: &StickTable, now: u64) {
    let key = server.stick_key(table.by_address);
    for (data, number) in [(DataType::ServerId, server.id), (DataType::ServerKey, key)] {
        // Written only if it changes: all lanes read the entries.
        if entry.get(data, now) != Some(number.into()) {
            entry.set(data, number.into(), now);
        }
    }
    entry.touch(now);
}

impl EvalContext<'_> {
    /// Calls `work` with the words of a rule's key.
    fn stick_key<R>(
        &self,
        phase: EvalPhase<'_>,
        rule: &Stick,
        table: &StickTable,
        work: impl FnOnce(&[u64]) -> R,
    ) -> Option<R> {
        let spec = table.table.spec();
        self.with(phase, |env, scratch| {
            let mut scratch = scratch.reborrow();
            let key = rule.key.eval_as(spec.key, env, &mut scratch).ok()?;
            with_key(spec, key, work)
        })
    }

    /// Runs `stick match`, `stick on` and `stick store-request`. Returns the server of the first rule that
    /// finds one, unless the request is `assigned` to a server already, and the keys to store. `obeyed`
    /// accepts servers that are down.
    pub fn stick(
        &self,
        phase: EvalPhase<'_>,
        backend: &Backend,
        assigned: bool,
        obeyed: bool,
    ) -> (Option<Index>, Stores) {
        let (mut found, mut stores) = (None, None);
        let now = millis(self.local.here().now());
        for rule in &backend.rules.stick {
            let stick = &rule.action;
            // As in HAProxy, only the first key of a table is stored; later rules skip this table.
            if stick.stores && iter(&stores).any(|store| store.table == stick.table)
                || !holds(self, phase, &rule.condition)
            {
                continue;
            }
            let Some(table) = self.local.tables.named(stick.table) else { continue };
            let mut made = None;
            self.stick_key(phase, stick, table, |words| {
                if stick.finds
                    && let Some(entry) = table.table.get(words, now)
                {
                    if !assigned && found.is_none() {
                        found = server_of(&entry, backend, table, now).filter(|index| {
                            obeyed || backend.balancer.servers()[*index].state().serves_its_own()
                        });
                    }
                    entry.touch(now);
                }
                if stick.stores && iter(&stores).count() < MAX_STORES {
                    let mut key = [0; MAX_KEY_BYTES / 8];
                    key[..words.len()].copy_from_slice(words);
                    made = Some(Store { table: stick.table, words: words.len(), key, next: None });
                }
            });
            if let Some(made) = made {
                let next = stores.take();
                // If the allocation fails, this key and all earlier ones are dropped.
                stores = STORES.alloc(Store { next, ..made }).ok();
            }
        }
        (found, Stores(RefCell::new(stores)))
    }

    /// Stores `server`, which has responded, under the keys of the request and of `stick store-response`.
    pub fn store_server(&self, phase: EvalPhase<'_>, backend: &Backend, server: &Server, stores: &Stores) {
        let requested = stores.0.take();
        if server.non_stick || server.stands_in {
            return;
        }
        let now = millis(self.local.here().now());
        let keep = |table: &StickTable, words: &[u64]| {
            if let Some(entry) = table.table.get_or_make(words, now) {
                store(&entry, server, table, now);
            }
        };
        let mut count = 0;
        for Store { table, words, key, next: _ } in iter(&requested) {
            count += 1;
            if let Some(table) = self.local.tables.named(*table) {
                keep(table, &key[..*words]);
            }
        }
        let mut done = [None; MAX_STORES];
        for rule in &backend.rules.store_response {
            let table = rule.action.table;
            if count == MAX_STORES {
                return;
            }
            if done.contains(&Some(table)) || !holds(self, phase, &rule.condition) {
                continue;
            }
            let Some(found) = self.local.tables.named(table) else { continue };
            if self.stick_key(phase, &rule.action, found, |words| keep(found, words)).is_some() {
                done[count] = Some(table);
                count += 1;
            }
        }
    }
}
