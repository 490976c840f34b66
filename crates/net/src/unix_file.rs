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
use manylane_io::folder::Folder;
use manylane_io::{Errno, socket};
use manylane_sync::Arc;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

/// The file of a bound socket. Dropping it removes the file if it is still the one that it made.
#[derive(Debug)]
pub(crate) struct UnixFile {
    names: PendingFile,
    identity: (u64, u64),
}

/// A socket's file, for the rename. The folder is held open, because a lane inside a `chroot` does not reach
/// it by its path, and the working directory may change.
#[derive(Clone, Debug)]
pub(crate) struct PendingFile(Arc<Names>);

/// The temporary and the final name of a socket's file in its folder.
#[derive(Debug)]
struct Names {
    folder: Folder,
    beside: OsString,
    name: OsString,
}

impl PendingFile {
    /// Moves the file to its name, in place of another socket's file.
    pub(crate) fn rename(&self) -> Result<(), Refused> {
        let Names { folder, beside, name } = &*self.0;
        folder.rename(beside, name).map_err(|errno| (Step::Rename, errno))
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
        permit(&beside.0, options).map_err(|error| (Step::Permissions, errno(&error)))?;
        let names = Names::of(&beside.0, path).map_err(|errno| (Step::Bind, errno))?;
        let identity = names.folder.identity(&names.beside).map_err(|errno| (Step::Permissions, errno))?;
        complete()?;
        std::mem::take(&mut beside.0); // from here on the file belongs to `UnixFile`
        Ok(Self { names: PendingFile(Arc::new(names)), identity })
    }

    /// Returns the names for the rename.
    pub(crate) fn placing(&self) -> PendingFile {
        self.names.clone()
    }
}

impl Names {
    /// Opens the folder of two paths in it.
    fn of(beside: &Path, path: &Path) -> Result<Self, Errno> {
        let (Some(folder), Some(beside), Some(name)) = (path.parent(), beside.file_name(), path.file_name())
        else {
            return Err(Errno::INVAL);
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Ok(Self { folder: Folder::open(folder)?, beside: beside.to_owned(), name: name.to_owned() })
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        let names = &*self.names.0;
        for name in [&names.beside, &names.name] {
            if names.folder.identity(name) == Ok(self.identity) {
                let _ = names.folder.remove(name); // an error cannot be reported here
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

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylane_io::socket::{AddressFamily, Shape};

    /// As in a `chroot`, where the path of the folder leads nowhere.
    #[test]
    fn a_file_is_renamed_and_removed_without_its_path() {
        let root = std::env::temp_dir().join(format!("manylane-unix-file-{}", std::process::id()));
        let (before, after) = (root.join("before"), root.join("after"));
        fs::create_dir_all(&before).unwrap();
        let socket = crate::listen::open(AddressFamily::UNIX, Shape::Stream, None).unwrap();
        let bound = UnixFile::bind(&socket, &before.join("s"), &UnixOptions::default(), || Ok(())).unwrap();
        fs::rename(&before, &after).unwrap();
        let names = || fs::read_dir(&after).unwrap().map(|one| one.unwrap().file_name()).collect::<Vec<_>>();
        bound.placing().rename().unwrap();
        assert_eq!(names(), ["s"]);
        drop(bound);
        assert!(names().is_empty());
        fs::remove_dir_all(root).unwrap();
    }
}
