//! Reads files and folders.

use super::{FileId, Sources};
use crate::Shown;
use crate::limits::{MAX_FILE_BYTES, MAX_FILES};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why a source cannot be added: one sentence with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    message: String,
}

impl LoadError {
    pub(super) fn new(name: &[u8], reason: impl std::fmt::Display) -> Self {
        Self { message: format!("Cannot open configuration file/directory {} : {reason}", Shown(name)) }
    }
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for LoadError {}

pub(super) fn load(sources: &mut Sources, path: &Path) -> Result<Vec<FileId>, LoadError> {
    let failed = |error| LoadError::new(path.as_os_str().as_bytes(), system(&error));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![load_file(sources, path)?]);
    }
    let mut names: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.as_bytes();
        // Skip subfolders, as in HAProxy. A symbolic link counts as its target.
        if name.starts_with(b".") || !name.ends_with(b".cfg") || !entry.path().is_file() {
            continue;
        }
        if names.len() >= MAX_FILES {
            let reason =
                format!("expected at most {MAX_FILES} files that end in .cfg in the folder, found more");
            return Err(LoadError::new(path.as_os_str().as_bytes(), reason));
        }
        names.push(entry.path());
    }
    names.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    names.iter().map(|path| load_file(sources, path)).collect()
}

/// Reads at most one byte more than the limit, so that an endless device gives an error.
fn load_file(sources: &mut Sources, path: &Path) -> Result<FileId, LoadError> {
    let name = path.as_os_str().as_bytes();
    let failed = |error| LoadError::new(name, system(&error));
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    sources.add(name, text)
}

/// The error text of the system, without the number that std appends.
fn system(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary folder that is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("manylane-config-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_gives_its_cfg_files_in_lexical_order_and_nothing_else() {
        let folder = Folder::new("order");
        for name in ["20.cfg", "10.cfg", "3.cfg", ".hidden.cfg", "notes.txt", "Z.cfg", "a.cfg"] {
            fs::write(folder.0.join(name), name).unwrap();
        }
        fs::create_dir(folder.0.join("sub.cfg")).unwrap();
        let mut sources = Sources::new();
        let files = sources.load(&folder.0).unwrap();
        let texts: Vec<_> = files.iter().map(|&f| sources.line(f, 1).unwrap().0.to_vec()).collect();
        assert_eq!(
            texts,
            [b"10.cfg".to_vec(), b"20.cfg".to_vec(), b"3.cfg".to_vec(), b"Z.cfg".to_vec(), b"a.cfg".to_vec()]
        );
        assert!(sources.name(files[0]).ends_with(b"/10.cfg"));
    }

    #[test]
    fn what_is_missing_is_named_with_the_systems_reason() {
        let error = Sources::new().load(Path::new("/no/such/file.cfg")).unwrap_err().to_string();
        assert_eq!(
            error,
            "Cannot open configuration file/directory /no/such/file.cfg : No such file or directory"
        );
    }

    #[test]
    fn an_endless_device_is_refused() {
        let error = Sources::new().load(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("bytes, found more"), "{error}");
    }

    #[test]
    fn files_keep_the_order_of_their_options() {
        let folder = Folder::new("repeat");
        for name in ["b", "a"] {
            fs::write(folder.0.join(name), "x\n").unwrap();
        }
        let mut sources = Sources::new();
        let b = sources.load(&folder.0.join("b")).unwrap()[0];
        let a = sources.load(&folder.0.join("a")).unwrap()[0];
        assert!(b < a);
        assert_eq!(sources.files().collect::<Vec<_>>(), [b, a]);
    }
}
