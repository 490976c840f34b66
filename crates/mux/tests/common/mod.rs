//! Helpers shared by the tests of connections.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part of it

use manylane_buf::Chain;
use manylane_http::{Head, Known, Version};
use manylane_io::{Driver, Io};
use manylane_mux::h2::{
    self, Conn, ConnEnd, ConnTimeouts, Incoming, Received, ResponseHead, Stream, StreamError,
};
use manylane_net::Connection;
use manylane_sched::{Class, Config, Here, Lane, TaskKind};
use std::cell::Cell;
use std::future::poll_fn;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::Poll;
use std::time::Duration;

pub(crate) static TASK: TaskKind = TaskKind::new("test");

/// Runs `test` on a lane with the driver that `MANYLANE_DRIVER` names. Its deadline is a minute.
#[track_caller]
pub(crate) fn on_lane<F: Future + 'static>(test: impl FnOnce(Io) -> F + Send + 'static) -> F::Output
where
    F::Output: Send + 'static,
{
    on_lane_of(Config::new(), test)
}

/// Does what [`on_lane`] does, on a lane with this configuration.
#[track_caller]
pub(crate) fn on_lane_of<F: Future + 'static>(
    config: Config,
    test: impl FnOnce(Io) -> F + Send + 'static,
) -> F::Output
where
    F::Output: Send + 'static,
{
    within_a_minute(move || {
        let mut lane = Lane::new(config).unwrap();
        let mut driver = Driver::from_environment(lane.here()).unwrap();
        let io = driver.io();
        lane.block_on(&mut driver, test(io)).unwrap()
    })
}

/// Runs `test` on a thread of its own and fails if it does not end within a minute, whatever it waits for.
/// The thread is then left behind, and ends with the process.
#[track_caller]
fn within_a_minute<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (ended, end) = mpsc::channel();
    let run = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        let _ = ended.send(outcome); // after a minute, the receiver is gone
    };
    std::thread::spawn(run);
    // In pieces: while the process is stopped, at most one of them passes.
    for _ in 0..120 {
        match end.recv_timeout(Duration::from_millis(500)) {
            Ok(Ok(output)) => return output,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("its thread is gone"),
        }
    }
    panic!("it did not end within a minute");
}

/// Returns the ends of a socket: one of the lane, one of the system.
pub(crate) fn half_pair(io: &Io) -> (Connection, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Connection::Socket(io.stream(ours).unwrap()), theirs)
}

/// Returns both ends of a socket on the lane.
pub(crate) fn pair(io: &Io) -> (Connection, Connection) {
    let (a, b) = UnixStream::pair().unwrap();
    (Connection::Socket(io.stream(a).unwrap()), Connection::Socket(io.stream(b).unwrap()))
}

pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) {
    Here::current().unwrap().spawn(&TASK, Class::Normal, future).unwrap();
}

pub(crate) fn pattern(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + n) as u8).collect()
}

pub(crate) fn chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain::new();
    chain.append(bytes).unwrap();
    chain
}

pub(crate) fn request(method: &[u8], path: &str) -> Head {
    let mut head = Head::request(method, path.as_bytes(), Version::HTTP_11).unwrap();
    head.add_field(Known::HOST, b"a.example").unwrap();
    head
}

pub(crate) fn response(status: u16) -> Head {
    Head::response(Version::HTTP_2, status, None).unwrap()
}

pub(crate) async fn recv(stream: &mut Stream, into: &mut Chain) -> Result<Received, StreamError> {
    poll_fn(|context| stream.poll_recv(context, into, usize::MAX)).await
}

pub(crate) async fn send(stream: &mut Stream, data: &mut Chain, end: bool) -> Result<(), StreamError> {
    poll_fn(|context| stream.poll_send(context, data, end)).await
}

pub(crate) async fn head(stream: &mut Stream) -> Result<ResponseHead, StreamError> {
    poll_fn(|context| stream.poll_head(context)).await
}

/// Returns the whole body, and the trailers.
pub(crate) async fn body(stream: &mut Stream) -> Result<(Vec<u8>, Option<Head>), StreamError> {
    let (mut all, mut trailers) = (Vec::new(), None);
    loop {
        let mut data = Chain::new();
        match recv(stream, &mut data).await? {
            Received::Data => {
                stream.consume(data.len());
                all.extend(data.to_vec());
            }
            Received::Trailers(head) => trailers = Some(head),
            Received::End => return Ok((all, trailers)),
        }
    }
}

/// Sends back the received data piece by piece, then trailers with its size, or none.
pub(crate) async fn echo(mut stream: Stream, incoming: Incoming) -> Result<(), StreamError> {
    let Ok(request) = incoming.request else { return stream.send_head(&response(431), true) };
    let mut head = response(200);
    head.add_field("x-path", request.head.target()).unwrap();
    stream.send_head(&head, incoming.end)?;
    if incoming.end {
        return Ok(());
    }
    let mut count = 0;
    loop {
        let mut data = Chain::new();
        match recv(&mut stream, &mut data).await? {
            Received::Data => {
                let n = data.len();
                count += n;
                send(&mut stream, &mut data, false).await?;
                stream.consume(n);
            }
            Received::Trailers(_) => {}
            Received::End => {
                let mut trailers = Head::trailers().unwrap();
                trailers.add_field("x-sum", count.to_string().as_bytes()).unwrap();
                return stream.send_trailers(&trailers);
            }
        }
    }
}

/// Sends `len` bytes. Each piece is made when there is room for it, and is taken at once.
pub(crate) async fn pump(stream: &mut Stream, n: usize, len: usize) -> Result<(), StreamError> {
    let all = pattern(n, len);
    let mut at = 0;
    while at < len {
        poll_fn(|context| {
            let room = match stream.poll_room(context) {
                Poll::Ready(Ok(room)) => room,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            let piece = room.min(len - at).min(16_384);
            let mut data = chain(&all[at..at + piece]);
            at += piece;
            let sent = stream.poll_send(context, &mut data, at == len);
            assert!(sent.is_ready(), "it takes as much as it had room for");
            sent
        })
        .await?;
    }
    Ok(())
}

/// Waits until `condition` holds, which a task of this lane brings about.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let here = Here::current().unwrap();
    while !condition() {
        here.yield_now().await;
    }
}

/// Drives a connection in a task of its own, with a task for each stream. The cell holds the end of the
/// connection.
pub(crate) fn drive<F: Future<Output = ()> + 'static>(
    conn: &Conn,
    timeouts: ConnTimeouts,
    serve: impl Fn(Stream, Incoming) -> F + 'static,
) -> Rc<Cell<Option<ConnEnd>>> {
    let ended = Rc::new(Cell::new(None));
    let (conn, end) = (conn.clone(), ended.clone());
    spawn(async move {
        end.set(Some(conn.run(&timeouts, |stream, incoming| spawn(serve(stream, incoming))).await));
    });
    ended
}

/// Returns a client that a task drives.
pub(crate) fn client(connection: Connection, config: h2::Config) -> (Conn, Rc<Cell<Option<ConnEnd>>>) {
    let conn = Conn::client(connection, config, Here::current().unwrap()).unwrap();
    let end = drive(&conn, ConnTimeouts::default(), |_, _| async { panic!("a server begins a stream") });
    (conn, end)
}

/// Returns a server that a task drives.
pub(crate) fn server<F: Future<Output = ()> + 'static>(
    connection: Connection,
    config: h2::Config,
    timeouts: ConnTimeouts,
    serve: impl Fn(Stream, Incoming) -> F + 'static,
) -> (Conn, Rc<Cell<Option<ConnEnd>>>) {
    let conn = Conn::server(connection, Chain::new(), config, Here::current().unwrap()).unwrap();
    let end = drive(&conn, timeouts, serve);
    (conn, end)
}
