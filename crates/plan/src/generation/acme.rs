//! Compiles `acme` sections, and the certificates that they renew.

use super::refuse::Refuse;
use super::rules::Expressions;
use manylane_acme::{AccountKey, BindingAlgorithm, CertificateInfo, Challenge, ExternalAccount, KeyKind};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{self, Config};
use manylane_sync::Arc;
use manylane_sync::atomic::AtomicU64;
use manylane_sync::atomic::Ordering::Relaxed;
use manylane_tls::{
    ClientContext, ClientSettings, CommonSettings, Failure, HttpUrl, Kind, ServerName, ServerVerify, Store,
};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use zeroize::Zeroizing;

/// Largest number of names in a certificate. The authorities in use have the same limit.
const MOST_NAMES: usize = 100;

/// Largest file of a key, in bytes.
const LONGEST_KEY: u64 = 64 << 10;

/// An `acme` section: an authority, and the account there.
#[derive(Debug)]
pub struct AcmeSection {
    /// The name of the section.
    pub name: Box<str>,
    /// `directory`
    pub directory: HttpUrl,
    /// `contact`
    pub contact: Option<Box<str>>,
    /// `keytype`, `bits`, `curves`: the kind of new keys.
    pub kind: KeyKind,
    /// `challenge`
    pub challenge: Challenge,
    /// `map`
    pub map: Option<Box<[u8]>>,
    /// `account-key`
    file: PathBuf,
    account: OnceLock<AccountKey>,
    /// `eab-key-id`, `eab-mac-key`, `eab-mac-alg`
    pub external: Option<ExternalAccount>,
    pos: Pos,
}

impl AcmeSection {
    /// Returns the key of the account. `None` until [`Acme::make_account_keys`] has generated it.
    pub fn account(&self) -> Option<&AccountKey> {
        self.account.get()
    }
}

/// A certificate that an authority renews.
#[derive(Clone, Debug)]
pub struct AcmeCertificate {
    /// Its name for commands.
    pub name: Box<str>,
    /// Its authority.
    pub section: Arc<AcmeSection>,
    /// The names to order, in lower case.
    pub names: Arc<[Box<str>]>,
    /// The certificate in its file, in DER.
    pub of_file: Arc<[u8]>,
    /// The number of the last obtained certificate that the generation's store has accepted or refused.
    installed: Arc<AtomicU64>,
}

impl AcmeCertificate {
    /// Installs the last obtained certificate in the generation's store, unless an earlier call did. The
    /// order may have ended in an older generation after this one was built. `None` if there is nothing to
    /// install.
    ///
    /// # Errors
    /// [`Failure::Open`] if a transaction for the certificate is open; a later call tries again. Other errors
    /// are final.
    pub fn install(&self, store: &Store) -> Option<Result<(), Failure>> {
        let had = self.installed.load(Relaxed);
        let (number, pem) = manylane_acme::obtained(&self.name, &self.of_file, had)?;
        let result = store.install(&self.name, pem.as_bytes()).map(drop);
        if !matches!(result, Err(Failure::Open)) {
            self.installed.fetch_max(number, Relaxed);
        }
        Some(result)
    }
}

/// The certificates that ACME renews, and the TLS settings for connections to authorities.
#[derive(Debug, Default)]
pub struct Acme {
    /// The certificates.
    pub certificates: Vec<AcmeCertificate>,
    /// False with `acme.scheduler off`: commands alone order certificates.
    pub scheduled: bool,
    /// The settings of TLS for connections to authorities, if there are certificates.
    pub tls: Option<ClientContext>,
    sections: Vec<Arc<AcmeSection>>,
}

impl Acme {
    /// Generates the account keys whose files do not exist. The files belong to `owner`, a user and a group,
    /// since a reload reads them with those rights. Call it before the process drops its privileges, and not
    /// for a mere check of the configuration.
    ///
    /// # Errors
    /// A sentence about the file that cannot be read or created.
    pub fn make_account_keys(&self, owner: (Option<u32>, Option<u32>)) -> Result<(), String> {
        for section in self.sections.iter().filter(|section| section.account.get().is_none()) {
            let shown = section.file.display();
            let failed = |why: String| {
                format!(
                    "'account-key' : cannot make '{shown}' for the acme section '{}': {why}; make the file \
                     with a key in PEM, or let this user write in its folder",
                    section.name
                )
            };
            let mut found = account_key(&section.file).map_err(failed)?;
            if found.is_none() {
                let pem = AccountKey::generate(section.kind).map_err(failed)?;
                match make_file(&section.file, pem.as_bytes(), owner) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {} // another process was faster
                    other => other.map_err(|error| failed(error.to_string()))?,
                }
                found = account_key(&section.file).map_err(failed)?;
            }
            let (key, _) = found.ok_or_else(|| failed("it was removed".to_owned()))?;
            let _ = section.account.set(key);
        }
        Ok(())
    }

    /// Refuses a `map` that no rule reads: the authority would get no answer.
    pub(super) fn check_maps(&self, expressions: &Expressions, refuse: &mut Refuse<'_>) {
        for section in &self.sections {
            let map = section.map.as_deref();
            if let Some(name) = map
                && expressions.references.get(name, true).is_none()
            {
                let name = String::from_utf8_lossy(name);
                let message =
                    format!("'map' : no rule reads the map '{name}', so the authority would get no answer");
                refuse.found.alert(section.pos, message);
            }
        }
    }
}

/// Compiles the sections. `loads` are the `crt-store` lines with `acme`, with their names in the store.
pub(super) fn acme(config: &Config, loads: &[(Box<str>, &tree::CrtLoad)], refuse: &mut Refuse<'_>) -> Acme {
    let sections: Vec<_> = config.acmes.iter().filter_map(|own| section(own, refuse)).map(Arc::new).collect();
    let process = &config.global.tls;
    let scheduled = process.acme_scheduler.is_none_or(|set| set.value);
    let mut acme = Acme { scheduled, sections, ..Acme::default() };
    for (name, load) in loads {
        let wanted = load.acme.as_ref().and_then(|word| word.text()).unwrap_or_default();
        let Some(section) = acme.sections.iter().find(|section| *section.name == *wanted).cloned() else {
            continue; // it was refused
        };
        if section.challenge == Challenge::Http01 && section.map.is_none() {
            let message = format!(
                "acme section '{wanted}' expects 'map <map>' with the challenge http-01: a rule answers the \
                 authority from this map"
            );
            refuse.found.alert(section.pos, message);
        }
        let names = load.domains.iter().filter_map(|word| domain(word, section.challenge, refuse)).collect();
        if load.domains.len() > MOST_NAMES {
            let message = format!("'domains' has at most {MOST_NAMES} names, found {}", load.domains.len());
            refuse.found.alert(load.pos, message);
        }
        let Some(of_file) =
            refuse.tls.show(Kind::Certificate, name).and_then(|own| own.der.into_iter().next())
        else {
            continue; // it could not be loaded
        };
        let (own_name, of_file) = (name.clone(), Arc::from(of_file));
        let own = AcmeCertificate { name: own_name, section, names, of_file, installed: Arc::default() };
        // The new store reads the file, which is older than an obtained certificate.
        if let Some(Err(Failure::Bad(problem))) = own.install(&refuse.tls) {
            let why = problem.text;
            let message = format!("'{name}' : the certificate that ACME obtained cannot be used: {why}");
            refuse.found.warning(load.pos, message);
        }
        acme.certificates.push(own);
    }
    if !acme.certificates.is_empty() {
        acme.tls = context(config, refuse);
    }
    acme
}

/// Returns the TLS settings for connections to authorities.
fn context(config: &Config, refuse: &mut Refuse<'_>) -> Option<ClientContext> {
    let process = &config.global.tls;
    let own = process.client_authorities.as_ref();
    let authorities = match own {
        None => PathBuf::from("@system-ca"),
        Some(set) => super::tls::based(&set.value, process.ca_base.as_ref(), refuse),
    };
    let verifies = process.client_verify.is_none_or(|set| set.value);
    let settings = ClientSettings {
        common: CommonSettings {
            alpn: vec![b"http/1.1".to_vec()],
            authorities: verifies.then_some(authorities),
            ..CommonSettings::default()
        },
        certificate: None,
        verify: if verifies { ServerVerify::Required } else { ServerVerify::None },
        sends_name: true,
        reuse: false,
        early_data: false,
    };
    let pos = own.map(|set| set.pos).or_else(|| config.acmes.first().map(|section| section.name.pos()))?;
    match refuse.tls.server(&settings, &mut Vec::new()) {
        Ok(context) => Some(context),
        Err(problem) => {
            refuse.found.alert(pos, format!("'httpclient.ssl.ca-file' : {}", problem.text));
            None
        }
    }
}

fn section(own: &tree::Acme, refuse: &mut Refuse<'_>) -> Option<AcmeSection> {
    let name = own.name.text().unwrap_or_default();
    let pos = own.name.pos();
    let Some(directory) = &own.directory else {
        refuse.found.alert(pos, format!("acme section '{name}' expects 'directory <url>', found none"));
        return None;
    };
    let parsed = directory.value.text().and_then(|text| HttpUrl::parse(text, "https"));
    let parsed = parsed.filter(|url| server_name(url).is_some());
    let Some(directory) = parsed else {
        let message = format!(
            "'directory' expects a URL of https://, as ACME works over TLS only, found \
             '{}'",
            directory.value.shown()
        );
        refuse.found.alert(directory.pos, message);
        return None;
    };
    let contact = own.contact.as_ref().and_then(|set| {
        let text = set.value.text().unwrap_or_default();
        let fits = text.contains('@') && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !fits {
            let message = format!("'contact' expects <name>@<host>, found '{}'", set.value.shown());
            refuse.found.alert(set.pos, message);
        }
        fits.then(|| text.into())
    });
    let kind = match (own.keytype.map(|set| set.value), own.bits.map(|set| set.value)) {
        (Some("RSA"), Some("2048")) => KeyKind::Rsa2048,
        (Some("RSA"), Some("3072")) => KeyKind::Rsa3072,
        (Some("RSA"), _) => KeyKind::Rsa4096,
        _ if own.curves.is_some_and(|set| set.value == "P-256") => KeyKind::P256,
        _ => KeyKind::P384,
    };
    let challenge = match own.challenge.map(|set| set.value) {
        Some("dns-01") => Challenge::Dns01,
        Some("tls-alpn-01") => Challenge::TlsAlpn01,
        _ => Challenge::Http01,
    };
    let file = match &own.account_key {
        Some(set) => refuse.path(&set.value),
        None => refuse.config.path(format!("{name}.account.key").as_bytes(), pos),
    };
    let pos_of_key = own.account_key.as_ref().map_or(pos, |set| set.pos);
    let account = OnceLock::new();
    match account_key(&file) {
        Ok(None) => {}
        Ok(Some((key, mode))) => {
            note_wide_rights("account-key", pos_of_key, &file, mode, refuse);
            let _ = account.set(key);
        }
        Err(why) => {
            let message = format!("'account-key' : '{}' cannot be used: {why}", file.display());
            refuse.found.alert(pos_of_key, message);
        }
    }
    let external = external_account(own, refuse);
    let map = own.map.as_ref().map(|set| set.value.bytes().into());
    let pos = own.map.as_ref().map_or(pos, |set| set.pos);
    let name = name.into();
    Some(AcmeSection { name, directory, contact, kind, challenge, map, file, account, external, pos })
}

/// Returns the account outside ACME that the section's account is bound to.
fn external_account(own: &tree::Acme, refuse: &mut Refuse<'_>) -> Option<ExternalAccount> {
    let (id, word) = match (&own.eab_key_id, &own.eab_mac_key) {
        (Some(id), Some(key)) => (id.value.text().unwrap_or_default(), key),
        (Some(id), None) => {
            refuse.found.alert(id.pos, "'eab-key-id' expects 'eab-mac-key <file|key>' beside it, found none");
            return None;
        }
        (None, Some(key)) => {
            refuse.found.alert(key.pos, "'eab-mac-key' expects 'eab-key-id <id>' beside it, found none");
            return None;
        }
        (None, None) => {
            if let Some(set) = own.eab_mac_alg {
                refuse.found.warning(set.pos, "'eab-mac-alg' has no effect without 'eab-mac-key'");
            }
            return None;
        }
    };
    let algorithm = match own.eab_mac_alg.map(|set| set.value) {
        Some("HS512") => BindingAlgorithm::Hs512,
        Some("HS384") => BindingAlgorithm::Hs384,
        _ => BindingAlgorithm::Hs256,
    };
    let written = word.value.bytes();
    // Neither character is one of base64url.
    let made = if written.contains(&b'/') || written.contains(&b'.') {
        let path = refuse.path(&word.value);
        let shown = format!("the key of '{}'", path.display());
        let read = read_key(&path).and_then(|read| read.ok_or_else(|| "there is no such file".to_owned()));
        read.and_then(|(key, mode)| {
            note_wide_rights("eab-mac-key", word.pos, &path, mode, refuse);
            ExternalAccount::new(id, algorithm, &key).map_err(str::to_owned)
        })
        .map_err(|why| (shown, why))
    } else {
        let made = ExternalAccount::new(id, algorithm, written);
        // Findings show neither the key nor its line.
        made.map_err(|why| ("the key".to_owned(), why.to_owned()))
    };
    match made {
        Ok(external) => Some(external),
        Err((shown, why)) => {
            let message = format!(
                "'eab-mac-key' : {shown} cannot be used: {why}; expected the authority's key in base64url, \
                 or a file with it whose name has a '/' or a '.'"
            );
            refuse.found.alert(word.pos, message);
            None
        }
    }
}

/// Notes that others than the user of the process may read a key.
fn note_wide_rights(keyword: &str, pos: Pos, path: &Path, mode: u32, refuse: &mut Refuse<'_>) {
    if mode & 0o077 != 0 {
        let shown = path.display();
        let message =
            format!("'{keyword}' : others may read '{shown}' (mode {mode:03o}): give it the mode 600");
        refuse.note(pos, message);
    }
}

/// Creates a file that only `owner` can read. It appears with all of `bytes` or not at all: later starts
/// would refuse half a key.
fn make_file(path: &Path, bytes: &[u8], owner: (Option<u32>, Option<u32>)) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&aside); // of a process that crashed
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&aside)?;
    let made = fchown(&file, owner.0, owner.1)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&aside, path));
    let _ = fs::remove_file(&aside);
    made
}

/// Reads an account key, and the mode of its file. `None` if there is no file.
fn account_key(path: &Path) -> Result<Option<(AccountKey, u32)>, String> {
    match read_key(path)? {
        Some((pem, mode)) => Ok(Some((AccountKey::from_pem(&pem)?, mode))),
        None => Ok(None),
    }
}

/// The bytes of a file with a key, and its mode.
type KeyFile = (Zeroizing<Vec<u8>>, u32);

/// Reads a file with a key. `None` if there is no file.
fn read_key(path: &Path) -> Result<Option<KeyFile>, String> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| error.to_string())?,
    };
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned()); // a pipe would never end
    }
    let mut pem = Zeroizing::new(Vec::new());
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(LONGEST_KEY + 1).read_to_end(&mut pem).map_err(|error| error.to_string())?;
    if pem.len() as u64 > LONGEST_KEY {
        return Err(format!("expected at most {LONGEST_KEY} bytes, found more"));
    }
    Ok(Some((pem, metadata.permissions().mode() & 0o777)))
}

/// Returns the name for which the certificate of the URL's host must be valid. `None` if the host is neither
/// a DNS name nor an address.
pub fn server_name(url: &HttpUrl) -> Option<ServerName<'static>> {
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).ok()
}

/// Returns the name in `word` in lower case, or reports why the challenge cannot prove it.
fn domain(word: &Word, challenge: Challenge, refuse: &mut Refuse<'_>) -> Option<Box<str>> {
    let name = word.text().unwrap_or_default().to_ascii_lowercase();
    let plain = name.strip_prefix("*.");
    let label = |label: &str| {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(letters)
    };
    let host = plain.unwrap_or(&name);
    let is_name =
        host.len() <= 253 && host.split('.').all(label) && host.parse::<std::net::IpAddr>().is_err();
    let message = if !is_name {
        format!(
            "'domains' expects host names in ASCII, with other letters encoded as 'xn--...', found '{}'",
            word.shown()
        )
    } else if plain.is_some() && challenge != Challenge::Dns01 {
        format!(
            "'domains' : '{name}' expects 'challenge dns-01', since {} cannot validate wildcard names",
            challenge.name()
        )
    } else {
        return Some(name.into());
    };
    refuse.found.alert(word.pos(), message);
    None
}

/// Returns the dates and names of the certificate that the store presents now.
pub fn certificate_info(store: &manylane_tls::Store, certificate: &str) -> Option<CertificateInfo> {
    CertificateInfo::of(store.show(Kind::Certificate, certificate)?.der.first()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // helpers of tests are tests too
    use super::*;
    use manylane_config::source::Sources;

    fn pem() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let own =
            rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        format!("{}{}", own.pem(), key.serialize_pem())
    }

    fn shown(store: &Store, name: &str) -> Box<[u8]> {
        store.show(Kind::Certificate, name).unwrap().der.remove(0)
    }

    fn certificate(name: &str, of_file: &[u8]) -> AcmeCertificate {
        let section = AcmeSection {
            name: "x".into(),
            directory: HttpUrl::parse("https://a.test/", "https").unwrap(),
            contact: None,
            kind: KeyKind::P256,
            challenge: Challenge::Http01,
            map: None,
            file: PathBuf::new(),
            account: OnceLock::new(),
            external: None,
            pos: Pos { file: Sources::default().add("x", "").unwrap(), line: 1, column: 1 },
        };
        let (section, names, of_file) = (Arc::new(section), Arc::from([]), Arc::from(of_file));
        AcmeCertificate { name: name.into(), section, names, of_file, installed: Arc::default() }
    }

    /// A generation installs a certificate that was obtained between its build and its start, or while a
    /// transaction was open.
    #[test]
    fn what_was_obtained_is_installed_once_and_beside_no_transaction() {
        let path = std::env::temp_dir().join(format!("manylane-acme-{}.pem", std::process::id()));
        fs::write(&path, pem()).unwrap();
        let name = path.display().to_string();
        let store = Store::default();
        store.load(&name, &mut Vec::new()).unwrap();
        fs::remove_file(&path).unwrap();
        let file = shown(&store, &name);
        let own = certificate(&name, &file);
        assert!(own.install(&store).is_none());
        let obtain = || {
            let mut running = manylane_acme::begin(&name, &own.section.name).unwrap();
            running.keep(file.clone(), Zeroizing::new(pem()));
        };
        obtain();
        assert!(matches!(own.install(&store), Some(Ok(()))));
        let first = shown(&store, &name);
        assert_ne!(first, file);
        assert!(own.install(&store).is_none());
        obtain();
        let (_, chain) = manylane_acme::obtained(&name, &file, 0).unwrap();
        store.set(Kind::Certificate, &name, chain.as_bytes(), false).unwrap();
        assert!(matches!(own.install(&store), Some(Err(Failure::Open))));
        assert_eq!(shown(&store, &name), first);
        store.abort(Kind::Certificate, &name).unwrap();
        assert!(matches!(own.install(&store), Some(Ok(()))));
        assert_ne!(shown(&store, &name), first);
    }
}
