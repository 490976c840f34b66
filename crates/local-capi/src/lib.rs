#![doc = include_str!("../README.md")]
#![allow(unsafe_code)] // the arguments are pointers from C

mod table;

use libc::{c_int, c_uint, c_ulonglong, c_void, size_t, ssize_t};
use manylane_local::{Attached, Error, Handle, Kind, Name, Socket};
use std::net::Shutdown;
use std::time::Duration;
use table::Open;

const NONBLOCK: c_int = 0x800;
const DONTWAIT: c_int = 0x40;
const FOREVER: c_ulonglong = c_ulonglong::MAX;

/// `struct ml_ucred`.
#[repr(C)]
pub struct Ucred {
    pid: c_uint,
    uid: c_uint,
    gid: c_uint,
    lane: c_uint,
}

/// An error number.
struct Errno(c_int);

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<i32> for Errno {
    fn from(errno: i32) -> Self {
        Self(errno)
    }
}

/// Converts a result for C: the number, or -1 and `errno`.
fn result<T: Into<i64>>(done: Result<T, Errno>) -> i64 {
    match done {
        Ok(value) => value.into(),
        Err(Errno(errno)) => {
            // SAFETY: the address is that of the calling thread's own `errno`.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

fn status(done: Result<(), Errno>) -> c_int {
    result(done.map(|()| 0i32)) as c_int
}

fn descriptor(done: Result<c_int, Errno>) -> c_int {
    result(done) as c_int
}

fn length(done: Result<usize, Errno>) -> ssize_t {
    // A slice has at most `isize::MAX` bytes.
    result(done.map(|n| n as i64)) as ssize_t
}

/// # Safety
/// `data` points to `len` bytes that no thread writes during the call, or `len` is 0.
unsafe fn bytes<'a>(data: *const c_void, len: size_t) -> Result<&'a [u8], Errno> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || len > isize::MAX as usize {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by contract; not null, and no longer than a slice can be.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// # Safety
/// `data` points to `len` bytes that belong to this call alone, or `len` is 0. C need not have initialised
/// them: they are only written, apart from the creation of the `&mut [u8]`.
unsafe fn room<'a>(data: *mut c_void, len: size_t) -> Result<&'a mut [u8], Errno> {
    if len == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || len > isize::MAX as usize {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: by contract; not null, and no longer than a slice can be.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
}

/// # Safety
/// `value` is null or points to a `T` that belongs to this call alone.
unsafe fn out_param<'a, T>(value: *mut T) -> Result<&'a mut T, Errno> {
    // SAFETY: by contract.
    unsafe { value.as_mut() }.ok_or(Errno(libc::EFAULT))
}

/// # Safety
/// As [`bytes`].
unsafe fn name(data: *const c_void, len: size_t) -> Result<Name, Errno> {
    // SAFETY: by contract.
    Ok(Name::new(unsafe { bytes(data, len) }?)?)
}

/// Buffer of C for a name.
struct NameRoom<'a> {
    bytes: &'a mut [u8],
    len: &'a mut size_t,
}

impl NameRoom<'_> {
    /// Copies as much of `name` as fits, and stores its whole length.
    fn tell(&mut self, name: Option<Name>) {
        let name = name.as_ref().map_or(&[][..], Name::as_bytes);
        let n = name.len().min(self.bytes.len());
        self.bytes[..n].copy_from_slice(&name[..n]);
        *self.len = name.len();
    }
}

/// # Safety
/// `len` is null or valid, and `data` points to `*len` bytes; all belong to this call alone.
unsafe fn name_room<'a>(data: *mut c_void, len: *mut size_t) -> Result<NameRoom<'a>, Errno> {
    // SAFETY: by contract.
    let len = unsafe { out_param(len) }?;
    // SAFETY: by contract.
    Ok(NameRoom { bytes: unsafe { room(data, *len) }?, len })
}

fn kind(kind: c_int) -> Result<(Kind, bool), Errno> {
    let of = match kind & !NONBLOCK {
        libc::SOCK_STREAM => Kind::Stream,
        libc::SOCK_DGRAM => Kind::Datagram,
        libc::SOCK_SEQPACKET => Kind::SeqPacket,
        _ => return Err(Errno(libc::EPROTOTYPE)),
    };
    Ok((of, kind & NONBLOCK != 0))
}

/// Returns the socket, and whether this call may wait.
fn get(fd: c_int, flags: c_int) -> Result<(Socket, bool), Errno> {
    if flags & !DONTWAIT != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let Open { socket, nonblocking } = table::get(fd)?;
    Ok((socket, !nonblocking && flags & DONTWAIT == 0))
}

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_socket(r#type: c_int) -> c_int {
    descriptor(kind(r#type).and_then(|(kind, nonblocking)| Ok(table::open(Socket::new(kind), nonblocking)?)))
}

/// See the header.
///
/// # Safety
/// `fds` is null or points to two numbers.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_socketpair(r#type: c_int, fds: *mut c_int) -> c_int {
    let open = || {
        // SAFETY: by contract.
        let fds = unsafe { out_param(fds.cast::<[c_int; 2]>()) }?;
        let (kind, nonblocking) = kind(r#type)?;
        let (a, b) = Socket::pair(kind);
        let one = table::open(a, nonblocking)?;
        match table::open(b, nonblocking) {
            Ok(two) => *fds = [one, two],
            Err(errno) => {
                drop(table::close(one));
                return Err(Errno(errno));
            }
        }
        Ok(())
    };
    status(open())
}

/// See the header.
///
/// # Safety
/// `data` points to `len` bytes.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_bind(fd: c_int, data: *const c_void, len: size_t) -> c_int {
    // SAFETY: by contract.
    let bind = || Ok(get(fd, 0)?.0.bind(&unsafe { name(data, len) }?)?);
    status(bind())
}

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_listen(fd: c_int, backlog: c_int) -> c_int {
    let listen = || Ok(get(fd, 0)?.0.listen(usize::try_from(backlog).unwrap_or(usize::MAX))?);
    status(listen())
}

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_accept(fd: c_int) -> c_int {
    let accept = || {
        let (socket, may_wait) = get(fd, 0)?;
        let accepted = if may_wait { socket.accept() } else { socket.try_accept() }?;
        Ok(table::open(accepted, false)?)
    };
    descriptor(accept())
}

/// See the header.
///
/// # Safety
/// `data` points to `len` bytes.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_connect(fd: c_int, data: *const c_void, len: size_t) -> c_int {
    // SAFETY: by contract.
    let connect = || Ok(get(fd, 0)?.0.connect(&unsafe { name(data, len) }?)?);
    status(connect())
}

/// See the header.
///
/// # Safety
/// `buf` points to `len` bytes.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    let send = || {
        let (socket, may_wait) = get(fd, flags)?;
        // SAFETY: by contract.
        let bytes = unsafe { bytes(buf, len) }?;
        Ok(if may_wait { socket.send(bytes) } else { socket.try_send(bytes) }?)
    };
    length(send())
}

/// See the header.
///
/// # Safety
/// `buf` points to `len` bytes that belong to this call alone.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let recv = || {
        let (socket, may_wait) = get(fd, flags)?;
        // SAFETY: by contract.
        let room = unsafe { room(buf, len) }?;
        Ok(if may_wait { socket.recv(room) } else { socket.try_recv(room) }?)
    };
    length(recv())
}

fn send_attached(fd: c_int, bytes: &[u8], flags: c_int, attached: Attached<'_>) -> Result<usize, Errno> {
    let (socket, may_wait) = get(fd, flags)?;
    Ok(if may_wait {
        socket.send_message(bytes, attached)
    } else {
        socket.try_send_message(bytes, attached)
    }?)
}

/// See the header.
///
/// # Safety
/// `buf` points to `len` bytes and `to` to `to_len`, unless it is null.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const c_void,
    to_len: size_t,
) -> ssize_t {
    if to.is_null() && to_len == 0 {
        // SAFETY: by contract.
        return unsafe { ml_send(fd, buf, len, flags) };
    }
    let send = || {
        // SAFETY: by contract.
        let (bytes, to) = unsafe { (bytes(buf, len)?, name(to, to_len)?) };
        send_attached(fd, bytes, flags, Attached { to: Some(&to), ..Attached::default() })
    };
    length(send())
}

/// See the header.
///
/// # Safety
/// `buf` points to `len` bytes; `from` is null, or `from_len` points to a number and `from` to that many
/// bytes.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut c_void,
    from_len: *mut size_t,
) -> ssize_t {
    let recv = || {
        let (socket, may_wait) = get(fd, flags)?;
        // SAFETY: by contract.
        let room = unsafe { room(buf, len) }?;
        // Checked before the receive, whose data would otherwise be lost.
        // SAFETY: by contract.
        let mut name = if from.is_null() { None } else { Some(unsafe { name_room(from, from_len) }?) };
        let got = if may_wait { socket.recv_message(room) } else { socket.try_recv_message(room) }?;
        if let Some(name) = &mut name {
            name.tell(got.from);
        }
        Ok(got.len)
    };
    length(recv())
}

/// See the header.
///
/// # Safety
/// `buf` points to `len` bytes and `fds` to `n` numbers.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_send_fds(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    fds: *const c_int,
    n: size_t,
) -> ssize_t {
    let send = || {
        if n > manylane_local::MAX_HANDLES {
            return Err(Errno(libc::ETOOMANYREFS));
        }
        // SAFETY: by contract; `n` is small, so the size in bytes is right.
        let (bytes, numbers) = unsafe { (bytes(buf, len)?, bytes(fds.cast(), n * size_of::<c_int>())?) };
        let mut handles = Vec::with_capacity(n);
        for number in numbers.chunks_exact(size_of::<c_int>()) {
            let number = c_int::from_ne_bytes(number.try_into().expect("chunks of that size"));
            handles.push(Handle::from(table::get(number)?.socket));
        }
        send_attached(fd, bytes, flags, Attached { handles: Some(&mut handles), ..Attached::default() })
    };
    length(send())
}

/// See the header.
///
/// # Safety
/// `buf` points to `len` bytes, `n` to a number and `fds` to that many numbers; all belong to this call
/// alone.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_recv_fds(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    fds: *mut c_int,
    n: *mut size_t,
) -> ssize_t {
    let recv = || {
        let (socket, may_wait) = get(fd, flags)?;
        // SAFETY: by contract.
        let (room, n) = unsafe { (room(buf, len)?, out_param(n)?) };
        if *n > 0 && fds.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        let got = if may_wait { socket.recv_message(room) } else { socket.try_recv_message(room) }?;
        let fits = std::mem::take(n);
        for handle in got.handles {
            if let Handle::Socket(socket) = handle
                && *n < fits
            {
                let Ok(number) = table::open(socket, false) else { break }; // none left: closes the rest
                // SAFETY: by contract there is room for `fits`.
                unsafe { fds.add(*n).write(number) };
                *n += 1;
            }
        }
        Ok(got.len)
    };
    length(recv())
}

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_shutdown(fd: c_int, how: c_int) -> c_int {
    let shutdown = || {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno(libc::EINVAL)),
        };
        Ok(get(fd, 0)?.0.shutdown(how)?)
    };
    status(shutdown())
}

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_dup(fd: c_int) -> c_int {
    let dup = || {
        let Open { socket, nonblocking } = table::get(fd)?;
        Ok(table::open(socket, nonblocking)?)
    };
    descriptor(dup())
}

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_close(fd: c_int) -> c_int {
    status(table::close(fd).map(drop).map_err(Errno))
}

/// See the header.
///
/// # Safety
/// `len` points to a number and `data` to that many bytes.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_getsockname(fd: c_int, data: *mut c_void, len: *mut size_t) -> c_int {
    let tell = || {
        let name = get(fd, 0)?.0.name();
        // SAFETY: by contract.
        unsafe { name_room(data, len) }?.tell(name);
        Ok(())
    };
    status(tell())
}

/// See the header.
///
/// # Safety
/// `len` points to a number and `data` to that many bytes.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_getpeername(fd: c_int, data: *mut c_void, len: *mut size_t) -> c_int {
    let tell = || {
        let name = get(fd, 0)?.0.peer_name()?;
        // SAFETY: by contract.
        unsafe { name_room(data, len) }?.tell(name);
        Ok(())
    };
    status(tell())
}

/// See the header.
///
/// # Safety
/// `cred` is null or points to a `Ucred`.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_getpeercred(fd: c_int, cred: *mut Ucred) -> c_int {
    let tell = || {
        // SAFETY: by contract.
        let cred = unsafe { out_param(cred) }?;
        let peer = get(fd, 0)?.0.peer_credentials()?;
        *cred =
            Ucred { pid: peer.process, uid: peer.user, gid: peer.group, lane: peer.lane.index() as c_uint };
        Ok(())
    };
    status(tell())
}

const SNDBUF: c_int = 1;
const RCVBUF: c_int = 2;
const SNDTIMEO: c_int = 3;
const RCVTIMEO: c_int = 4;
const BUSY_POLL: c_int = 5;
const NONBLOCKING: c_int = 6;

/// See the header.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub extern "C" fn ml_setsockopt(fd: c_int, option: c_int, value: c_ulonglong) -> c_int {
    let set = || {
        let (socket, _) = get(fd, 0)?;
        let bytes = usize::try_from(value).unwrap_or(usize::MAX);
        let time = (value != FOREVER).then(|| Duration::from_nanos(value));
        match option {
            SNDBUF => socket.set_send_limit(bytes)?,
            RCVBUF => socket.set_recv_limit(bytes)?,
            SNDTIMEO => socket.set_send_timeout(time),
            RCVTIMEO => socket.set_recv_timeout(time),
            BUSY_POLL => socket.set_busy_poll(time.unwrap_or(Duration::MAX)),
            NONBLOCKING if value <= 1 => table::set_nonblocking(fd, value == 1)?,
            NONBLOCKING => return Err(Errno(libc::EINVAL)),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    };
    status(set())
}

/// See the header.
///
/// # Safety
/// `value` is null or points to a number.
// SAFETY: the prefix is this library's own: no other symbol has the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ml_getsockopt(fd: c_int, option: c_int, value: *mut c_ulonglong) -> c_int {
    let tell = || {
        let Open { socket, nonblocking } = table::get(fd)?;
        // SAFETY: by contract.
        let value = unsafe { out_param(value) }?;
        let nanoseconds = |time: Option<Duration>| {
            time.map_or(FOREVER, |time| c_ulonglong::try_from(time.as_nanos()).unwrap_or(FOREVER))
        };
        *value = match option {
            SNDBUF => socket.send_limit() as c_ulonglong,
            RCVBUF => socket.recv_limit() as c_ulonglong,
            SNDTIMEO => nanoseconds(socket.send_timeout()),
            RCVTIMEO => nanoseconds(socket.recv_timeout()),
            NONBLOCKING => c_ulonglong::from(nonblocking),
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        };
        Ok(())
    };
    status(tell())
}
