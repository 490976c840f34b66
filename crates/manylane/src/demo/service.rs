//! A small HTTP service on a lane: a function answers each request.

use manylane_buf::Chain;
use manylane_h1::{
    BodyReader, Connection as Said, From, Limits, Persist, Progress, Request, RequestParser, set_connection,
};
use manylane_http::{Head, Known, Version};
use manylane_io::Io;
use manylane_net::{Bound, Connection};
use manylane_sched::{Class, TaskKind};
use std::fmt;
use std::rc::Rc;

static ACCEPT: TaskKind = TaskKind::new("demo accept");
static SERVE: TaskKind = TaskKind::new("demo serve");

/// A client's request.
pub(super) struct DemoRequest<'a> {
    pub(super) method: &'a str,
    pub(super) target: &'a str,
    head: &'a Head,
}

impl DemoRequest<'_> {
    /// Returns the value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.value(name).and_then(|value| std::str::from_utf8(value).ok())
    }
}

/// A response.
pub(super) struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    pub(super) fn text(status: u16, body: String) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body }
    }

    pub(super) fn page(body: String) -> Self {
        Self { status: 200, kind: "text/html; charset=utf-8", body }
    }
}

type Answers = dyn Fn(&DemoRequest<'_>) -> Answer;

/// The connection has ended.
#[derive(Debug)]
struct Over;

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is over")
    }
}

/// Starts to serve connections to `socket` on the lane of `io`.
pub(super) fn start(io: &Io, socket: &Bound, answers: Rc<Answers>) -> Result<(), String> {
    let acceptor = socket.acceptor(io).map_err(|error| error.to_string())?;
    let here = io.here();
    let io = io.clone();
    let accepting = async move {
        while let Ok(incoming) = acceptor.accept().await {
            let connection = incoming.into_connection(&io);
            let answers = answers.clone();
            let serving = async move {
                let _ = serve(&connection, &*answers).await;
            };
            if here.spawn(&SERVE, Class::Normal, serving).is_err() {
                return;
            }
        }
    };
    here.spawn(&ACCEPT, Class::Normal, accepting).map(|_| ()).map_err(|error| error.to_string())
}

async fn serve(connection: &Connection, answers: &Answers) -> Result<(), Over> {
    let mut input = Chain::new();
    loop {
        let mut parser = RequestParser::new(Limits::default());
        let request = loop {
            match parser.parse(&mut input) {
                Ok(Some(request)) => break request,
                Ok(None) => more(connection, &mut input).await?,
                Err(_) => return Err(Over),
            }
        };
        let Request { head, body, connection: said, .. } = request;
        let mut reader = BodyReader::new(body, From::Client, Limits::default());
        while !reader.is_done() {
            // The body is ignored.
            match reader.read(&mut input, &mut Chain::new()) {
                Ok(Progress::Done(_)) => {}
                Ok(Progress::More) => more(connection, &mut input).await?,
                Err(_) => return Err(Over),
            }
        }
        let method = String::from_utf8_lossy(head.method()).into_owned();
        let target = String::from_utf8_lossy(head.target()).into_owned();
        let answer = answers(&DemoRequest { method: &method, target: &target, head: &head });
        let keep = said.persists(head.version());
        let mut out = Chain::new();
        let persist = if keep { Persist::KeepAlive } else { Persist::Close };
        write(&answer, persist, method != "HEAD", &mut out).ok_or(Over)?;
        connection.send(&mut out).await.map_err(|_| Over)?;
        if !keep {
            return Ok(());
        }
    }
}

async fn more(connection: &Connection, input: &mut Chain) -> Result<(), Over> {
    let segment = connection.recv().await.map_err(|_| Over)?.ok_or(Over)?;
    input.push_back(segment).map_err(|_| Over)
}

fn write(answer: &Answer, persist: Persist, with_body: bool, out: &mut Chain) -> Option<()> {
    let mut head = Head::response(Version::HTTP_11, answer.status, None).ok()?;
    head.add_field(Known::CONTENT_TYPE, answer.kind.as_bytes()).ok()?;
    head.add_field(Known::CACHE_CONTROL, b"no-store").ok()?;
    head.add_field(Known::CONTENT_LENGTH, answer.body.len().to_string().as_bytes()).ok()?;
    set_connection(&mut head, Said::default(), persist).ok()?;
    head.emit(out, None).ok()?;
    if with_body { out.append(answer.body.as_bytes()).ok() } else { Some(()) }
}
