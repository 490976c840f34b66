//! Files in an open folder.

use rustix::fs::{AtFlags, Mode, OFlags, open, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A folder that is held open. Its files are within reach wherever its path leads meanwhile: the thread may
/// be in a `chroot`.
#[derive(Debug)]
pub struct Folder(OwnedFd);

impl Folder {
    /// Opens the folder.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(open(path, flags, Mode::empty())?))
    }

    /// Renames a file in place of another one.
    ///
    /// # Errors
    /// The system's.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        renameat(&self.0, from, &self.0, to)
    }

    /// Returns the device and the number of a file, which tell it from others.
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self, name: &OsStr) -> Result<(u64, u64), Errno> {
        let found = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        unlinkat(&self.0, name, AtFlags::empty())
    }
}
