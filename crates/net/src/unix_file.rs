//! The file of a unix socket. It appears complete, and is removed with its socket.
//!
//! A socket is bound under another name in the same folder, gets its owner and mode, and listens. When
//! everything else of the process is bound, `rename(2)` puts it at its path. So there is no moment without a
//! listener when one process takes over from another, and none with wrong permissions. Removal only affects
//! the socket's own file: a successor may have put another one at the path.

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

/// The file of a bound socket. Dropping it removes the file if it is still the one that it made.
#[derive(Debug)]
pub(crate) struct UnixFile {
    paths: PendingFile,
    identity: (u64, u64),
}

/// The temporary and the final path of a socket's file.
#[derive(Clone, Debug)]
pub(crate) struct PendingFile {
    beside: PathBuf,
    path: PathBuf,
}

impl PendingFile {
    /// Moves the file to its path, in place of another socket's file.
    pub(crate) fn rename(&self) -> Result<(), Refused> {
        fs::rename(&self.beside, &self.path).map_err(|error| (Step::Rename, errno(&error)))
    }
}

/// Number of other names to try if a name is taken.
const ATTEMPTS: u32 = 8;

impl UnixFile {
    /// Binds `socket` to a name beside `path`. Calls `complete` once everything but the name is final.
    pub(crate) fn bind(
        socket: &OwnedFd,
        path: &Path,
        options: &UnixOptions,
        complete: impl FnOnce() -> Result<(), Refused>,
    ) -> Result<Self, Refused> {
        // Stored as an absolute path, because the working directory may change before the file is removed.
        // The socket itself has the shorter name.
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
        std::mem::take(&mut beside.0); // from here on the file belongs to `UnixFile`
        Ok(Self { paths: PendingFile { beside: absolute, path: whole }, identity: identity(&made) })
    }

    /// Returns the paths for the rename.
    pub(crate) fn placing(&self) -> PendingFile {
        self.paths.clone()
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        for path in [&self.paths.beside, &self.paths.path] {
            if fs::symlink_metadata(path).is_ok_and(|there| identity(&there) == self.identity) {
                let _ = fs::remove_file(path); // an error cannot be reported here
            }
        }
    }
}

/// Removes the temporary file on failure; empty once the file belongs to `UnixFile`.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Returns a name in the same folder that is ten bytes longer, for which
/// [`LONGEST_BOUND_PATH`](crate::address::LONGEST_BOUND_PATH) leaves room.
fn beside(path: &Path) -> Result<PathBuf, Refused> {
    let random = RandomState::new().build_hasher().finish() % 36u64.pow(5);
    let digit = |index: u32| char::from_digit((random / 36u64.pow(index) % 36) as u32, 36).unwrap_or('0');
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
