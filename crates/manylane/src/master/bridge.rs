//! Forwards bytes between a client of the master CLI and a worker.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Number of bytes that are forwarded at once.
const PART: usize = 16 << 10;

/// Time that a worker has for its answer to a client that has left.
const LATE: Duration = Duration::from_secs(1);

/// Events of a wait.
struct Ready {
    /// The client has sent something or has ended its input.
    client: bool,
    /// The client has left in both directions.
    is_gone: bool,
    /// The worker has sent something or has ended.
    worker: bool,
    /// The worker takes more bytes.
    takes: bool,
}

/// Waits for the worker, for the client to leave, and with `listens` for its bytes. With `more` waits until
/// the worker takes bytes instead of for those of the client. A client of TCP that has left cannot be told
/// from one that has ended its input.
fn wait(client: &File, listens: bool, worker: &UnixStream, more: bool) -> io::Result<Ready> {
    let of_worker = if more { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
    let listens = listens && !more;
    let of_client = if listens { PollFlags::POLLIN } else { PollFlags::empty() };
    let mut all = [PollFd::new(worker.as_fd(), of_worker), PollFd::new(client.as_fd(), of_client)];
    loop {
        match poll(&mut all, PollTimeout::NONE) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let found = |at: usize| all[at].revents().unwrap_or(PollFlags::empty());
    Ok(Ready {
        client: listens && !found(1).is_empty(),
        is_gone: found(1).intersects(PollFlags::POLLHUP | PollFlags::POLLERR),
        worker: !(found(0) - PollFlags::POLLOUT).is_empty(),
        takes: found(0).contains(PollFlags::POLLOUT),
    })
}

/// Forwards bytes of the worker to the client, without the first `skipped` ones: the worker answers each
/// setting with an empty line. Returns false at the worker's end.
fn pass(worker: &mut UnixStream, skipped: &mut usize, output: &mut File) -> io::Result<bool> {
    let mut part = [0; PART];
    let length = worker.read(&mut part)?;
    let begin = length.min(*skipped);
    *skipped -= begin;
    output.write_all(&part[begin..length])?;
    Ok(length > 0)
}

/// Waits until the worker has answered a client that has left: that may have sent a command and not waited.
/// A worker that hangs keeps the thread of the client no longer than [`LATE`]. Returns the error of the
/// client.
fn finish(mut worker: UnixStream) -> io::Error {
    let began = Instant::now();
    let mut part = [0; PART];
    let _ = worker.set_nonblocking(false);
    while let Some(time) = LATE.checked_sub(began.elapsed()).filter(|time| !time.is_zero())
        && worker.set_read_timeout(Some(time)).is_ok()
    {
        match worker.read(&mut part) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
    }
    io::Error::from(io::ErrorKind::ConnectionAborted)
}

/// Forwards the answer to a command until its end, behind `skipped` bytes. Bytes or the end of the client are
/// not read; the worker is told of them by the end of its input. That ends commands that run as long as the
/// client is silent (`show events -w`).
///
/// # Errors
/// The client has left, or an error of the system.
pub(super) fn answer(
    input: &BufReader<File>,
    output: &mut File,
    mut worker: UnixStream,
    mut skipped: usize,
) -> io::Result<()> {
    let mut listens = true;
    let mut has_said = !input.buffer().is_empty();
    loop {
        if std::mem::take(&mut has_said) {
            listens = false;
            worker.shutdown(Shutdown::Write)?;
        }
        let ready = wait(input.get_ref(), listens, &worker, false)?;
        if ready.worker && !pass(&mut worker, &mut skipped, output)? {
            return Ok(());
        }
        if ready.is_gone {
            return Err(finish(worker));
        }
        has_said = ready.client;
    }
}

/// Forwards in both directions until the worker ends, including the client's end of stream, behind
/// `skipped` bytes. A busy worker may take no bytes; its output is forwarded meanwhile, so that neither side
/// waits for the other.
///
/// # Errors
/// The client has left, or an error of the system.
pub(super) fn both_ways(
    input: &mut BufReader<File>,
    output: &mut File,
    mut worker: UnixStream,
    mut skipped: usize,
) -> io::Result<()> {
    worker.set_nonblocking(true)?;
    let mut listens = true;
    loop {
        let more = !input.buffer().is_empty();
        let ready = wait(input.get_ref(), listens, &worker, more)?;
        if ready.worker && !pass(&mut worker, &mut skipped, output)? {
            return Ok(());
        }
        if ready.takes {
            match worker.write(input.buffer()) {
                Ok(length) => input.consume(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The worker has closed its input, but its earlier output may still be there.
                Err(_) => {
                    input.consume(input.buffer().len());
                    listens = false;
                }
            }
        }
        if ready.client {
            if input.fill_buf()?.is_empty() {
                listens = false;
                worker.shutdown(Shutdown::Write)?;
            }
        } else if ready.is_gone {
            write_rest(input, &mut worker);
            return Err(finish(worker));
        }
    }
}

/// Forwards what a client that has left sent last. A worker that takes nothing keeps the thread of the client
/// no longer than [`LATE`].
fn write_rest(input: &mut BufReader<File>, worker: &mut UnixStream) {
    let _ = worker.set_nonblocking(false);
    // If the worker does not take it all, nobody is there to be told.
    if worker.set_write_timeout(Some(LATE)).is_ok() && io::copy(input, worker).is_ok() {
        let _ = worker.shutdown(Shutdown::Write);
    }
}
