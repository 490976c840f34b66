//! Forwards bytes between a client of the master CLI and a worker.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Number of bytes that are forwarded at once.
const PART: usize = 16 << 10;

/// Events of a wait.
struct Ready {
    client: bool,
    /// The worker has sent something or has ended.
    worker: bool,
    /// The worker takes more bytes.
    takes: bool,
}

/// Waits for the client (if given) and for the worker. With `more`, also waits until the worker takes bytes.
fn wait(client: Option<&File>, worker: &UnixStream, more: bool) -> io::Result<Ready> {
    let of_worker = if more { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
    let mut all = vec![PollFd::new(worker.as_fd(), of_worker)];
    all.extend(client.map(|client| PollFd::new(client.as_fd(), PollFlags::POLLIN)));
    loop {
        match poll(&mut all, PollTimeout::NONE) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let found = |at: usize| all.get(at).and_then(PollFd::revents).unwrap_or(PollFlags::empty());
    Ok(Ready {
        client: !found(1).is_empty(),
        worker: !(found(0) - PollFlags::POLLOUT).is_empty(),
        takes: found(0).contains(PollFlags::POLLOUT),
    })
}

/// Skips the empty lines with which a worker answers `lines` settings.
pub(super) fn skip(worker: &mut UnixStream, lines: usize) -> io::Result<()> {
    worker.read_exact(&mut vec![0; lines])
}

/// Forwards bytes of the worker to the client. Returns false at the worker's end.
fn pass(worker: &mut UnixStream, output: &mut File) -> io::Result<bool> {
    let mut part = [0; PART];
    let length = worker.read(&mut part)?;
    output.write_all(&part[..length])?;
    Ok(length > 0)
}

/// Forwards the answer to a command until its end. Bytes or the end of the client are not read; the worker is
/// told of them by the end of its input. That ends commands that run as long as the client is silent (`show
/// events -w`).
pub(super) fn answer(input: &BufReader<File>, output: &mut File, mut worker: UnixStream) -> io::Result<()> {
    let mut watched = Some(input.get_ref());
    let mut has_said = !input.buffer().is_empty();
    loop {
        if std::mem::take(&mut has_said) {
            watched = None;
            worker.shutdown(Shutdown::Write)?;
        }
        let ready = wait(watched, &worker, false)?;
        if ready.worker && !pass(&mut worker, output)? {
            return Ok(());
        }
        has_said = ready.client;
    }
}

/// Forwards in both directions until the worker ends, including the client's end of stream. A busy worker may
/// take no bytes; its output is forwarded meanwhile, so that neither side waits for the other.
pub(super) fn both_ways(
    input: &mut BufReader<File>,
    output: &mut File,
    mut worker: UnixStream,
) -> io::Result<()> {
    worker.set_nonblocking(true)?;
    let mut listens = true;
    loop {
        let more = !input.buffer().is_empty();
        let ready = wait((listens && !more).then(|| input.get_ref()), &worker, more)?;
        if ready.worker && !pass(&mut worker, output)? {
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
        if ready.client && input.fill_buf()?.is_empty() {
            listens = false;
            worker.shutdown(Shutdown::Write)?;
        }
    }
}
