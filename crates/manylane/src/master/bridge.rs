//! Bytes between a client of the master CLI and a worker.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Bytes that go on at once.
const PART: usize = 16 << 10;

/// What came first.
struct Ready {
    client: bool,
    /// It has said something, or has ended.
    worker: bool,
    /// It takes more.
    takes: bool,
}

/// Waits for either, or for the worker alone; for the worker to take something only where there is something
/// for it.
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

/// Leaves out the empty lines that a worker answers to so many settings.
pub(super) fn skip(worker: &mut UnixStream, lines: usize) -> io::Result<()> {
    worker.read_exact(&mut vec![0; lines])
}

/// What the worker says goes on to the client. False at its end.
fn pass(worker: &mut UnixStream, output: &mut File) -> io::Result<bool> {
    let mut part = [0; PART];
    let length = worker.read(&mut part)?;
    output.write_all(&part[..length])?;
    Ok(length > 0)
}

/// The answer to a command, to its end. What the client says, or that it ends, is not taken, but told to the
/// worker by the end of that side: it ends what goes on for as long as the client is silent (`show events
/// -w`).
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

/// Both ways, until the worker ends. The client's end goes on to it. A worker that is busy answering takes no
/// more: what it says is passed on meanwhile, so that neither waits for the other.
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
                // It has closed, and what it said before is there still.
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
