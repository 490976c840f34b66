//! The head of a message.
//!
//! [`read`] has the accessors, [`edit`] the edits, [`emit`] the output.
//!
//! Rules:
//! 1. The original bytes, if there are any, are in one segment and never change. The lines of its fields
//!    follow each other without a gap from `lines` to `lines_end`. There the empty line begins, which ends
//!    the original.
//! 2. The entries are in the order of the message. Those of the original come first. Their offsets never
//!    change, except that an entry whose line is replaced refers to the edits.
//! 3. Edits only grow: bytes that a later edit replaces stay in the edits, unused. Each line in the edits is
//!    contiguous, with its line end.
//! 4. `size` is the size of the head when it is written; no edit makes it larger than `room`.

mod edit;
mod emit;
mod read;

pub use edit::{EditError, FieldId};
pub use emit::{CaseTable, CaseTableError};
pub use read::{Field, FieldIter, ListValues, Values};

use crate::fields::Fields;
use crate::method::Method;
use crate::version::Version;
use manylane_buf::{Chain, Segment};
use manylane_pool::AllocError;
use std::ops::Range;

/// Largest head as received, in bytes: offsets have 16 bits.
pub const MAX_HEAD: usize = u16::MAX as usize;

/// Kind of message that a head belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request: method, target, version.
    Request,
    /// A response: version, status, reason.
    Response,
    /// Fields behind a chunked body; no start line.
    Trailers,
}

/// A range of bytes in the original or in the edits.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    at: u16,
    len: u16,
    edited: bool,
}

impl Span {
    fn original(range: &Range<usize>) -> Self {
        Self { at: range.start as u16, len: (range.end - range.start) as u16, edited: false }
    }
}

/// The start line.
#[derive(Clone, Copy, Debug)]
struct Line {
    kind: Kind,
    version: Version,
    method: Method,
    status: u16,
    /// Method of a request.
    method_at: Span,
    /// Target of a request, or reason of a response.
    rest: Span,
    /// True if the line must be rewritten.
    edited: bool,
    /// Range of the rewritten line in the edits, if nothing changed since.
    written: Option<(u16, u16)>,
}

/// One message head, of a request or a response of any version of HTTP, or trailers.
///
/// Its bytes stay where they were received; start line and fields are ranges. Edits are kept beside it and
/// applied when it is written ([`emit`](Self::emit)). A head belongs to its lane.
pub struct Head {
    original: Option<Segment>,
    edits: Chain,
    fields: Fields,
    line: Line,
    /// Start and end of the field lines in the original (rule 1).
    lines: u16,
    lines_end: u16,
    /// True if the head differs from the original.
    edited: bool,
    /// True if an edit changed something that the framing of a body depends on.
    reframed: bool,
    /// Rule 4, in bytes.
    size: u32,
    room: u32,
}

/// Positions of the parts of a request line.
#[derive(Clone, Debug)]
pub struct RequestLine {
    /// Kind of the method.
    pub kind: Method,
    /// Range of the method.
    pub method: Range<usize>,
    /// Range of the target.
    pub target: Range<usize>,
    /// Version.
    pub version: Version,
    /// End of the line, which is the start of the first field.
    pub end: usize,
}

/// Positions of the parts of a status line.
#[derive(Clone, Debug)]
pub struct StatusLine {
    /// Version.
    pub version: Version,
    /// Status.
    pub status: u16,
    /// Range of the reason; it may be empty.
    pub reason: Range<usize>,
    /// End of the line, which is the start of the first field.
    pub end: usize,
}

impl Head {
    /// Creates a parsed request. `original` is its whole head, with the empty line, and `fields` has its
    /// lines. Edits may make it grow to `room` bytes.
    ///
    /// # Panics
    /// If `original` is longer than [`MAX_HEAD`], or a range lies outside of it.
    #[inline]
    pub fn parsed_request(original: Segment, line: &RequestLine, fields: Fields, room: usize) -> Self {
        assert!(
            line.method.end <= line.target.start && line.target.end <= line.end && line.end <= original.len()
        );
        Self::parsed(
            original,
            Line {
                kind: Kind::Request,
                version: line.version,
                method: line.kind,
                status: 0,
                method_at: Span::original(&line.method),
                rest: Span::original(&line.target),
                edited: false,
                written: None,
            },
            line.end,
            fields,
            room,
        )
    }

    /// Creates a parsed response, as [`parsed_request`](Self::parsed_request) creates a request.
    ///
    /// # Panics
    /// As [`parsed_request`](Self::parsed_request).
    #[inline]
    pub fn parsed_response(original: Segment, line: &StatusLine, fields: Fields, room: usize) -> Self {
        assert!(
            line.reason.start <= line.reason.end && line.reason.end <= line.end && line.end <= original.len()
        );
        Self::parsed(
            original,
            Line {
                kind: Kind::Response,
                version: line.version,
                method: Method::Other,
                status: line.status,
                method_at: Span::default(),
                rest: Span::original(&line.reason),
                edited: false,
                written: None,
            },
            line.end,
            fields,
            room,
        )
    }

    /// Creates parsed trailers. `original` is all of them, with the empty line.
    ///
    /// # Panics
    /// As [`parsed_request`](Self::parsed_request).
    pub fn parsed_trailers(original: Segment, fields: Fields, room: usize) -> Self {
        Self::parsed(original, Self::no_line(), 0, fields, room)
    }

    /// Creates new trailers without fields.
    ///
    /// # Errors
    /// [`EditError::NoMemory`]
    pub fn trailers() -> Result<Self, EditError> {
        Ok(Self::empty(Self::no_line(), MAX_HEAD)?)
    }

    fn no_line() -> Line {
        Line {
            kind: Kind::Trailers,
            version: Version::HTTP_11,
            method: Method::Other,
            status: 0,
            method_at: Span::default(),
            rest: Span::default(),
            edited: false,
            written: None,
        }
    }

    #[inline]
    fn parsed(original: Segment, line: Line, lines: usize, fields: Fields, room: usize) -> Self {
        let size = original.len();
        assert!(size <= MAX_HEAD, "a head of {size} bytes; at most {MAX_HEAD}");
        let lines_end = fields
            .len()
            .checked_sub(1)
            .and_then(|last| fields.get(last))
            .map_or(lines as u16, |last| last.end);
        assert!(usize::from(lines_end) <= size, "a field outside of the head");
        Self {
            original: Some(original),
            edits: Chain::new(),
            fields,
            line,
            lines: lines as u16,
            lines_end,
            edited: false,
            reframed: false,
            size: size as u32,
            room: room.max(size) as u32,
        }
    }

    /// Creates a head that was not received: all of it is edits.
    fn empty(line: Line, room: usize) -> Result<Self, AllocError> {
        Ok(Self {
            original: None,
            edits: Chain::new(),
            fields: Fields::new()?,
            line,
            lines: 0,
            lines_end: 0,
            edited: true,
            reframed: true,
            size: 2,
            room: room as u32,
        })
    }

    /// Creates a new request without fields.
    ///
    /// # Errors
    /// [`EditError`], also for bytes that a request line may not have.
    pub fn request(method: &[u8], target: &[u8], version: Version) -> Result<Self, EditError> {
        let line = Line {
            kind: Kind::Request,
            version,
            method: Method::Other,
            status: 0,
            method_at: Span::default(),
            rest: Span::default(),
            edited: true,
            written: None,
        };
        let mut head = Self::empty(line, MAX_HEAD)?;
        head.size += b"  HTTP/1.1\r\n".len() as u32;
        head.set_method(method)?;
        head.set_target(target)?;
        Ok(head)
    }

    /// Creates a new response without fields. `None` sets the usual reason.
    ///
    /// # Errors
    /// [`EditError`], also for bytes that a status line may not have.
    pub fn response(version: Version, status: u16, reason: Option<&[u8]>) -> Result<Self, EditError> {
        let line = Line {
            kind: Kind::Response,
            version,
            method: Method::Other,
            status,
            method_at: Span::default(),
            rest: Span::default(),
            edited: true,
            written: None,
        };
        let mut head = Self::empty(line, MAX_HEAD)?;
        head.size += b"HTTP/1.1 200 \r\n".len() as u32;
        head.set_status(status, reason)?;
        Ok(head)
    }
}

impl std::fmt::Debug for Head {
    /// Writes the head as text, with control characters escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind() {
            Kind::Request => {
                write!(
                    f,
                    "{} {} {}",
                    self.method().escape_ascii(),
                    self.target().escape_ascii(),
                    self.version()
                )?;
            }
            Kind::Response => {
                write!(f, "{} {} {}", self.version(), self.status(), self.reason().escape_ascii())?;
            }
            Kind::Trailers => f.write_str("(trailers)")?,
        }
        self.fields().try_for_each(|field| {
            write!(f, "\n{}: {}", field.name.escape_ascii(), field.value.escape_ascii())
        })
    }
}
