//! Variables in lines: the environment, as changed by `setenv` and related keywords, and pseudo-variables
//! such as `.LINE`.

use crate::limits::MAX_VARIABLE_BYTES;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStringExt;

/// Environment variables of the configuration. They start as a copy; the environment of the process itself
/// never changes. Code that starts programs passes this one to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names that the command line set.
    given: BTreeSet<Vec<u8>>,
}

/// Why a variable cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidVariable {
    /// Empty, or with an equals sign or a NUL byte.
    Name,
    /// With a NUL byte, or longer than [`MAX_VARIABLE_BYTES`] together with the name.
    Value,
}

impl Environment {
    /// An empty environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of the process environment.
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec())).collect(),
            given: BTreeSet::new(),
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.variables.get(name).map(Vec::as_slice)
    }

    /// Sets a variable or replaces its value.
    ///
    /// # Errors
    /// If an environment cannot hold the name or the value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidVariable> {
        if name.is_empty() || name.contains(&b'=') || name.contains(&0) {
            return Err(InvalidVariable::Name);
        }
        if value.len() + name.len() > MAX_VARIABLE_BYTES || value.contains(&0) {
            return Err(InvalidVariable::Value);
        }
        self.variables.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    /// Sets a variable from the command line. Handlers check [`Environment::is_given`], so a line with the
    /// same meaning does not override it.
    ///
    /// # Errors
    /// Like [`Environment::set`].
    pub fn give(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidVariable> {
        self.set(name, value)?;
        self.given.insert(name.to_vec());
        Ok(())
    }

    /// True if the command line set the variable.
    pub fn is_given(&self, name: &[u8]) -> bool {
        self.given.contains(name)
    }

    /// Sets a variable that is not set yet.
    ///
    /// # Errors
    /// Like [`Environment::set`].
    pub fn preset(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidVariable> {
        if self.variables.contains_key(name) { Ok(()) } else { self.set(name, value) }
    }

    /// Removes a variable.
    pub fn unset(&mut self, name: &[u8]) {
        self.variables.remove(name);
    }

    /// Removes all variables except those in `keep`.
    pub fn reset(&mut self, keep: &[&[u8]]) {
        self.variables.retain(|name, _| keep.contains(&name.as_slice()));
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.variables.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }
}

/// Variables that a line can use.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The environment after the lines before.
    pub environment: &'a Environment,
    /// `.FILE`
    pub file: &'a [u8],
    /// `.LINE`
    pub line: u32,
    /// `.SECTION`: the name of the section, or its kind if it has none. Empty before the first section.
    pub section: &'a [u8],
}

/// Names of the pseudo-variables.
pub(super) const PSEUDO: [&str; 3] = [".FILE", ".LINE", ".SECTION"];

impl Scope<'_> {
    /// The value of a variable; `None` if it is not set.
    pub(super) fn lookup(&self, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        match name {
            b".FILE" => Some(Cow::Borrowed(self.file)),
            b".LINE" => Some(Cow::Owned(self.line.to_string().into_bytes())),
            b".SECTION" => Some(Cow::Borrowed(self.section)),
            _ => self.environment.get(name).map(Cow::Borrowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_preset_unset_and_reset() {
        let mut env = Environment::new();
        env.set(b"A", b"1").unwrap();
        env.preset(b"A", b"2").unwrap();
        env.preset(b"B", b"\xff").unwrap();
        env.set(b"C", b"").unwrap();
        assert_eq!(
            (env.get(b"A"), env.get(b"B"), env.get(b"C")),
            (Some(&b"1"[..]), Some(&b"\xff"[..]), Some(&b""[..]))
        );
        env.unset(b"A");
        assert_eq!(env.get(b"A"), None);
        env.reset(&[b"C", b"X"]);
        assert_eq!(env.iter().collect::<Vec<_>>(), [(&b"C"[..], &b""[..])]);
    }

    #[test]
    fn what_an_environment_cannot_hold_is_refused() {
        let mut env = Environment::new();
        for name in [&b""[..], b"A=B", b"A\0"] {
            assert_eq!(env.set(name, b"x"), Err(InvalidVariable::Name));
        }
        assert_eq!(env.set(b"A", b"a\0b"), Err(InvalidVariable::Value));
        assert_eq!(env.set(b"A", &vec![b'x'; MAX_VARIABLE_BYTES]), Err(InvalidVariable::Value));
        assert_eq!(env.iter().count(), 0);
    }
}
