//! Watches the files of certificates: `watch` of a `load` line.
//!
//! # Protocol
//! 1. The store notes the stamps of a certificate's files before it reads them.
//! 2. A check compares the stamps. If they differ from the noted ones, and the check before found the same
//!    ones, nobody writes to the files any more: they are read, and replace the contents as a commit does.
//! 3. The stamps are noted then, also if the files cannot be used. So each change is reported once.
//! 4. An open transaction for the certificate defers all this.
//!
//! A check reads files without the store's lock.

use crate::certificate::{Bundle, Definition};
use crate::error::Problem;
use crate::issuers::FileRules;
use crate::store::{Known, Store};
#[cfg(test)]
use std::cell::Cell;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// What tells of a file whether it has changed; `None` if there is none. The time is that of the inode, which
/// no program can set.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
}

/// A certificate whose files are watched.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    definition: Definition,
    /// Stamps of the files when they were read.
    read: Vec<Stamp>,
    /// Stamps that the last look has found.
    found: Vec<Stamp>,
}

impl Watched {
    pub(crate) fn new(definition: &Definition, rules: &FileRules) -> Self {
        let read = stamps(definition, rules);
        Self { definition: definition.clone(), found: read.clone(), read }
    }
}

/// The stamps of all files that a certificate is made of.
fn stamps(definition: &Definition, rules: &FileRules) -> Vec<Stamp> {
    let Definition { certificate, key, ocsp, issuer, .. } = definition;
    let beside = |own: &Option<PathBuf>, ending: &str| {
        stamp(own.as_ref().unwrap_or(&rules.beside(certificate, ending)))
    };
    vec![stamp(certificate), beside(key, ".key"), beside(ocsp, ".ocsp"), beside(issuer, ".issuer")]
}

/// Seconds within which a file may change twice without another stamp: more than the step of any clock that
/// stamps are made by.
const STEP: i64 = 2;

#[cfg(not(test))]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
thread_local! {
    /// Time by which the clock of a test is ahead of that of its files.
    pub(crate) static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

#[cfg(test)]
fn now() -> SystemTime {
    SystemTime::now() + AHEAD.get()
}

/// A digest of the stamps of all files that a certificate is made of. `None` if one of them has changed so
/// recently that it may change again without another stamp.
pub(crate) fn settled_stamp(definition: &Definition, rules: &FileRules) -> Option<u64> {
    let all = stamps(definition, rules);
    let now = now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let newest = all.iter().flatten().map(|(.., seconds, _)| *seconds).max()?;
    let is_settled = newest.checked_add(STEP)? < i64::try_from(now).ok()?;
    is_settled.then(|| {
        let mut digest = DefaultHasher::new();
        (definition, all).hash(&mut digest);
        digest.finish()
    })
}

/// What came of files that have changed.
#[derive(Debug)]
pub struct FileChange {
    /// The certificate's name.
    pub certificate: Box<str>,
    /// The error if the files cannot be used; nothing has changed then.
    pub result: Result<(), Problem>,
    /// Warnings, such as about a certificate that has expired.
    pub warnings: Vec<Problem>,
}

impl Store {
    /// True if files of certificates are watched.
    pub fn watches_files(&self) -> bool {
        !self.lock().watched.is_empty()
    }

    /// Looks at the files of watched certificates, and takes over those that have changed.
    pub fn check_files(&self) -> Vec<FileChange> {
        let all: Vec<(Box<str>, Watched)> =
            self.lock().watched.iter().map(|(name, own)| (name.clone(), own.clone())).collect();
        all.into_iter().filter_map(|(name, own)| self.check_file(name, own)).collect()
    }

    fn check_file(&self, certificate: Box<str>, own: Watched) -> Option<FileChange> {
        let rules = self.lock().rules.clone();
        let found = stamps(&own.definition, &rules);
        if found == own.read && found == own.found {
            return None;
        }
        let (mut warnings, mut read) = (Vec::new(), None);
        if found == own.found && !self.lock().is_open(&certificate) {
            read = Some(Bundle::load(&own.definition, &rules, &mut warnings));
        }
        let settled = stamps(&own.definition, &rules) == found; // else they were written while they were read
        let known = &mut *self.lock();
        let now = known.watched.get_mut(&certificate)?;
        now.found.clone_from(&found);
        let read = read.filter(|_| settled)?;
        if known.is_open(&certificate) {
            return None;
        }
        known.watched.get_mut(&certificate)?.read = found;
        let result = read.and_then(|bundle| known.take_over(&certificate, bundle)).map(drop);
        Some(FileChange { certificate, result, warnings })
    }
}

impl Known {
    /// Replaces a certificate by the present content of its files.
    fn take_over(&mut self, name: &str, mut bundle: Bundle) -> Result<usize, Problem> {
        if let Some(before) = self.bundle(name) {
            bundle.keep_ocsp(&before);
        }
        self.replace_certificate(name, bundle)
    }
}
