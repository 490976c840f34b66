//! Fetches: sources of samples. One table holds their names and signatures; they are compiled to an enum.

mod acl;
mod cipher_names;
mod connection;
mod constant;
mod course;
mod data;
mod distcc;
mod http;
mod needs;
mod number;
mod rdp;
mod stick;
mod tls;
mod tls_hello;
mod unbuilt;

pub use http::basic;
pub(crate) use stick::{Query, element, index, kilo, makes, plain, read};
pub use tls::{CertificateText, RevokedText, algorithms, common_name};

use crate::args::{ArgKind, Args};
use crate::env::Env;
use crate::error::Error;
use crate::eval_points::EvalPoints;
use crate::names::SampleSource;
use crate::sample::{Absent, FetchResult, Sample, Type, found};
use crate::scratch::Scratch;
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// A fetch: name, signature, constructor.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) args: &'static [ArgKind],
    pub(crate) required: usize,
    pub(crate) out: Type,
    pub(crate) points: EvalPoints,
    pub(crate) help: &'static str,
    pub(crate) make: Make,
}

/// How to compile a fetch.
#[derive(Clone, Copy)]
pub(crate) enum Make {
    Built(fn(&mut Args<'_, '_>) -> Result<Fetch, Error>),
    Refused(&'static str),
}

impl Row {
    pub(crate) fn refused(&self) -> Option<&'static str> {
        match self.make {
            Make::Built(_) => None,
            Make::Refused(reason) => Some(reason),
        }
    }
}

/// A row of a fetch that is built.
const fn row(
    name: &'static str,
    args: &'static [ArgKind],
    required: usize,
    out: Type,
    points: EvalPoints,
    help: &'static str,
    make: fn(&mut Args<'_, '_>) -> Result<Fetch, Error>,
) -> Row {
    Row { name, args, required, out, points, help, make: Make::Built(make) }
}

/// All rows, sorted by name.
pub(crate) fn table() -> &'static [Row] {
    static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let mut rows: Vec<Row> = [
            acl::ROWS,
            constant::ROWS,
            connection::ROWS,
            course::ROWS,
            number::ROWS,
            http::ROWS,
            data::ROWS,
            tls::ROWS,
            tls::HELLO,
            tls::CLIENT_SECRETS,
            tls::SERVER_SECRETS,
            stick::NUMBERS,
            stick::KILOBYTES,
            stick::ELEMENTS,
            stick::ROWS,
        ]
        .concat();
        rows.extend(connection::LINKS.as_flattened());
        rows.extend(connection::TCP);
        rows.extend(connection::SETTINGS);
        rows.extend(unbuilt::rows());
        rows.sort_by_key(|row| row.name);
        rows
    });
    &TABLE
}

/// The row with this name.
pub(crate) fn find(name: &[u8]) -> Option<&'static Row> {
    let table = table();
    table.binary_search_by(|row| row.name.as_bytes().cmp(name)).ok().map(|at| &table[at])
}

/// Changes the reason to [`Absent::NotYet`] while the message is incomplete.
fn later(env: &Env<'_>, absent: Absent) -> Absent {
    if env.is_final || env.head(env.direction).is_some() || !data::may_become_http(env) {
        return absent;
    }
    Absent::NotYet
}

/// A compiled fetch.
#[derive(Debug)]
pub(crate) enum Fetch {
    Acl(acl::AllOf),
    Constant(constant::Constant),
    Connection(connection::Connection),
    Course(course::Course),
    Number(number::ReadNumber),
    Http(http::Http),
    Data(data::DataFetch),
    Tls(tls::Tls),
    Stick(stick::Stick),
}

impl Fetch {
    /// Evaluates the fetch; if it has several samples, the last.
    pub(crate) fn eval<'x>(&'x self, env: &Env<'x>, scratch: &mut Scratch<'x>) -> FetchResult<'x> {
        match self {
            Self::Acl(all) => Ok(all.eval(env, scratch)),
            Self::Constant(constant) => constant.eval(env, scratch),
            Self::Connection(connection) => connection.eval(env, scratch),
            Self::Course(course) => course.eval(env),
            Self::Number(number) => {
                env.host.number(number.0).map(|n| number.value(n)).map_or(Err(Absent::Never), found)
            }
            Self::Http(http) => http.eval(env, scratch).map_err(|absent| later(env, absent)),
            Self::Data(data) => data.eval(env, scratch),
            Self::Tls(tls) => tls.eval(env, scratch),
            Self::Stick(stick) => stick.eval(env, scratch),
        }
    }

    /// Passes each sample to `visit` until it breaks; an error is the reason why there is none. Each
    /// evaluation may use the whole scratch.
    pub(crate) fn each(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        visit: &mut dyn FnMut(Sample<'_>, &mut Scratch<'_>) -> ControlFlow<()>,
    ) -> Result<(), Absent> {
        if let Self::Http(http) = self
            && http.has_several()
        {
            return http.each(env, scratch, visit).map_err(|absent| later(env, absent));
        }
        let mut scratch = scratch.reborrow();
        let sample = self.eval(env, &mut scratch)?;
        let _ = visit(sample, &mut scratch);
        Ok(())
    }

    /// Nesting depth of ACLs.
    pub(crate) fn acl_depth(&self) -> usize {
        match self {
            Self::Acl(all) => all.depth(),
            _ => 0,
        }
    }

    /// The user list whose groups the fetch returns.
    pub(crate) fn groups_of(&self) -> Option<crate::names::UserlistId> {
        match self {
            Self::Http(http) => http.groups_of(),
            _ => None,
        }
    }

    /// The input that the fetch uses.
    pub(crate) fn source(&self) -> SampleSource {
        match self {
            // The inputs of an ACL were checked when its line was compiled.
            Self::Acl(_) | Self::Constant(_) => SampleSource::Fixed,
            Self::Connection(_) | Self::Course(_) | Self::Tls(_) | Self::Stick(_) => SampleSource::Connection,
            Self::Number(_) => SampleSource::Number,
            Self::Http(_) => SampleSource::Message,
            Self::Data(_) => SampleSource::Data,
        }
    }

    /// True if it uses bytes of a body or of a TCP stream.
    pub(crate) fn reads_data(&self) -> bool {
        matches!(self, Self::Data(_) | Self::Http(http::Http::BodyParam { .. }))
    }

    /// True if it uses the connection to the server.
    pub(crate) fn reads_link(&self) -> bool {
        match self {
            Self::Connection(connection) => connection.reads_link(),
            Self::Tls(tls) => tls.reads_link(),
            _ => false,
        }
    }

    /// True if it uses data about how the stream proceeds.
    pub(crate) fn reads_stream_record(&self) -> bool {
        matches!(self, Self::Course(course) if course.reads_stream_record())
    }

    /// True if it is `src`.
    pub(crate) fn is_client_address(&self) -> bool {
        matches!(self, Self::Connection(connection::Connection::Addr(connection::End::Source)))
    }
}

pub(crate) use acl::MAX_DEPTH;
pub(crate) use constant::{Fixed, Unit, digit, unhex};
