//! Descriptors: small numbers for sockets.
//!
//! # Protocol
//! 1. A slot holds a socket or nothing, under a lock of its own. A call clones the handle in the slot and
//!    works without the lock, so neither a close nor a waiting call blocks others.
//! 2. Slots are allocated in chunks that are never freed. Free numbers are in a heap under one lock, so
//!    `open` takes the lowest, as the system does; only open and close take that lock.

use manylane_local::Socket;
use manylane_sync::{CachePadded, LockClass, Mutex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

/// The lowest descriptor: above those of the system.
pub(crate) const FIRST_FD: i32 = 0x4000_0000;
/// Maximum number of open descriptors.
pub(crate) const MAX_FDS: usize = 65_536;
const CHUNK: usize = 256;

// The slots' rank is below those of the sockets, although calls under it only count a handle of a socket.
static FREE: LockClass = LockClass::new("descriptors of local sockets", 3);
static SLOT: LockClass = LockClass::new("descriptor of a local socket", 4);

pub(crate) struct Open {
    pub(crate) socket: Socket,
    pub(crate) nonblocking: bool,
}

type Slot = CachePadded<Mutex<Option<Open>>>;

static CHUNKS: [OnceLock<Box<[Slot]>>; MAX_FDS / CHUNK] = [const { OnceLock::new() }; MAX_FDS / CHUNK];

struct Free {
    numbers: BinaryHeap<Reverse<usize>>,
    next: usize,
}

manylane_sync::lazy_static! {
    static NUMBERS: Mutex<Free> = Mutex::new(&FREE, Free { numbers: BinaryHeap::new(), next: 0 });
}

fn slot(fd: i32) -> Result<&'static Slot, i32> {
    let number = usize::try_from(i64::from(fd) - i64::from(FIRST_FD)).map_err(|_| libc::EBADF)?;
    let chunk = CHUNKS.get(number / CHUNK).and_then(OnceLock::get).ok_or(libc::EBADF)?;
    Ok(&chunk[number % CHUNK])
}

/// Allocates a descriptor for `socket`.
pub(crate) fn open(socket: Socket, nonblocking: bool) -> Result<i32, i32> {
    let number = {
        let mut free = NUMBERS.lock();
        match free.numbers.pop() {
            Some(Reverse(number)) => number,
            None if free.next < MAX_FDS => {
                free.next += 1;
                free.next - 1
            }
            None => return Err(libc::EMFILE),
        }
    };
    let chunk = CHUNKS[number / CHUNK]
        .get_or_init(|| (0..CHUNK).map(|_| CachePadded::new(Mutex::new(&SLOT, None))).collect());
    *chunk[number % CHUNK].lock() = Some(Open { socket, nonblocking });
    Ok(FIRST_FD + number as i32)
}

/// Returns a second handle on the socket of `fd`, and whether calls on it never wait (rule 1).
pub(crate) fn get(fd: i32) -> Result<Open, i32> {
    match &*slot(fd)?.lock() {
        Some(open) => Ok(Open { socket: open.socket.clone(), nonblocking: open.nonblocking }),
        None => Err(libc::EBADF),
    }
}

pub(crate) fn set_nonblocking(fd: i32, nonblocking: bool) -> Result<(), i32> {
    match &mut *slot(fd)?.lock() {
        Some(open) => {
            open.nonblocking = nonblocking;
            Ok(())
        }
        None => Err(libc::EBADF),
    }
}

/// Takes the socket out, which the caller drops without the lock.
pub(crate) fn close(fd: i32) -> Result<Socket, i32> {
    let open = slot(fd)?.lock().take().ok_or(libc::EBADF)?;
    NUMBERS.lock().numbers.push(Reverse((fd - FIRST_FD) as usize));
    Ok(open.socket)
}
