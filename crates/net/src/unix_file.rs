//! The file by which a unix socket is found: it appears complete, and goes with its socket.
//!
//! A socket is bound under another name in the same folder, gets its owner and its mode, listens, and then
//! takes its place by a `rename(2)`, when all else that its process needs is bound. So there is no moment
//! without a listener when one takes over from another, and none at which the file has the wrong permissions.
//! When it goes, it takes only a file that is its own: a successor may have put another in its place.

use crate::address::LONGEST_PATH;
use crate::endpoint::unix_address;
use crate::error::{Refused, Step};
use crate::options::UnixOptions;
use manylane_io::{Errno, socket};
use std::fs::{self, Metadata, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// The file of a bound socket. Dropped, it removes the file if it is still the one that it made.
#[derive(Debug)]
pub(crate) struct UnixFile {
    paths: Placing,
    identity: (u64, u64),
}

/// Where the file of a bound socket is, and where it shall be.
#[derive(Clone, Debug)]
pub(crate) struct Placing {
    beside: PathBuf,
    path: PathBuf,
}

impl Placing {
    /// Puts it there, in place of another socket's.
    pub(crate) fn place(&self) -> Result<(), Refused> {
        fs::rename(&self.beside, &self.path).map_err(|error| (Step::Rename, errno(&error)))
    }
}

/// Other names that are tried when a name is taken already.
const ATTEMPTS: u32 = 8;

impl UnixFile {
    /// Binds `socket` to a name beside `path`, which it does not take yet; `complete` is called when all but
    /// the name is right.
    pub(crate) fn bind(
        socket: &OwnedFd,
        path: &Path,
        options: &UnixOptions,
        complete: impl FnOnce() -> Result<(), Refused>,
    ) -> Result<Self, Refused> {
        // The folder that the process works in may change before the file goes. The socket has the shorter
        // name.
        let whole = std::path::absolute(path).map_err(|error| (Step::Bind, errno(&error)))?;
        if let Ok(there) = fs::symlink_metadata(path)
            && !there.file_type().is_socket()
        {
            return Err((Step::Rename, Errno::EXIST));
        }
        if options.mode.is_some() {
            socket::forbid_all(socket).map_err(|errno| (Step::Permissions, errno))?;
        }
        let mut attempts = 1..=ATTEMPTS;
        let mut beside = loop {
            let beside = beside(path)?;
            match socket::bind(socket.as_fd(), &unix_address(&beside)?) {
                Ok(()) => break Beside(beside),
                Err(Errno::ADDRINUSE) if attempts.next().is_some() => {}
                Err(errno) => return Err((Step::Bind, errno)),
            }
        };
        let permitted = permit(&beside.0, options).and_then(|()| fs::symlink_metadata(&beside.0));
        let made = permitted.map_err(|error| (Step::Permissions, errno(&error)))?;
        complete()?;
        let absolute = std::path::absolute(&beside.0).map_err(|error| (Step::Bind, errno(&error)))?;
        std::mem::take(&mut beside.0); // it is the file's from here on
        Ok(Self { paths: Placing { beside: absolute, path: whole }, identity: identity(&made) })
    }

    /// How it takes its place.
    pub(crate) fn placing(&self) -> Placing {
        self.paths.clone()
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        for path in [&self.paths.beside, &self.paths.path] {
            if fs::symlink_metadata(path).is_ok_and(|there| identity(&there) == self.identity) {
                let _ = fs::remove_file(path); // there is nobody to tell
            }
        }
    }
}

/// The other name, until it is that of a file; empty then.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// A name in the same folder: ten bytes longer, as [`LONGEST_BOUND_PATH`](crate::address::LONGEST_BOUND_PATH)
/// allows for.
fn beside(path: &Path) -> Result<PathBuf, Refused> {
    let random = RandomState::new().build_hasher().finish() % 36u64.pow(5);
    let digit = |place: u32| char::from_digit((random / 36u64.pow(place) % 36) as u32, 36).unwrap_or('0');
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{}.tmp", (0..5).map(digit).collect::<String>()));
    if name.len() > LONGEST_PATH {
        return Err((Step::Bind, Errno::NAMETOOLONG));
    }
    Ok(name.into())
}

fn permit(path: &Path, options: &UnixOptions) -> io::Result<()> {
    if options.user.is_some() || options.group.is_some() {
        lchown(path, options.user, options.group)?;
    }
    match options.mode {
        Some(mode) => fs::set_permissions(path, Permissions::from_mode(mode)),
        None => Ok(()),
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
