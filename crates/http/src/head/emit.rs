//! Writes a head in the form of HTTP/1: unchanged runs of the original by reference, and the edits between
//! them.

use super::{EditError, Head, Kind};
use crate::fields::{EDITED, Entry, REMOVED};
use crate::name::Known;
use manylane_buf::{Chain, Segment};
use std::fmt;

/// Largest number of runs in which a head is sent by reference; a head with more is copied. A chain holds
/// this many segments without a block of its own, and copying a head costs about as much as that many more
/// references.
const MAX_RUNS: usize = 4;

/// A run of bytes of the original or of the edits.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    edited: bool,
    from: u16,
    to: u16,
}

/// The runs of a head, as long as they are few.
struct Runs {
    runs: [Run; MAX_RUNS],
    len: usize,
}

impl Runs {
    /// Adds a run. Returns false if there are too many.
    #[inline]
    fn push(&mut self, run: Run) -> bool {
        if run.from == run.to {
            return true;
        }
        if let Some(last) = self.len.checked_sub(1).and_then(|last| self.runs.get_mut(last))
            && last.edited == run.edited
            && last.to == run.from
        {
            last.to = run.to;
            return true;
        }
        let Some(slot) = self.runs.get_mut(self.len) else { return false };
        *slot = run;
        self.len += 1;
        true
    }
}

impl Head {
    /// Appends the head to `out`, with the empty line. It can be called again, for example for another
    /// server, and edits may follow.
    ///
    /// Without edits, it is one reference to the original. A head with more than four runs is copied, and so
    /// is one whose names `case` respells.
    ///
    /// # Errors
    /// [`EditError::NoMemory`] or [`EditError::Full`]: `out` may have a part of the head, and must not be
    /// sent.
    pub fn emit(&mut self, out: &mut Chain, case: Option<&CaseTable>) -> Result<(), EditError> {
        if let Some(case) = case
            && self
                .fields()
                .any(|field| case.spelling(field.known, field.name).is_some_and(|new| new != field.name))
        {
            return self.emit_copy(out, Some(case));
        }
        if !self.edited
            && let Some(original) = &self.original
        {
            return push(out, original.clone());
        }
        if self.line.edited && self.line.written.is_none() {
            self.write_line()?;
        }
        let mut runs = Runs { runs: [Run::default(); MAX_RUNS], len: 0 };
        if !self.collect(&mut runs) {
            return self.emit_copy(out, None);
        }
        for &Run { edited, from, to } in &runs.runs[..runs.len] {
            self.push_run(out, edited, usize::from(from)..usize::from(to))?;
        }
        let ends_in_edits = runs.len.checked_sub(1).is_none_or(|last| runs.runs[last].edited);
        if ends_in_edits {
            out.append(b"\r\n").map_err(full)?;
        }
        Ok(())
    }

    /// Writes the new start line into the edits.
    fn write_line(&mut self) -> Result<(), EditError> {
        let status = self.line.status;
        let digits = [
            b' ',
            b'0' + (status / 100 % 10) as u8,
            b'0' + (status / 10 % 10) as u8,
            b'0' + (status % 10) as u8,
        ];
        let from = self.edits.len();
        // A shared view of the current edits, because they grow.
        let keep = self.edits.share().map_err(full)?;
        let view = |span: super::Span| {
            let (at, len) = (usize::from(span.at), usize::from(span.len));
            if span.edited {
                cut(&keep, at, len)
            } else {
                self.original.as_deref().and_then(|o| o.get(at..at + len)).unwrap_or(&[])
            }
        };
        let (method, rest) = (view(self.line.method_at), view(self.line.rest));
        let version = self.line.version.h1_name();
        let parts: [&[u8]; 6] = match self.line.kind {
            Kind::Request => [method, b" ", rest, b" ", version, b"\r\n"],
            Kind::Response => [version, &digits, b" ", rest, b"\r\n", b""],
            Kind::Trailers => [b""; 6],
        };
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if from + len > usize::from(u16::MAX) {
            return Err(EditError::Full);
        }
        self.edits.append_together(&parts, 2048).map_err(full)?;
        self.line.written = Some((from as u16, (from + len) as u16));
        Ok(())
    }

    /// Collects the runs of the head, without the empty line if it ends in the edits. Returns false if there
    /// are too many.
    fn collect(&self, runs: &mut Runs) -> bool {
        let line = match self.line.written {
            Some((from, to)) if self.line.edited => Run { edited: true, from, to },
            _ => Run { edited: false, from: 0, to: self.lines },
        };
        if !runs.push(line) {
            return false;
        }
        let mut at = 0;
        while let Some(entry) = self.fields.get(at) {
            let Entry { name, end, .. } = entry;
            if !entry.has(REMOVED) && !runs.push(Run { edited: entry.has(EDITED), from: name, to: end }) {
                return false;
            }
            at += 1;
        }
        match (&self.original, runs.len.checked_sub(1).map(|last| runs.runs[last].edited)) {
            (Some(original), Some(false)) => {
                runs.push(Run { edited: false, from: self.lines_end, to: original.len() as u16 })
            }
            _ => true,
        }
    }

    fn push_run(
        &self,
        out: &mut Chain,
        edited: bool,
        range: std::ops::Range<usize>,
    ) -> Result<(), EditError> {
        if !edited {
            let slice = self.original.as_ref().and_then(|original| original.slice(range).ok());
            return slice.map_or(Ok(()), |slice| push(out, slice));
        }
        // Adjacent lines may be in two segments.
        let mut part = self.edits.copy_range(range).map_err(full)?;
        out.append_chain(&mut part).map_err(full)
    }

    /// Writes the head by copying.
    #[cold]
    fn emit_copy(&mut self, out: &mut Chain, case: Option<&CaseTable>) -> Result<(), EditError> {
        if self.line.edited && self.line.written.is_none() {
            self.write_line()?;
        }
        let line = match self.line.written {
            Some((from, to)) if self.line.edited => {
                self.edit_bytes(usize::from(from), usize::from(to - from))
            }
            _ => self
                .original
                .as_deref()
                .and_then(|original| original.get(..usize::from(self.lines)))
                .unwrap_or(&[]),
        };
        out.append(line).map_err(full)?;
        let mut at = 0;
        while let Some(entry) = self.fields.get(at) {
            at += 1;
            if entry.has(REMOVED) {
                continue;
            }
            let line = self.line_of(entry);
            let name = self.name_of(entry);
            let new = case.and_then(|case| case.spelling(Known::numbered(entry.known), name)).unwrap_or(name);
            out.append(new).map_err(full)?;
            out.append(&line[name.len()..]).map_err(full)?;
        }
        out.append(b"\r\n").map_err(full)
    }
}

fn full(error: manylane_buf::Error) -> EditError {
    match error {
        manylane_buf::Error::Alloc(_) => EditError::NoMemory,
        _ => EditError::Full,
    }
}

fn push(out: &mut Chain, segment: Segment) -> Result<(), EditError> {
    out.push_back(segment).map_err(|refused| full(refused.error))
}

/// Returns bytes of `chain` that are in one segment.
fn cut(chain: &Chain, mut at: usize, len: usize) -> &[u8] {
    for segment in chain.segments() {
        if let Some(bytes) = segment.get(at..at + len) {
            return bytes;
        }
        at = at.saturating_sub(segment.len());
    }
    &[]
}

type Spelling = Box<[u8]>;

/// Spelling of names for applications that, against the rules, depend on it: `h1-case-adjust`.
#[derive(Clone, Debug)]
pub struct CaseTable {
    known: [Option<Box<[u8]>>; 64],
    /// Sorted by the name in lower case.
    others: Vec<(Spelling, Spelling)>,
}

/// Reason why an entry of `h1-case-adjust` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseTableError {
    /// The first name is not in lower case.
    NotLowerCase,
    /// The names differ in more than case.
    NotTheSame,
    /// The name has an entry already.
    Twice,
    /// No field can have such a name.
    NotAToken,
}

impl fmt::Display for CaseTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLowerCase => "the first name must be in lower case",
            Self::NotTheSame => "the two names must not differ except in case",
            Self::Twice => "the name has an entry already; remove one of them",
            Self::NotAToken => "no field can have such a name: use letters, digits and hyphens",
        })
    }
}

impl std::error::Error for CaseTableError {}

impl Default for CaseTable {
    fn default() -> Self {
        Self { known: [const { None }; 64], others: Vec::new() }
    }
}

impl CaseTable {
    /// Sets the spelling of `from`, which is in lower case, to `to`.
    ///
    /// # Errors
    /// [`CaseTableError`]; the table is unchanged.
    pub fn insert(&mut self, from: &[u8], to: &[u8]) -> Result<(), CaseTableError> {
        if !crate::syntax::is_token(from) {
            return Err(CaseTableError::NotAToken);
        }
        if from.iter().any(u8::is_ascii_uppercase) {
            return Err(CaseTableError::NotLowerCase);
        }
        if !from.eq_ignore_ascii_case(to) {
            return Err(CaseTableError::NotTheSame);
        }
        let known = Known::of(from);
        if known != Known::OTHER {
            let slot = &mut self.known[usize::from(known.number())];
            if slot.is_some() {
                return Err(CaseTableError::Twice);
            }
            *slot = Some(to.into());
            return Ok(());
        }
        match self.others.binary_search_by(|(name, _)| (**name).cmp(from)) {
            Ok(_) => Err(CaseTableError::Twice),
            Err(at) => {
                self.others.insert(at, (from.into(), to.into()));
                Ok(())
            }
        }
    }

    /// Returns the spelling of a name, if it has an entry.
    pub(crate) fn spelling(&self, known: Known, name: &[u8]) -> Option<&[u8]> {
        if known != Known::OTHER {
            return self.known[usize::from(known.number())].as_deref();
        }
        let lower = |byte: &u8| byte.to_ascii_lowercase();
        let found =
            self.others.binary_search_by(|(entry, _)| entry.iter().copied().cmp(name.iter().map(lower)));
        found.ok().map(|at| &*self.others[at].1)
    }
}
