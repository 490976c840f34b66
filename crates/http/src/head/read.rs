//! Looking at a head, edits applied.

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
    /// As it was spelled.
    pub name: &'a [u8],
    /// Without spaces around it.
    pub value: &'a [u8],
    /// The name's number.
    pub known: Known,
    /// Its sender asks that no compression keeps its value (RFC 7541, 7.1.3).
    pub never_indexed: bool,
}

impl Field<'_> {
    /// Whether it has this name.
    #[inline]
    pub fn is<'n>(&self, name: impl Into<NameRef<'n>>) -> bool {
        name.into().is(self.known, self.name)
    }
}

impl Head {
    /// Request or response.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.line.kind
    }

    /// The message's version.
    #[inline]
    pub fn version(&self) -> Version {
        self.line.version
    }

    /// The method; empty in a response.
    #[inline]
    pub fn method(&self) -> &[u8] {
        self.span(self.line.method_at)
    }

    /// The method's number; [`Method::Other`] in a response.
    #[inline]
    pub fn method_kind(&self) -> Method {
        self.line.method
    }

    /// Whether something was edited since it was parsed that says how its body is framed: a `Content-Length`,
    /// a `Transfer-Encoding`, the method or the status.
    #[inline]
    pub fn is_reframed(&self) -> bool {
        self.reframed
    }

    /// The target as it stands in the message; empty in a response.
    #[inline]
    pub fn target(&self) -> &[u8] {
        match self.line.kind {
            Kind::Request => self.span(self.line.rest),
            Kind::Response | Kind::Trailers => &[],
        }
    }

    /// The target taken apart.
    #[inline]
    pub fn target_parts(&self) -> Target<'_> {
        Target::of(self.target(), self.line.method)
    }

    /// The target's path, from its slash to the question mark; none in `*`, in the authority of a `CONNECT`,
    /// and in responses.
    #[inline]
    pub fn path(&self) -> Option<&[u8]> {
        self.target_parts().path
    }

    /// What follows the question mark; none without one.
    #[inline]
    pub fn query(&self) -> Option<&[u8]> {
        self.target_parts().query
    }

    /// The host and port in the target: in absolute form, or of a `CONNECT`.
    #[inline]
    pub fn authority(&self) -> Option<&[u8]> {
        self.target_parts().authority
    }

    /// Whom the request is for: the target's authority, else the value of `Host`.
    #[inline]
    pub fn host(&self) -> Option<&[u8]> {
        match self.target_parts() {
            Target { form: Form::Absolute | Form::Authority, authority, .. } => authority,
            _ => self.value(Known::HOST),
        }
    }

    /// The status; 0 in a request.
    #[inline]
    pub fn status(&self) -> u16 {
        self.line.status
    }

    /// The reason phrase; may be empty, as in a request.
    #[inline]
    pub fn reason(&self) -> &[u8] {
        match self.line.kind {
            Kind::Request | Kind::Trailers => &[],
            Kind::Response => self.span(self.line.rest),
        }
    }

    /// The fields in the order of the message.
    #[inline]
    pub fn fields(&self) -> FieldIter<'_> {
        FieldIter { head: self, at: 0 }
    }

    /// Whether there is such a field.
    #[inline]
    pub fn has<'n>(&self, name: impl Into<NameRef<'n>>) -> bool {
        self.values(name).next().is_some()
    }

    /// The value of the first such field.
    #[inline]
    pub fn value<'n>(&self, name: impl Into<NameRef<'n>>) -> Option<&[u8]> {
        self.values(name).next()
    }

    /// The values of a field, one for each line with that name: what `fhdr` sees.
    ///
    /// For well-known names that the head does not have: a test of one bit.
    #[inline]
    pub fn values<'a, 'n>(&'a self, name: impl Into<NameRef<'n>>) -> Values<'a, 'n> {
        let name = name.into();
        let at = if self.fields.may_have(name.known()) { 0 } else { self.fields.len() };
        Values { head: self, name, at }
    }

    /// The members of a list that a field is, whether in one line or several, separated by commas outside of
    /// quotes and trimmed: what `hdr` sees. Empty members are there, too.
    #[inline]
    pub fn list_values<'a, 'n>(&'a self, name: impl Into<NameRef<'n>>) -> ListValues<'a, 'n> {
        ListValues { values: self.values(name), list: None }
    }

    /// How many lines have this name: `fhdr_cnt`.
    #[inline]
    pub fn count<'n>(&self, name: impl Into<NameRef<'n>>) -> usize {
        self.values(name).count()
    }

    /// The bytes as they were received, the empty line included; none for a head that was made here.
    #[inline]
    pub fn original(&self) -> Option<&Segment> {
        self.original.as_ref()
    }

    /// Bytes that it takes when it is written, the empty line included.
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

    /// Bytes of the edits; they lie in one segment (rule 3).
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

    /// The field's line, its end included.
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

    /// The next field of this name at or behind number `from`: its number and where it is.
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

/// The fields of a head: [`Head::fields`].
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

/// The values of the lines of one name: [`Head::values`].
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

/// The members of a list: [`Head::list_values`].
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
