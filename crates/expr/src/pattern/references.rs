//! All pattern lists and maps of a generation.

use super::reference::{MAX_REFERENCE_BYTES, Reference};
use crate::names::Names;
use crate::show::Shown;
use manylane_sync::Arc;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;

/// All references of a generation, in the order of first use.
#[derive(Debug, Default)]
pub struct References {
    /// Each with its number from the configuration (`-u`), if it has one.
    all: Vec<(Option<u32>, Arc<Reference>)>,
    by_name: HashMap<(Box<[u8]>, bool), Arc<Reference>>,
    /// Names of optional files that do not exist.
    absent: HashSet<Box<[u8]>>,
}

/// Source of the initial entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `file@path` or a plain path.
    File,
    /// `opt@path`: the file may be missing.
    Optional,
    /// `virt@name`: there is no file.
    Virtual,
}

/// Name and origin of a reference. All spellings of a file have the same name; `virt@` is part of the name.
fn origin(name: &[u8]) -> (&[u8], Origin) {
    let behind = |prefix: &[u8]| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    match (behind(b"file@"), behind(b"opt@"), behind(b"virt@")) {
        (Some(path), ..) => (path, Origin::File),
        (_, Some(path), _) => (path, Origin::Optional),
        (.., Some(_)) => (name, Origin::Virtual),
        _ => (name, Origin::File),
    }
}

impl References {
    /// The reference with this name. A file is read on first use. An error is a sentence.
    pub fn open(&mut self, name: &[u8], is_map: bool, names: &dyn Names) -> Result<Arc<Reference>, String> {
        let (name, origin) = origin(name);
        let known = self.get(name, is_map);
        // A reference that started without its optional file does not satisfy a line that requires the file.
        if let Some(known) = known.filter(|_| origin != Origin::File || !self.absent.contains(name)) {
            return Ok(known);
        }
        let bytes = match origin {
            Origin::Virtual => Ok(Vec::new()),
            Origin::File => names.file(name),
            Origin::Optional => names.file(name).or_else(|why| {
                let is_absent = why.kind() == ErrorKind::NotFound;
                is_absent.then(|| self.absent.insert(name.into())).map(|_| Vec::new()).ok_or(why)
            }),
        };
        let bytes = bytes.map_err(|why| format!("cannot read '{}': {why}", Shown(name)))?;
        if bytes.len() > MAX_REFERENCE_BYTES {
            return Err(format!(
                "'{}' has {} bytes: at most {MAX_REFERENCE_BYTES} are read",
                Shown(name),
                bytes.len()
            ));
        }
        let reference = Arc::new(Reference::new(name, is_map, &bytes)?);
        self.by_name.insert((name.into(), is_map), reference.clone());
        self.all.push((None, reference.clone()));
        Ok(reference)
    }

    /// Adds a reference for the patterns of a line.
    pub(crate) fn inline(&mut self, patterns: &[&[u8]]) -> Arc<Reference> {
        let reference = Arc::new(Reference::inline(patterns));
        self.all.push((None, reference.clone()));
        reference
    }

    /// Assigns a number to a reference. False if another one has it.
    pub(crate) fn number(&mut self, reference: &Arc<Reference>, number: u32) -> bool {
        let is_free =
            self.all.iter().all(|(own, other)| *own != Some(number) || Arc::ptr_eq(other, reference));
        let own = self.all.iter_mut().find(|(_, other)| Arc::ptr_eq(other, reference));
        if let (true, Some((own, _))) = (is_free, own) {
            *own = Some(number);
        }
        is_free
    }

    /// The reference with this name, for changes at run time.
    pub fn get(&self, name: &[u8], is_map: bool) -> Option<Arc<Reference>> {
        self.by_name.get(&(origin(name).0.into(), is_map)).cloned()
    }

    /// All references, sorted by number. Those without a number in the configuration get the free ones in
    /// order.
    pub fn numbered(&self) -> Vec<(u32, &Arc<Reference>)> {
        let mut given: Vec<u32> = self.all.iter().filter_map(|(number, _)| *number).collect();
        given.sort_unstable();
        let mut free = (0..).filter(|number| given.binary_search(number).is_err());
        let mut all: Vec<(u32, &Arc<Reference>)> = Vec::with_capacity(self.all.len());
        for (own, reference) in &self.all {
            all.extend(own.or_else(|| free.next()).map(|number| (number, reference)));
        }
        all.sort_unstable_by_key(|(number, _)| *number);
        all
    }
}
