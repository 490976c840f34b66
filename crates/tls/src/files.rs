//! Reads files of certificates, keys and lists.

use crate::error::Problem;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use std::fs;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Most bytes of a file. The bundle of all public CAs has a quarter of a megabyte.
const MOST_BYTES: u64 = 64 << 20;

/// Reads a file, which may hold a key.
pub(crate) fn read(keyword: &'static str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let shown = path.display();
    let failed = |error: std::io::Error| Problem::new(keyword, format!("cannot read '{shown}': {error}"));
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MOST_BYTES {
        return Err(Problem::new(
            keyword,
            format!("'{shown}' : expected at most {MOST_BYTES} bytes, found more"),
        ));
    }
    fs::read(path).map(Zeroizing::new).map_err(failed)
}

/// A section of a PEM file.
pub(crate) struct Section {
    pub(crate) kind: SectionKind,
    pub(crate) der: Zeroizing<Vec<u8>>,
}

impl PemObject for Section {
    fn from_pem(kind: SectionKind, der: Vec<u8>) -> Option<Self> {
        Some(Self { kind, der: Zeroizing::new(der) })
    }
}

impl Section {
    pub(crate) fn is_certificate(&self) -> bool {
        matches!(self.kind, SectionKind::Certificate)
    }

    pub(crate) fn is_key(&self) -> bool {
        matches!(self.kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
    }
}

/// Reads the sections of a file.
pub(crate) fn sections(keyword: &'static str, path: &Path) -> Result<Vec<Section>, Problem> {
    sections_of(keyword, &path.display().to_string(), &read(keyword, path)?)
}

/// Parses PEM; `shown` is the name for messages.
pub(crate) fn sections_of(keyword: &'static str, shown: &str, bytes: &[u8]) -> Result<Vec<Section>, Problem> {
    Section::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(|error| {
        // A file that has lost its line breaks has its private key in the faulty line, so no part of it is
        // quoted.
        let why = match error {
            pem::Error::MissingSectionEnd { .. } => "a section has no end",
            pem::Error::IllegalSectionStart { .. } => {
                "a line that begins with '-----BEGIN' has more behind it"
            }
            pem::Error::Base64Decode(_) => "a section is not in base64",
            _ => "it cannot be decoded",
        };
        Problem::new(keyword, format!("'{shown}' is not PEM: {why}"))
    })
}

/// Decodes base64, which may be a key. `None` if it is malformed.
pub fn decode_base64(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    // The PEM parser accepts missing padding; HAProxy does not.
    if text.iter().filter(|byte| !byte.is_ascii_whitespace()).count() % 4 != 0 {
        return None;
    }
    // The PEM parser decodes in constant time and zeroizes its buffers.
    let mut section = Zeroizing::new(Vec::with_capacity(text.len() + 64));
    section.extend_from_slice(b"-----BEGIN PRIVATE KEY-----\n");
    section.extend_from_slice(text);
    section.extend_from_slice(b"\n-----END PRIVATE KEY-----\n");
    let mut sections = Section::pem_slice_iter(&section);
    match (sections.next()?, sections.next()) {
        (Ok(one), None) => Some(one.der),
        _ => None,
    }
}

/// These bytes in base64.
pub fn encode_base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |number: usize| u32::from(three.get(number).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for letter in 0..4 {
            let index = (bits >> (18 - 6 * letter)) as usize & 63;
            text.push(if letter <= three.len() { char::from(LETTERS[index]) } else { '=' });
        }
    }
    text
}

/// The files of a folder, sorted by name; for a file, the file itself.
pub(crate) fn files(keyword: &'static str, path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let failed =
        |error: std::io::Error| Problem::new(keyword, format!("cannot read '{}': {error}", path.display()));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
