//! Files that a configuration names and that stay in memory. Each file is read once, and their total size is
//! limited.

use manylane_sync::Arc;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Error, Read, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Size limit of one file, in bytes: it is sent in one piece, from memory.
pub(super) const MAX_FILE_BYTES: usize = 1 << 20;
/// Size limit of all files together, in bytes: error pages have a few kilobytes.
const MAX_TOTAL_BYTES: usize = 64 << 20;

/// Converts the bytes of a file before they are kept.
pub(super) type FileConverter = fn(Vec<u8>) -> std::result::Result<Vec<u8>, &'static str>;

/// The files that were read.
#[derive(Debug, Default)]
pub(super) struct Files {
    kept: HashMap<(PathBuf, bool), Arc<[u8]>>,
    bytes: usize,
}

impl Files {
    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or exceeds a limit.
    pub(super) fn bytes(&mut self, path: PathBuf) -> Result<Arc<[u8]>> {
        self.kept((path, false), Ok)
    }

    /// Returns the file as the message that `make` converts it to.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and the errors of `make`.
    pub(super) fn message(&mut self, path: PathBuf, make: FileConverter) -> Result<Arc<[u8]>> {
        self.kept((path, true), make)
    }

    fn kept(&mut self, key: (PathBuf, bool), make: FileConverter) -> Result<Arc<[u8]>> {
        if let Some(bytes) = self.kept.get(&key) {
            return Ok(bytes.clone());
        }
        let bytes = self.read(&key.0)?;
        let bytes: Arc<[u8]> = make(bytes).map_err(Error::other)?.into();
        self.kept.insert(key, bytes.clone());
        Ok(bytes)
    }

    /// Reads a file for a caller that keeps the converted bytes itself.
    ///
    /// # Errors
    /// If the file cannot be read, or exceeds a limit.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > MAX_FILE_BYTES {
            return Err(Error::other(format!("expected at most {MAX_FILE_BYTES} bytes, found more")));
        }
        if bytes.len() > MAX_TOTAL_BYTES - self.bytes {
            return Err(Error::other(format!(
                "expected at most {MAX_TOTAL_BYTES} bytes in all files of answers, found more"
            )));
        }
        self.bytes += bytes.len();
        Ok(bytes)
    }
}

/// Opens a file for reading. Refuses pipes: opening one blocks until there is a writer.
///
/// # Errors
/// Those of [`File::open`], and an error for a pipe.
pub(super) fn open(path: &Path) -> Result<File> {
    if std::fs::metadata(path)?.file_type().is_fifo() {
        return Err(Error::other("expected a file, found a pipe"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_and_all_of_them_are_bounded() {
        let folder = std::env::temp_dir().join(format!("manylane-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = |n: usize| folder.join(n.to_string());
        let mut files = Files::default();
        let most = MAX_TOTAL_BYTES / MAX_FILE_BYTES;
        for n in 0..=most {
            std::fs::write(path(n), vec![b'x'; MAX_FILE_BYTES]).unwrap();
        }
        let first = files.bytes(path(0)).unwrap();
        for n in 0..most {
            let bytes = files.bytes(path(n)).unwrap();
            assert_eq!(bytes.len(), MAX_FILE_BYTES);
        }
        assert!(Arc::ptr_eq(&first, &files.bytes(path(0)).unwrap()));
        assert_eq!(
            files.bytes(path(most)).unwrap_err().to_string(),
            "expected at most 67108864 bytes in all files of answers, found more"
        );
        std::fs::write(path(0), vec![b'x'; MAX_FILE_BYTES + 1]).unwrap();
        let error = Files::default().bytes(path(0)).unwrap_err().to_string();
        assert_eq!(error, "expected at most 1048576 bytes, found more");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
