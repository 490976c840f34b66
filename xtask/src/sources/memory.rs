//! Checks that shared memory is accessed through `manylane_sync` only: no other crate may name atomics and
//! locks.

use super::Check;
use crate::rooms::Memory;
use syn::{Ident, UseTree};

/// Paths with one of these prefixes are refused.
const GATEWAYS: &[&[&str]] = &[
    &["std", "sync", "atomic"],
    &["core", "sync", "atomic"],
    &["std", "sync", "Mutex"],
    &["std", "sync", "MutexGuard"],
    &["std", "sync", "RwLock"],
    &["std", "sync", "RwLockReadGuard"],
    &["std", "sync", "RwLockWriteGuard"],
    &["std", "sync", "Condvar"],
    &["std", "sync", "Barrier"],
    &["std", "sync", "ReentrantLock"],
    &["std", "sync", "poison"],
    &["std", "sync", "nonpoison"],
    &["std", "sync", "mpsc"],
    &["std", "sync", "mpmc"],
    &["crossbeam_utils", "atomic"],
    &["crossbeam_utils", "sync"],
    &["lock_api"],
    &["loom"],
    &["parking_lot"],
    &["parking_lot_core"],
    &["portable_atomic"],
    &["spin"],
];

/// True if the whole package is refused.
pub(crate) fn is_sync(package: &str) -> bool {
    let name = package.replace('-', "_");
    GATEWAYS.iter().any(|gateway| *gateway == [name.as_str()])
}

impl Check<'_> {
    fn memory_checked(&self) -> bool {
        self.memory == Memory::ThroughSync && !self.test
    }

    /// A full path in an expression or a type. A crate's bare name is not a use (`cfg(loom)`).
    pub(super) fn memory_path(&mut self, path: &[&Ident]) {
        self.memory_named(path, path[0]);
    }

    fn memory_named(&mut self, path: &[&Ident], at: &Ident) {
        if self.memory_checked()
            && path.len() > 1
            && GATEWAYS.iter().any(|gateway| begins_with(path, gateway))
        {
            self.find(
                at.span(),
                format!(
                    "`{}` is named outside of `sync`; take it from manylane_sync, so that the model checker \
                        and the \
                     simulator see it",
                    joined(path)
                ),
            );
        }
    }

    /// An imported path. A module above a gateway is refused as well, since it would allow a shorter name.
    pub(super) fn memory_import(&mut self, path: &[&Ident]) {
        let leads_to = |gateway: &[&str]| {
            let on_the_way = path.len() < gateway.len() || path.len() == 1;
            on_the_way && path.iter().zip(gateway).all(|(ident, part)| *ident == part)
        };
        let Some(at) = path.last() else { return };
        if self.memory_checked() && GATEWAYS.iter().any(|gateway| leads_to(gateway)) {
            self.find(
                at.span(),
                format!(
                    "`{}` is imported whole, which hides what is used of it; import the items by name",
                    joined(path)
                ),
            );
        }
        self.memory_named(path, at);
    }

    pub(super) fn memory_use<'t>(&mut self, path: &mut Vec<&'t Ident>, tree: &'t UseTree) {
        match tree {
            UseTree::Path(part) => {
                path.push(&part.ident);
                self.memory_use(path, &part.tree);
                path.pop();
            }
            UseTree::Name(part) => self.memory_use_of(path, &part.ident),
            UseTree::Rename(part) => self.memory_use_of(path, &part.ident),
            UseTree::Glob(_) => self.memory_import(path),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.memory_use(path, tree)),
        }
    }

    fn memory_use_of<'t>(&mut self, path: &mut Vec<&'t Ident>, last: &'t Ident) {
        if last == "self" {
            return self.memory_import(path);
        }
        path.push(last);
        self.memory_import(path);
        path.pop();
    }
}

fn begins_with(path: &[&Ident], gateway: &[&str]) -> bool {
    path.len() >= gateway.len() && path.iter().zip(gateway).all(|(ident, part)| *ident == part)
}

fn joined(path: &[&Ident]) -> String {
    path.iter().map(ToString::to_string).collect::<Vec<_>>().join("::")
}
