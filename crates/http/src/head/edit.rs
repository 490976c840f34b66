//! Editing a head: new bytes go into the edits, and the original stays.

use super::{Head, Kind, Span};
use crate::authority::{split_host_port, without_default_port, without_user};
use crate::fields::{EDITED, Entry, NEVER_INDEXED, PushError, REMOVED};
use crate::hop::{MAX_OPTIONS, is_of_one_hop, names_a_field, stays_though_named};
use crate::list::List;
use crate::method::Method;
use crate::name::{Known, NameRef};
use crate::status;
use crate::syntax::{is_token, is_value, is_value_byte, trim, trim_start};
use crate::target::{Form, Target};
use crate::version::Version;
use manylane_pool::AllocError;
use std::fmt;

use super::read::Field;

/// Longest host name, in bytes (RFC 1035, 2.3.4).
const MAX_NAME: usize = 255;

/// Reason why an edit was refused. The head is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditError {
    /// The head would be larger than its room, or have more fields than [`MAX_FIELDS`](crate::MAX_FIELDS).
    Full,
    /// The lane's pool has no memory.
    NoMemory,
    /// The new bytes would end a line or a word early; the sentence says which.
    Invalid(&'static str),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the message head has no room for the edit: raise tune.bufsize or edit less",
            Self::NoMemory => "no memory for the edit of a message head",
            Self::Invalid(what) => what,
        })
    }
}

impl std::error::Error for EditError {}

impl From<AllocError> for EditError {
    fn from(_: AllocError) -> Self {
        Self::NoMemory
    }
}

impl From<PushError> for EditError {
    fn from(error: PushError) -> Self {
        match error {
            PushError::TooMany => Self::Full,
            PushError::NoMemory => Self::NoMemory,
        }
    }
}

/// Position of a field in its head, from [`Head::find`]. It stays the same, whatever happens to other fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldId(u16);

/// Smallest cluster for edits, in bytes.
const EDITS: usize = 2048;

impl Head {
    /// Replaces the method.
    ///
    /// # Errors
    /// [`EditError`]; the method must be a token.
    pub fn set_method(&mut self, method: &[u8]) -> Result<(), EditError> {
        if !is_token(method) {
            return Err(EditError::Invalid(
                "a method has only letters, digits and some punctuation, and is not empty",
            ));
        }
        let at = self.replace_in_line(&[method], self.line.method_at.len)?;
        self.line.method_at = at;
        self.line.method = Method::of(method);
        self.reframed = true;
        Ok(())
    }

    /// Replaces the whole target, as [`set_uri`](Self::set_uri) does.
    ///
    /// # Errors
    /// Those of [`set_uri`](Self::set_uri).
    pub fn set_target(&mut self, target: &[u8]) -> Result<(), EditError> {
        self.set_uri(target)
    }

    /// Replaces the whole target. A target in absolute form also sets `Host`, so that the two never differ.
    ///
    /// # Errors
    /// [`EditError`]; the target must not be empty, and must not have spaces or control characters.
    pub fn set_uri(&mut self, target: &[u8]) -> Result<(), EditError> {
        self.write_target(&[target])?;
        if self.target_parts().form != Form::Absolute {
            return Ok(());
        }
        let line = self.target_bytes();
        let Target { authority: Some(authority), .. } = Target::of(&line, self.line.method) else {
            return Ok(());
        };
        if self.value(Known::HOST).is_some_and(|host| host != authority) {
            self.set_host(authority)?;
        }
        Ok(())
    }

    /// Puts the target of a parsed request, and its `Host`, into the form that HAProxy gives them. In
    /// absolute form, an empty or default port is removed, and an empty path becomes `/` if there is no query
    /// and the method is not `OPTIONS`. The target of a `CONNECT` stays, and its ports 80 and 443 are removed
    /// from `Host`.
    ///
    /// # Errors
    /// [`EditError`]
    pub fn normalize_target(&mut self) -> Result<(), EditError> {
        let line = self.target_bytes();
        match Target::of(&line, self.line.method) {
            Target {
                form: Form::Absolute,
                scheme: Some(scheme),
                authority: Some(authority),
                path: Some(path),
                query,
            } => {
                let bare = without_default_port(scheme, authority);
                let rootless = path.is_empty() && query.is_none() && self.line.method != Method::Options;
                if bare.len() == authority.len() && !rootless {
                    return Ok(());
                }
                let (before, behind) = line.split_at(scheme.len() + 3 + authority.len());
                let before = &before[..before.len() - authority.len()];
                self.write_target(&[before, bare, if rootless { b"/" } else { b"" }, behind])?;
                if self.has(Known::HOST) { self.set_host(without_user(bare)) } else { Ok(()) }
            }
            Target { form: Form::Authority, .. } => {
                let host = self.value(Known::HOST).map(split_host_port);
                let Some((name, Some(b"80" | b"443"))) = host else { return Ok(()) };
                let (len, mut copy) = (name.len(), [0; MAX_NAME]);
                let Some(room) = copy.get_mut(..len) else { return Ok(()) };
                room.copy_from_slice(name);
                self.set_host(&copy[..len])
            }
            _ => Ok(()),
        }
    }

    /// Replaces the path, and keeps scheme, authority and query. `*` is replaced as a whole.
    ///
    /// # Errors
    /// [`EditError`], as for [`set_uri`](Self::set_uri); and the target of a `CONNECT` has no path.
    pub fn set_path(&mut self, path: &[u8]) -> Result<(), EditError> {
        let line = self.target_bytes();
        match Target::of(&line, self.line.method) {
            Target { path: Some(old), .. } => {
                let start = old.as_ptr().addr() - line.as_ptr().addr();
                self.write_target(&[&line[..start], path, &line[start + old.len()..]])
            }
            Target { form: Form::Asterisk, .. } => self.write_target(&[path]),
            _ => Err(EditError::Invalid("the request's target has no path that could be replaced")),
        }
    }

    /// Replaces path and query, with the question mark.
    ///
    /// # Errors
    /// Those of [`set_path`](Self::set_path).
    pub fn set_pathq(&mut self, pathq: &[u8]) -> Result<(), EditError> {
        let line = self.target_bytes();
        match Target::of(&line, self.line.method) {
            Target { path: Some(old), .. } => {
                let start = old.as_ptr().addr() - line.as_ptr().addr();
                self.write_target(&[&line[..start], pathq])
            }
            Target { form: Form::Asterisk, .. } => self.write_target(&[pathq]),
            _ => Err(EditError::Invalid("the request's target has no path that could be replaced")),
        }
    }

    /// Replaces the query. Adds a question mark if there was none and `query` is not empty; keeps one that
    /// was there.
    ///
    /// # Errors
    /// Those of [`set_path`](Self::set_path).
    pub fn set_query(&mut self, query: &[u8]) -> Result<(), EditError> {
        let line = self.target_bytes();
        match Target::of(&line, self.line.method) {
            Target { query: Some(old), .. } => {
                let start = old.as_ptr().addr() - line.as_ptr().addr();
                self.write_target(&[&line[..start], query])
            }
            _ if query.is_empty() => Ok(()),
            Target { path: Some(_), .. } => self.write_target(&[&line, b"?", query]),
            _ => Err(EditError::Invalid("the request's target has no query that could be replaced")),
        }
    }

    /// Replaces the version.
    ///
    /// # Errors
    /// [`EditError::Full`]
    pub fn set_version(&mut self, version: Version) -> Result<(), EditError> {
        if version == self.line.version {
            return Ok(());
        }
        self.resize_line(self.line_len_edited())?;
        self.line.version = version;
        Ok(())
    }

    /// Rewrites the start line with the version in this program's own form: for one that came as `HTTP/1.2`.
    ///
    /// # Errors
    /// [`EditError::Full`]
    pub fn renew_line(&mut self) -> Result<(), EditError> {
        self.resize_line(self.line_len_edited())
    }

    /// Replaces status and reason. `None` sets the usual reason.
    ///
    /// # Errors
    /// [`EditError`]; a status has three digits, a reason no control characters.
    pub fn set_status(&mut self, status: u16, reason: Option<&[u8]>) -> Result<(), EditError> {
        if !(100..=999).contains(&status) {
            return Err(EditError::Invalid("a status is a number from 100 to 999"));
        }
        let reason = reason.unwrap_or(status::reason(status).as_bytes());
        if !is_value(reason) {
            return Err(EditError::Invalid("a reason phrase must not have control characters"));
        }
        let at = self.replace_in_line(&[reason], self.line.rest.len)?;
        self.line.rest = at;
        self.line.status = status;
        self.reframed = true;
        Ok(())
    }

    /// Adds a field behind all others.
    ///
    /// # Errors
    /// [`EditError`]; the name must be a token, the value must not have control characters except for tabs.
    pub fn add_field<'n>(&mut self, name: impl Into<NameRef<'n>>, value: &[u8]) -> Result<(), EditError> {
        let entry = self.write_field(name.into(), value, 0)?;
        self.push_written(entry)
    }

    /// Adds a field behind all others whose value is `parts` together, such as the location of a redirection.
    ///
    /// # Errors
    /// Those of [`add_field`](Self::add_field); a field that frames a body is invalid.
    pub fn add_joined<'n>(
        &mut self,
        name: impl Into<NameRef<'n>>,
        parts: [&[u8]; 6],
    ) -> Result<(), EditError> {
        let name = name.into();
        let bytes = name.bytes();
        let value = || parts.iter().copied().flatten().copied();
        if !is_token(bytes) || name.known().frames() || !value().all(is_value_byte) {
            return Err(EditError::Invalid("a joined value has no control characters and frames nothing"));
        }
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let before = value().take_while(is_blank).count();
        let behind = value().rev().take_while(is_blank).count();
        let value_len = parts.iter().map(|part| part.len()).sum::<usize>();
        let len = bytes.len() + value_len + 4;
        if self.size as usize + len > self.room as usize {
            return Err(EditError::Full);
        }
        let [a, b, c, d, e, f] = parts;
        let at = self.write(&[bytes, b": ", a, b, c, d, e, f, b"\r\n"], len)?;
        self.push_written(Entry {
            name: at,
            name_len: bytes.len() as u16,
            value: at + (bytes.len() + 2 + before) as u16,
            value_len: value_len.saturating_sub(before + behind) as u16,
            end: at + len as u16,
            known: name.known().number(),
            flags: EDITED,
        })
    }

    fn push_written(&mut self, entry: Entry) -> Result<(), EditError> {
        self.fields.push_entry(entry)?;
        self.size += u32::from(entry.end - entry.name);
        self.edited = true;
        Ok(())
    }

    /// Removes all fields of this name and adds one behind all others. Setting `Host` also sets the authority
    /// of a target in absolute form.
    ///
    /// # Errors
    /// Those of [`add_field`](Self::add_field).
    pub fn set_field<'n>(&mut self, name: impl Into<NameRef<'n>>, value: &[u8]) -> Result<(), EditError> {
        let name = name.into();
        if name.known() == Known::HOST && self.target_parts().form == Form::Absolute {
            let line = self.target_bytes();
            if let Target { authority: Some(old), .. } = Target::of(&line, self.line.method)
                && old != value
            {
                let start = old.as_ptr().addr() - line.as_ptr().addr();
                self.write_target(&[&line[..start], value, &line[start + old.len()..]])?;
            }
        }
        self.set_alone(name, value)
    }

    fn set_host(&mut self, value: &[u8]) -> Result<(), EditError> {
        self.set_alone(Known::HOST.into(), value)
    }

    fn set_alone(&mut self, name: NameRef<'_>, value: &[u8]) -> Result<(), EditError> {
        let mut freed = 0;
        let mut from = 0;
        while let Some((at, entry)) = self.next_named(from, name) {
            freed += usize::from(entry.end - entry.name);
            from = at + 1;
        }
        let entry = self.write_field(name, value, freed)?;
        self.fields.push_entry(entry)?;
        self.size += u32::from(entry.end - entry.name);
        self.edited = true;
        let added = self.fields.len() - 1;
        let mut from = 0;
        while let Some((at, _)) = self.next_named(from, name) {
            if at == added {
                break;
            }
            self.remove_at(at);
            from = at + 1;
        }
        Ok(())
    }

    /// Removes all fields of this name, and returns the number of lines removed.
    pub fn remove_fields<'n>(&mut self, name: impl Into<NameRef<'n>>) -> usize {
        let name = name.into();
        let (mut from, mut removed) = (0, 0);
        if !self.fields.may_have(name.known()) {
            return 0;
        }
        while let Some((at, _)) = self.next_named(from, name) {
            self.remove_at(at);
            (from, removed) = (at + 1, removed + 1);
        }
        removed
    }

    /// Removes all fields of this name but the first.
    pub fn keep_first<'n>(&mut self, name: impl Into<NameRef<'n>>) {
        let name = name.into();
        let mut from = self.next_named(0, name).map_or(0, |(first, _)| first + 1);
        while let Some((at, _)) = self.next_named(from, name) {
            self.remove_at(at);
            from = at + 1;
        }
    }

    /// Removes the fields for which `condition` returns true, and returns the number of lines removed.
    pub fn remove_where(&mut self, mut condition: impl FnMut(&Field<'_>) -> bool) -> usize {
        let mut removed = 0;
        for at in 0..self.fields.len() {
            if let Some(entry) = self.fields.get(at)
                && !entry.has(REMOVED)
                && condition(&self.field_of(entry))
            {
                self.remove_at(at);
                removed += 1;
            }
        }
        removed
    }

    /// Removes the hop-by-hop fields: those that are always for one hop, and those that `Connection` names
    /// (RFC 9110, 7.6.1), except for fields that no sender may remove. `Connection` itself stays as it is.
    /// Only the first [`MAX_OPTIONS`] names count, so the cost is at most that many comparisons a field.
    pub fn remove_hop_by_hop(&mut self) {
        // Where each name stands: its field, and its place in that field's value.
        let mut ranges = [(0, 0, 0); MAX_OPTIONS];
        let mut count = 0;
        for at in 0..self.fields.len() {
            let Some(field) = self.field(FieldId(at as u16)) else { continue };
            if field.known != Known::CONNECTION {
                continue;
            }
            let options = List::new(field.value).filter(|option| names_a_field(option));
            for (option, range) in options.zip(&mut ranges[count..]) {
                *range = (at, option.as_ptr().addr() - field.value.as_ptr().addr(), option.len());
                count += 1;
            }
        }
        for at in 0..self.fields.len() {
            let Some(field) = self.field(FieldId(at as u16)) else { continue };
            let is_named = || {
                ranges[..count].iter().any(|&(of, start, length)| {
                    let value = self.fields.get(of).map_or(&[][..], |entry| self.field_of(entry).value);
                    value[start..start + length].eq_ignore_ascii_case(field.name)
                })
            };
            if is_of_one_hop(field.known) || is_named() && !stays_though_named(field.known, field.name) {
                self.remove_at(at);
            }
        }
    }

    fn remove_at(&mut self, at: usize) {
        if let Some(entry) = self.fields.get_mut(at)
            && !entry.has(REMOVED)
        {
            entry.flags |= REMOVED;
            self.size -= u32::from(entry.end - entry.name);
            self.edited = true;
            self.reframed |= Known::numbered(entry.known).frames();
        }
    }

    /// Returns the first field of this name after `after`; `None` starts at the first field. For edits of
    /// single lines:
    ///
    /// ```
    /// # fn main() -> Result<(), manylane_http::EditError> {
    /// use manylane_http::{Head, Known, Version};
    /// let mut head = Head::response(Version::HTTP_11, 200, None)?;
    /// head.add_field(Known::SET_COOKIE, b"a=1")?;
    /// head.add_field(Known::SET_COOKIE, b"b=2")?;
    /// let mut at = None;
    /// while let Some(id) = head.find(Known::SET_COOKIE, at) {
    ///     if head.field(id).is_some_and(|field| field.value == b"a=1") {
    ///         head.replace_value(id, b"a=1; Secure")?;
    ///     }
    ///     at = Some(id);
    /// }
    /// assert!(head.values(Known::SET_COOKIE).eq([&b"a=1; Secure"[..], b"b=2"]));
    /// # Ok(()) }
    /// ```
    pub fn find<'n>(&self, name: impl Into<NameRef<'n>>, after: Option<FieldId>) -> Option<FieldId> {
        let name = name.into();
        if !self.fields.may_have(name.known()) {
            return None;
        }
        let (at, _) = self.next_named(after.map_or(0, |id| usize::from(id.0) + 1), name)?;
        Some(FieldId(at as u16))
    }

    /// Returns the field at this position, unless it was removed.
    pub fn field(&self, id: FieldId) -> Option<Field<'_>> {
        let entry = self.fields.get(usize::from(id.0)).filter(|entry| !entry.has(REMOVED))?;
        Some(self.field_of(entry))
    }

    /// Replaces the value of a field, which keeps its position. Does nothing if the field was removed.
    ///
    /// # Errors
    /// Those of [`add_field`](Self::add_field).
    pub fn replace_value(&mut self, id: FieldId, value: &[u8]) -> Result<(), EditError> {
        let at = usize::from(id.0);
        let Some(old) = self.fields.get(at).filter(|entry| !entry.has(REMOVED)) else { return Ok(()) };
        let known = Known::numbered(old.known);
        if known == Known::HOST {
            return self.set_field(known, value); // the target may have to change, too
        }
        // The name is copied, because it may be in the edits, which grow.
        let mut copy = [0; 256];
        let name = self.name_of(old);
        let freed = usize::from(old.end - old.name);
        let mut entry = if known != Known::OTHER {
            self.write_field(known.into(), value, freed)?
        } else if let Some(copy) = copy.get_mut(..name.len()) {
            copy.copy_from_slice(name);
            self.write_field((&*copy).into(), value, freed)?
        } else {
            let name = name.to_vec(); // too long to occur in practice
            self.write_field(name.as_slice().into(), value, freed)?
        };
        entry.flags |= old.flags & NEVER_INDEXED;
        if let Some(slot) = self.fields.get_mut(at) {
            *slot = entry;
        }
        self.size = self.size - freed as u32 + u32::from(entry.end - entry.name);
        self.edited = true;
        Ok(())
    }

    /// Removes one line. Does nothing if it was removed before.
    pub fn remove(&mut self, id: FieldId) {
        self.remove_at(usize::from(id.0));
    }

    /// Writes a field's line into the edits. `freed` is the number of bytes that it replaces.
    fn write_field(&mut self, name: NameRef<'_>, value: &[u8], freed: usize) -> Result<Entry, EditError> {
        if name.known() == Known::OTHER && !is_token(name.bytes()) {
            return Err(EditError::Invalid(
                "a field's name has only letters, digits and some punctuation, and is not empty",
            ));
        }
        if !is_value(value) {
            return Err(EditError::Invalid("a field's value must not have control characters"));
        }
        // Blanks before a value belong to the line. Blanks behind it are sent as a rule wrote them, but
        // readers do not count them as part of it.
        let value = if name.known().frames() { trim(value) } else { trim_start(value) };
        let bytes = name.bytes();
        let len = bytes.len() + value.len() + 4;
        if self.size as usize - freed + len > self.room as usize {
            return Err(EditError::Full);
        }
        let at = self.write(&[bytes, b": ", value, b"\r\n"], len)?;
        self.reframed |= name.known().frames();
        let value_at = at + bytes.len() as u16 + 2;
        Ok(Entry {
            name: at,
            name_len: bytes.len() as u16,
            value: value_at,
            value_len: trim(value).len() as u16,
            end: at + len as u16,
            known: name.known().number(),
            flags: EDITED,
        })
    }

    /// Appends `parts`, of `len` bytes in all, to the edits, and returns their position.
    pub(super) fn write(&mut self, parts: &[&[u8]], len: usize) -> Result<u16, EditError> {
        let at = self.edits.len();
        if at + len > usize::from(u16::MAX) {
            return Err(EditError::Full);
        }
        self.edits.append_together(parts, EDITS).map_err(|error| match error {
            manylane_buf::Error::Alloc(_) => EditError::NoMemory,
            _ => EditError::Full,
        })?;
        Ok(at as u16)
    }

    /// Replaces a part of the start line that took `old` bytes, and returns the range of the new one.
    fn replace_in_line(&mut self, parts: &[&[u8]], old: u16) -> Result<Span, EditError> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let line = self.line_len_edited() + len - usize::from(old);
        let before = self.size;
        self.resize_line(line)?;
        match self.write(parts, len) {
            Ok(at) => Ok(Span { at, len: len as u16, edited: true }),
            Err(error) => {
                self.size = before;
                Err(error)
            }
        }
    }

    /// Updates `size` for a start line of `len` bytes.
    fn resize_line(&mut self, len: usize) -> Result<(), EditError> {
        let now = if self.line.edited { self.line_len_edited() } else { usize::from(self.lines) };
        let size = self.size as usize - now + len;
        if size > self.room as usize {
            return Err(EditError::Full);
        }
        self.size = size as u32;
        self.line.edited = true;
        self.line.written = None;
        self.edited = true;
        Ok(())
    }

    /// Returns the size of the start line when it is rewritten.
    fn line_len_edited(&self) -> usize {
        let fixed = match self.line.kind {
            Kind::Request => b"  HTTP/1.1\r\n".len(),
            Kind::Response => b"HTTP/1.1 200 \r\n".len(),
            Kind::Trailers => return 0,
        };
        fixed + usize::from(self.line.method_at.len) + usize::from(self.line.rest.len)
    }

    fn write_target(&mut self, parts: &[&[u8]]) -> Result<(), EditError> {
        let fine = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        if parts.iter().all(|part| part.is_empty()) || !parts.iter().all(|part| part.iter().all(fine)) {
            return Err(EditError::Invalid(
                "a target must not be empty, nor have spaces or control characters",
            ));
        }
        self.line.rest = self.replace_in_line(parts, self.line.rest.len)?;
        Ok(())
    }

    /// Returns the target as a shared view, which stays readable while the edits grow.
    fn target_bytes(&self) -> SharedBytes {
        let Span { at, len, edited } = self.line.rest;
        let (mut at, len) = (usize::from(at), usize::from(len));
        if !edited {
            return SharedBytes(
                self.original.as_ref().and_then(|original| original.slice(at..at + len).ok()),
            );
        }
        for segment in self.edits.segments() {
            if let Ok(part) = segment.slice(at..at + len) {
                return SharedBytes(Some(part));
            }
            at = at.saturating_sub(segment.len());
        }
        SharedBytes(None)
    }
}

/// A shared view, or nothing.
struct SharedBytes(Option<manylane_buf::Segment>);

impl std::ops::Deref for SharedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}
