//! Reading a head with its edits applied.

use super::{Head, Kind, Span};
use crate::fields::{EDITED, Entry, NEVER_INDEXED, REMOVED};
use crate::list::List;
use crate::method::Method;
use crate::name::{Known, NameRef};
use crate::target::{Form, Target};
use crate::version::Version;
use manylane_buf::Segment;

/// A field of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name as it was spelled.
    pub name: &'a [u8],
    /// Value without spaces around it.
    pub value: &'a [u8],
    /// Number of the name.
    pub known: Known,
    /// True if its sender asks that no compression keeps its value (RFC 7541, 7.1.3).
    pub never_indexed: bool,
}

impl Field<'_> {
    /// Returns whether the field has this name.
    #[inline]
    pub fn is<'n>(&self, name: impl Into<NameRef<'n>>) -> bool {
        name.into().is(self.known, self.name)
    }
}

impl Head {
    /// Returns the kind: request, response or trailers.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.line.kind
    }

    /// Returns the message's version.
    #[inline]
    pub fn version(&self) -> Version {
        self.line.version
    }

    /// Returns the method; empty in a response.
    #[inline]
    pub fn method(&self) -> &[u8] {
        self.span(self.line.method_at)
    }

    /// Returns the method's kind; [`Method::Other`] in a response.
    #[inline]
    pub fn method_kind(&self) -> Method {
        self.line.method
    }

    /// Returns whether an edit since parsing changed the framing of the body: a `Content-Length`, a
    /// `Transfer-Encoding`, the method or the status.
    #[inline]
    pub fn is_reframed(&self) -> bool {
        self.reframed
    }

    /// Returns the target as it is in the message; empty in a response.
    #[inline]
    pub fn target(&self) -> &[u8] {
        match self.line.kind {
            Kind::Request => self.span(self.line.rest),
            Kind::Response | Kind::Trailers => &[],
        }
    }

    /// Returns the parts of the target.
    #[inline]
    pub fn target_parts(&self) -> Target<'_> {
        Target::of(self.target(), self.line.method)
    }

    /// Returns the target's path, from its slash to the question mark; `None` for `*`, for the authority of a
    /// `CONNECT`, and in responses.
    #[inline]
    pub fn path(&self) -> Option<&[u8]> {
        self.target_parts().path
    }

    /// Returns the query, behind the question mark; `None` without one.
    #[inline]
    pub fn query(&self) -> Option<&[u8]> {
        self.target_parts().query
    }

    /// Returns the host and port in the target: in absolute form, or of a `CONNECT`.
    #[inline]
    pub fn authority(&self) -> Option<&[u8]> {
        self.target_parts().authority
    }

    /// Returns the host that the request is for: the target's authority, else the value of `Host`.
    #[inline]
    pub fn host(&self) -> Option<&[u8]> {
        match self.target_parts() {
            Target { form: Form::Absolute | Form::Authority, authority, .. } => authority,
            _ => self.value(Known::HOST),
        }
    }

    /// Returns the status; 0 in a request.
    #[inline]
    pub fn status(&self) -> u16 {
        self.line.status
    }

    /// Returns the reason phrase; it may be empty, and is so in a request.
    #[inline]
    pub fn reason(&self) -> &[u8] {
        match self.line.kind {
            Kind::Request | Kind::Trailers => &[],
            Kind::Response => self.span(self.line.rest),
        }
    }

    /// Returns the fields in the order of the message.
    #[inline]
    pub fn fields(&self) -> FieldIter<'_> {
        FieldIter { head: self, at: 0 }
    }

    /// Returns whether there is a field with this name.
    #[inline]
    pub fn has<'n>(&self, name: impl Into<NameRef<'n>>) -> bool {
        self.value(name).is_some()
    }

    /// Returns the value of the first field with this name.
    #[inline]
    pub fn value<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<&[u8]> {
        let name = name.into();
        // Most questions are about fields that are not there: they cost no call.
        if !self.fields.may_have(name.known()) {
            return None;
        }
        self.values(name).next()
    }

    /// Returns the values of a field, one for each line with that name: the view of `fhdr`.
    ///
    /// Costs a test of one bit for a well-known name that the head does not have.
    #[inline]
    pub fn values<'a, 'n>(&'a self, name: impl Into<NameRef<'n>>) -> Values<'a, 'n> {
        let name = name.into();
        let at = if self.fields.may_have(name.known()) { 0 } else { self.fields.len() };
        Values { head: self, name, at }
    }

    /// Returns the members of a list field, in one line or several, separated by commas outside of quotes and
    /// trimmed: the view of `hdr`. Empty members are returned, too.
    #[inline]
    pub fn list_values<'a, 'n>(&'a self, name: impl Into<NameRef<'n>>) -> ListValues<'a, 'n> {
        ListValues { values: self.values(name), list: None }
    }

    /// Returns the number of lines with this name: `fhdr_cnt`.
    #[inline]
    pub fn count<'n>(&self, name: impl Into<NameRef<'n>>) -> usize {
        self.values(name).count()
    }

    /// Returns the bytes as they were received, with the empty line; `None` for a head that was created here.
    #[inline]
    pub fn original(&self) -> Option<&Segment> {
        self.original.as_ref()
    }

    /// Sets the size that edits may make the head grow to. It is never less than its size by now.
    #[inline]
    pub fn set_room(&mut self, room: usize) {
        self.room = self.size.max(u32::try_from(room).unwrap_or(u32::MAX));
    }

    /// Returns the number of bytes of the head when it is written, with the empty line.
    #[inline]
    pub fn size(&self) -> usize {
        self.size as usize
    }

    #[inline]
    fn bytes(&self, edited: bool, at: u16, len: u16) -> &[u8] {
        let (at, len) = (usize::from(at), usize::from(len));
        if edited {
            return self.edit_bytes(at, len);
        }
        self.original.as_ref().and_then(|original| original.get(at..at + len)).unwrap_or(&[])
    }

    /// Returns bytes of the edits; they are in one segment (rule 3).
    pub(super) fn edit_bytes(&self, mut at: usize, len: usize) -> &[u8] {
        for segment in self.edits.segments() {
            if let Some(bytes) = segment.get(at..at + len) {
                return bytes;
            }
            at = at.saturating_sub(segment.len());
        }
        &[]
    }

    #[inline]
    pub(super) fn span(&self, span: Span) -> &[u8] {
        self.bytes(span.edited, span.at, span.len)
    }

    #[inline]
    pub(super) fn name_of(&self, entry: Entry) -> &[u8] {
        self.bytes(entry.has(EDITED), entry.name, entry.name_len)
    }

    #[inline]
    pub(super) fn value_of(&self, entry: Entry) -> &[u8] {
        self.bytes(entry.has(EDITED), entry.value, entry.value_len)
    }

    /// Returns the field's line, with its line end.
    pub(super) fn line_of(&self, entry: Entry) -> &[u8] {
        self.bytes(entry.has(EDITED), entry.name, entry.end - entry.name)
    }

    #[inline]
    pub(super) fn field_of(&self, entry: Entry) -> Field<'_> {
        Field {
            name: self.name_of(entry),
            value: self.value_of(entry),
            known: Known::numbered(entry.known),
            never_indexed: entry.has(NEVER_INDEXED),
        }
    }

    /// Returns the next field of this name at or after position `from`, with its position.
    #[inline]
    pub(super) fn next_named(&self, mut from: usize, name: NameRef<'_>) -> Option<(usize, Entry)> {
        loop {
            let (at, entry) = self.fields.next_known(from, name.known().number())?;
            if name.known() != Known::OTHER || name.bytes().eq_ignore_ascii_case(self.name_of(entry)) {
                return Some((at, entry));
            }
            from = at + 1;
        }
    }
}

/// Iterator over the fields of a head: [`Head::fields`].
#[derive(Clone, Debug)]
pub struct FieldIter<'a> {
    head: &'a Head,
    at: usize,
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = Field<'a>;

    #[inline]
    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            let entry = self.head.fields.get(self.at)?;
            self.at += 1;
            if !entry.has(REMOVED) {
                return Some(self.head.field_of(entry));
            }
        }
    }
}

/// Iterator over the values of the lines with one name: [`Head::values`].
#[derive(Clone, Debug)]
pub struct Values<'a, 'n> {
    head: &'a Head,
    name: NameRef<'n>,
    at: usize,
}

impl<'a> Iterator for Values<'a, '_> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (at, entry) = self.head.next_named(self.at, self.name)?;
        self.at = at + 1;
        Some(self.head.value_of(entry))
    }
}

/// Iterator over the members of a list: [`Head::list_values`].
#[derive(Clone, Debug)]
pub struct ListValues<'a, 'n> {
    values: Values<'a, 'n>,
    list: Option<List<'a>>,
}

impl<'a> Iterator for ListValues<'a, '_> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let Some(member) = self.list.as_mut().and_then(Iterator::next) {
                return Some(member);
            }
            self.list = Some(List::new(self.values.next()?));
        }
    }
}
