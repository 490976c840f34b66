//! The `ssl` commands: certificates, CA files, revocation lists, certificate lists.
//!
//! Work that takes long, or that waits for the store's lock, runs on the blocking pool.

use super::Call;
use crate::reply::ReplyError;
use crate::serve::Control;
use manylane_expr::{CertificateText, Civil, RevokedText};
use manylane_plan::pages::{PART, Parts};
use manylane_sync::Reader;
use manylane_tls::{
    BadKey, BadOcsp, Failure, Kind, ListLine, NoQuestion, OcspState, OcspUpdate, RevokedLists, ServerContext,
    ShownName, Store,
};
use std::fmt::Write;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The kind's name in answers.
fn noun(kind: Kind) -> &'static str {
    match kind {
        Kind::Certificate => "certificate",
        Kind::Authorities => "CA",
        Kind::Revoked => "CRL",
    }
}

/// The kind's name in commands.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Certificate => "cert",
        Kind::Authorities => "ca-file",
        Kind::Revoked => "crl-file",
    }
}

/// Runs `work` on the blocking pool. If the pool is full, replies with an error and returns `None`.
pub(super) async fn aside<T: Send + 'static>(
    call: &mut Call<'_, '_>,
    work: impl FnOnce(&Store) -> T + Send + 'static,
) -> Option<T> {
    let store = call.generation.certificates.clone();
    match Control::aside().run(move || work(&store)) {
        Ok(working) => Some(working.await),
        Err(refused) => {
            call.error(&format!("Nothing was done: {refused}."));
            None
        }
    }
}

/// `show ssl cert`, `show ssl ca-file`, `show ssl crl-file`
pub(super) async fn show(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), ReplyError> {
    let name = call.word(0).to_owned();
    if name.is_empty() {
        return overview(call, kind).await;
    }
    // A CA certificate or a revocation list can be chosen by its number.
    let (name, index) = match name.rsplit_once(':') {
        Some((name, index)) if kind != Kind::Certificate && index.parse::<usize>().is_ok_and(|n| n > 0) => {
            (name.to_owned(), index.parse::<usize>().ok())
        }
        _ => (name, None),
    };
    if kind == Kind::Revoked {
        return show_revoked(call, &name, index).await;
    }
    let requested = name.clone();
    let read = move |store: &Store| {
        let shown = store.show(kind, &requested)?;
        let text = if kind == Kind::Certificate { String::new() } else { authorities(&shown.der, index) };
        Some((shown, text))
    };
    let Some(shown) = aside(call, read).await else { return Ok(()) };
    let Some((shown, text)) = shown else {
        match (kind, name.strip_suffix(".ocsp")) {
            (Kind::Certificate, Some(certificate)) => ocsp_of(call, certificate.to_owned()).await,
            (Kind::Certificate, None) => call.error(NO_CERTIFICATE),
            _ => call.error("Can't display the CA file : Not found!"),
        }
        return Ok(());
    };
    let _ = writeln!(call.reply, "Filename: {name}");
    if let Some((certificate, key)) = &shown.files {
        let (certificate, key) = (certificate.display(), key.display());
        let _ = writeln!(call.reply, "Crt filename: {certificate}\nKey filename: {key}");
    }
    let _ = writeln!(call.reply, "Status: {}", status(&name, shown.der.is_empty(), shown.used));
    if kind == Kind::Certificate {
        certificate(call, &shown.der);
        let _ =
            writeln!(call.reply, "OCSP Response Key: {}", shown.ocsp.map_or(String::new(), |id| id.text()));
        return Ok(());
    }
    for line in text.split_inclusive('\n') {
        call.reply.put(line);
        call.reply.breathe().await?;
    }
    Ok(())
}

const NO_CERTIFICATE: &str = "Can't display the certificate: Not found or the certificate is a bundle!";

fn status(name: &str, empty: bool, used: bool) -> &'static str {
    match (empty, used) {
        (true, _) => "Empty",
        _ if name.starts_with('*') => "Uncommitted",
        (_, true) => "Used",
        _ => "Unused",
    }
}

/// `show ssl cert <file>.ocsp`
async fn ocsp_of(call: &mut Call<'_, '_>, certificate: String) {
    let read = move |store: &Store| {
        store.show(Kind::Certificate, &certificate)?;
        Some(store.ocsp_response(&certificate).and_then(|der| manylane_tls::ocsp_text(&der)))
    };
    match aside(call, read).await {
        Some(Some(Some(text))) => call.reply.put(&text),
        Some(Some(None)) => call.error("The certificate has no OCSP response."),
        Some(None) => call.error(NO_CERTIFICATE),
        None => {}
    }
}

/// `show ssl crl-file <file>`
async fn show_revoked(call: &mut Call<'_, '_>, name: &str, index: Option<usize>) -> Result<(), ReplyError> {
    let requested = name.to_owned();
    let read = move |store: &Store| store.revoked_lists(&requested);
    let Some(lists) = aside(call, read).await else { return Ok(()) };
    let Some(lists) = lists else {
        call.error("Can't display the CRL file : Not found!");
        return Ok(());
    };
    let status = status(name, lists.is_empty(), lists.used);
    let head = format!("Filename: {name}\nStatus: {status}\n");
    let numbers = match index {
        Some(number) => number - 1..number.min(lists.len()),
        None => 0..lists.len(),
    };
    let writer = RevokedWriter { head, lists, numbers, text: None };
    if let Err(refused) = call.reply.make(writer).await? {
        call.error(&format!("Cannot show the CRL file: {refused}."));
    }
    Ok(())
}

/// Entries of a revocation list in one step: some 50 microseconds.
const ENTRIES_AT_ONCE: usize = 50;

/// The state of writing revocation lists. It runs on the reporter's thread, like that of `show stat`.
struct RevokedWriter {
    head: String,
    lists: RevokedLists,
    /// Indexes of the lists to write; the first is that of `text`, if this is begun.
    numbers: Range<usize>,
    text: Option<RevokedText>,
}

impl Parts for RevokedWriter {
    fn next(&mut self, out: &mut String, _: &Reader) -> bool {
        out.push_str(&std::mem::take(&mut self.head));
        while out.len() < PART {
            let number = self.numbers.start;
            let Some(der) = self.lists.get(number).filter(|_| !self.numbers.is_empty()) else { return false };
            let before = self.text.take();
            let text = before.or_else(|| {
                let _ = writeln!(out, " \nCertificate Revocation List #{}:", number + 1);
                let text = RevokedText::of(der)?;
                put_revoked(out, &text);
                Some(text)
            });
            if let Some(mut text) = text.filter(|text| !text.is_empty()) {
                text.put_next(der, ENTRIES_AT_ONCE, out);
                self.text = Some(text);
                return true;
            }
            self.numbers.start += 1;
        }
        true
    }
}

fn put_revoked(out: &mut String, text: &RevokedText) {
    let _ = writeln!(
        out,
        "Version {}\nSignature Algorithm: {}\nIssuer: {}\nLast Update: {}\nNext Update: {}",
        text.version, text.signature, text.issuer, text.last_update, text.next_update
    );
    out.push_str(if text.is_empty() { "No Revoked Certificates\n" } else { "Revoked Certificates:\n" });
}

/// The text of CA certificates, or of the one chosen by `index`. Runs off the lanes.
fn authorities(all: &[Box<[u8]>], index: Option<usize>) -> String {
    let mut text = String::new();
    for (number, der) in (1..).zip(all).filter(|(number, _)| index.is_none_or(|index| index == *number)) {
        let _ = writeln!(text, " \nCertificate #{number}:");
        for line in CertificateText::of(der).iter().flat_map(lines) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn lines(text: &CertificateText) -> Vec<String> {
    vec![
        format!("Serial: {}", text.serial),
        format!("notBefore: {}", text.not_before),
        format!("notAfter: {}", text.not_after),
        format!("Subject Alternative Name: {}", text.names.join(", ")),
        format!("Algorithm: {}", text.key),
        format!("SHA1 FingerPrint: {}", text.sha1),
        format!("Subject: {}", text.subject),
        format!("Issuer: {}", text.issuer),
    ]
}

fn certificate(call: &mut Call<'_, '_>, chain: &[Box<[u8]>]) {
    let mut chain = chain.iter().filter_map(|der| CertificateText::of(der));
    for line in chain.next().iter().flat_map(lines) {
        let _ = writeln!(call.reply, "{line}");
    }
    for text in chain {
        let _ = writeln!(call.reply, "Chain Subject: {}\nChain Issuer: {}", text.subject, text.issuer);
    }
}

async fn overview(call: &mut Call<'_, '_>, kind: Kind) -> Result<(), ReplyError> {
    let Some(names) = aside(call, move |store| store.names(kind)).await else { return Ok(()) };
    let line = |name: &str, count: usize| match kind {
        Kind::Authorities => format!("{name} - {count} certificate(s)\n"),
        _ => format!("{name}\n"),
    };
    if let Some((name, count)) = &names.pending {
        call.reply.put("# transaction\n*");
        call.reply.put(&line(name, *count));
    }
    call.reply.put("# filename\n");
    for (name, count) in &names.all {
        call.reply.put(&line(name, *count));
        call.reply.breathe().await?;
    }
    Ok(())
}

/// The message for a failure, in HAProxy's words where it has some.
fn sentence(kind: Kind, name: &str, failure: &Failure, doing: &str) -> String {
    match failure {
        Failure::Unknown => match kind {
            Kind::Certificate => "Can't replace a certificate which is not referenced by the configuration!",
            Kind::Authorities => "Can't replace a CA file which is not referenced by the configuration!",
            Kind::Revoked => "Can't replace a CRL file which is not referenced by the configuration!",
        }
        .to_owned(),
        Failure::Exists => format!("{} '{name}' already exists!", noun(kind)),
        Failure::Used => format!("{} '{name}' in use, can't be deleted!", noun(kind)),
        Failure::Open => format!("ongoing transaction for the {} '{name}'", noun(kind)),
        Failure::NoTransaction => {
            format!("No ongoing transaction!{}", if doing == "set" { " !" } else { "" })
        }
        Failure::Other(about) => {
            format!("The ongoing transaction is about '{about}' but you are trying to {doing} '{name}'")
        }
        Failure::Empty => format!("{} '{name}' is empty!", noun(kind)),
        Failure::Bad(problem) => problem.to_string(),
    }
}

/// `new ssl cert`, `new ssl ca-file`, `new ssl crl-file`
pub(super) async fn create(call: &mut Call<'_, '_>, kind: Kind) {
    let name = call.word(0).to_owned();
    if name.is_empty() {
        return call.error(&format!("'new ssl {}' expects a filename", word(kind)));
    }
    let made = name.clone();
    match aside(call, move |store| store.create(kind, &made)).await {
        Some(Ok(())) => call.info(&match kind {
            Kind::Certificate => format!("New empty certificate store '{name}'!"),
            Kind::Authorities => format!("New CA file created '{name}'!"),
            Kind::Revoked => format!("New CRL file created '{name}'!"),
        }),
        Some(Err(_)) => call.error(&match kind {
            Kind::Certificate => format!("Certificate '{name}' already exists!"),
            Kind::Authorities => format!("CA file '{name}' already exists!"),
            Kind::Revoked => format!("CRL file '{name}' already exists!"),
        }),
        None => {}
    }
}

/// `set ssl cert`, `set ssl ca-file`, `add ssl ca-file`, `set ssl crl-file`
pub(super) async fn set(call: &mut Call<'_, '_>, kind: Kind, adds: bool) {
    let verb = if adds { "add" } else { "set" };
    let name = call.word(0).to_owned();
    let payload = call.payload.take();
    let (false, Some(payload)) = (name.is_empty(), payload) else {
        let what = match kind {
            Kind::Certificate => "a certificate",
            Kind::Authorities => "CAs",
            Kind::Revoked => "CRLs",
        };
        return call
            .error(&format!("'{verb} ssl {}' expects a filename and {what} as a payload", word(kind)));
    };
    let about = name.clone();
    let set = aside(call, move |store| store.set(kind, &about, payload.as_bytes(), adds)).await;
    let (file, begun) = match set {
        Some(Ok(set)) => set,
        Some(Err(failure)) => {
            let why = sentence(kind, &name, &failure, "set");
            return call.error(&format!("{why}\nCan't update {name}!"));
        }
        None => return,
    };
    let done = if begun { "created" } else { "updated" };
    call.info(&match kind {
        Kind::Certificate => format!("Transaction {done} for certificate {file}!"),
        _ => format!("transaction {done} for {} {file}!", noun(kind)),
    });
}

/// `commit ssl cert`, `commit ssl ca-file`, `commit ssl crl-file`
pub(super) async fn commit(call: &mut Call<'_, '_>, kind: Kind) {
    let name = call.word(0).to_owned();
    if name.is_empty() {
        return call.error(&format!("'commit ssl {}' expects a filename", word(kind)));
    }
    let about = name.clone();
    let commit = move |store: &Store| {
        let mut warnings = Vec::new();
        store.commit(kind, &about, &mut warnings).map(|count| (count, warnings))
    };
    match aside(call, commit).await {
        Some(Ok((count, warnings))) => {
            let dots = ".".repeat(count);
            let _ = writeln!(call.reply, "Committing {name}{dots}");
            for warning in warnings {
                let _ = writeln!(call.reply, "{warning}");
            }
            call.reply.put("Success!\n");
        }
        Some(Err(failure @ Failure::Bad(_))) => {
            let why = sentence(kind, &name, &failure, "commit");
            let _ = writeln!(call.reply, "Committing {name}\n{why}\nFailed!");
        }
        Some(Err(failure)) => {
            let why = sentence(kind, &name, &failure, "set");
            call.error(&format!("{why}\nCan't commit {name}!"));
        }
        None => {}
    }
}

/// `abort ssl cert`, `abort ssl ca-file`, `abort ssl crl-file`
pub(super) async fn abort(call: &mut Call<'_, '_>, kind: Kind) {
    let name = call.word(0).to_owned();
    if name.is_empty() {
        return call.error(&format!("'abort ssl {}' expects a filename", word(kind)));
    }
    let about = name.clone();
    match aside(call, move |store| store.abort(kind, &about)).await {
        Some(Ok(())) => call.info(&format!("Transaction aborted for certificate '{name}'!")),
        Some(Err(failure)) => {
            call.error(&sentence(kind, &name, &failure, "abort a transaction for"));
        }
        None => {}
    }
}

/// `del ssl cert`, `del ssl ca-file`, `del ssl crl-file`
pub(super) async fn delete(call: &mut Call<'_, '_>, kind: Kind) {
    let name = call.word(0).to_owned();
    if name.is_empty() {
        return call.error(&match kind {
            Kind::Certificate => "'del ssl cert' expects a certificate name".to_owned(),
            _ => format!("'del ssl {}' expects a filename", word(kind)),
        });
    }
    let about = name.clone();
    let shown = match kind {
        Kind::Certificate => "Certificate",
        Kind::Authorities => "CA file",
        Kind::Revoked => "CRL file",
    };
    match aside(call, move |store| store.remove(kind, &about)).await {
        Some(Ok(())) => call.info(&format!("{shown} '{name}' deleted!")),
        Some(Err(failure)) => {
            let what = match kind {
                Kind::Certificate => format!("certificate '{name}'"),
                _ => format!("{shown} '{name}'"),
            };
            let why = match failure {
                Failure::Used => format!("{what} in use, can't be deleted!"),
                Failure::Open => format!("ongoing transaction for the {what}"),
                _ => format!("{what} doesn't exist!"),
            };
            let what = if kind == Kind::Certificate { "certificate" } else { shown };
            call.error(&format!("Can't remove the {what}: {why}"));
        }
        None => {}
    }
}

/// `show ssl crt-list [-n] [<list>]`
pub(super) async fn show_list(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let numbered = call.word(0) == "-n";
    let name = call.word(usize::from(numbered)).to_owned();
    if name.is_empty() {
        let Some(lists) = aside(call, |store| store.lists()).await else { return Ok(()) };
        for list in lists {
            let _ = writeln!(call.reply, "{list}");
        }
        return Ok(());
    }
    let requested = name.clone();
    let Some(list) = aside(call, move |store| store.list(&requested)).await else { return Ok(()) };
    let Some(list) = list else {
        call.error("didn't find the specified filename");
        return Ok(());
    };
    let _ = writeln!(call.reply, "# {name}");
    for ListLine { number, certificate, options, filters } in list {
        let _ = match numbered {
            true => write!(call.reply, "{certificate}:{number}"),
            false => write!(call.reply, "{certificate}"),
        };
        if !options.is_empty() {
            let _ = write!(call.reply, " [{options}]");
        }
        for filter in filters {
            let _ = write!(call.reply, " {filter}");
        }
        call.reply.put("\n");
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `Sep  5 12:11:09 2027 GMT`, of seconds since 1970.
fn openssl_date(seconds: i64) -> String {
    let time = Civil::new(seconds, 0);
    let (month, day) = (time.month_name(), time.day);
    format!("{month} {day:2} {:02}:{:02}:{:02} {} GMT", time.hour, time.minute, time.second, time.year)
}

/// A time in seconds: a number, and a unit from `s` to `d` or none. The error is the end of a sentence.
fn seconds(text: &str) -> Result<i64, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[end..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        "d" => Some(24 * 60 * 60),
        _ => None,
    };
    match (unit, text[end..].chars().next()) {
        (Some(unit), _) if end > 0 => {
            let number = text[..end].parse::<i64>().ok();
            number.and_then(|number| number.checked_mul(unit)).ok_or_else(|| "it is too large".to_owned())
        }
        (_, Some(letter)) => Err(format!("unexpected character '{letter}'")),
        (_, None) => Err("expected a number".to_owned()),
    }
}

/// `show ssl sni [-f <frontend>] [-A] [-t <offset>]`
pub(super) async fn show_names(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let (mut frontend, mut expired, mut offset) = (None, false, 0);
    let mut words = call.words.iter();
    while let Some(word) = words.next() {
        let wrong = match word.as_str() {
            "-A" => {
                expired = true;
                None
            }
            "-f" => match words.next() {
                None => Some("'-f' requires a frontend name!".to_owned()),
                Some(name) => {
                    frontend = Some(name);
                    let known = call.generation.frontends.iter().any(|own| *own.name == **name);
                    (!known).then(|| "Couldn't find the specified frontend!".to_owned())
                }
            },
            "-t" => match words.next().map(|text| (text, seconds(text))) {
                None => Some("'-t' requires an offset argument!".to_owned()),
                Some((text, Err(why))) => Some(format!("'-t {text}' : {why}")),
                Some((_, Ok(found))) => {
                    offset = found;
                    None
                }
            },
            _ => Some(
                "Invalid parameters, 'show ssl sni' only supports '-f', '-A' or '-t' options!".to_owned(),
            ),
        };
        if let Some(wrong) = wrong {
            call.error(&wrong);
            return Ok(());
        }
    }
    // Addresses of one line share its context.
    let mut lines: Vec<(String, ServerContext)> = Vec::new();
    for own in call.generation.frontends.iter().filter(|own| frontend.is_none_or(|name| *own.name == **name))
    {
        for listener in &own.listeners {
            let bind_line = format!("{}/{}", own.name, listener.line);
            if let Some(context) =
                listener.tls.clone().filter(|_| lines.iter().all(|(own, _)| *own != bind_line))
            {
                lines.push((bind_line, context));
            }
        }
    }
    let read = move |store: &Store| {
        let all = lines.into_iter().map(|(bind_line, context)| (bind_line, store.shown_names(&context)));
        all.collect::<Vec<_>>()
    };
    let Some(all) = aside(call, read).await else { return Ok(()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let limit = i64::try_from(now).unwrap_or(i64::MAX).saturating_add(offset);
    call.reply.put("# Frontend/Bind\tSNI\tNegative Filter\tType\tFilename\tNotAfter\tNotBefore\n");
    for (bind_line, names) in all {
        for ShownName { name, not_for, key, certificate, not_before, not_after } in names {
            if expired && not_after >= limit {
                continue;
            }
            let mut negative = String::new();
            // In the order of HAProxy, the last one first.
            for name in not_for.iter().rev() {
                let _ = write!(negative, "!{name} ");
            }
            let negative = if negative.is_empty() { "-" } else { &negative };
            let (after, before) = (openssl_date(not_after), openssl_date(not_before));
            let _ = writeln!(
                call.reply,
                "{bind_line}\t{name}\t{negative}\t{key}\t{certificate}\t{after}\t{before}"
            );
            call.reply.breathe().await?;
        }
    }
    Ok(())
}

/// `add ssl crt-list <list> [<certificate>] [<<]`
pub(super) async fn add_line(call: &mut Call<'_, '_>) {
    let payload = call.payload.take();
    let line = match (&payload, call.words) {
        (Some(payload), [_, ..]) => payload.as_str().to_owned(),
        (None, [_, certificate, ..]) => certificate.clone(),
        _ => {
            return call.error("'add ssl crtlist' expects a filename and a certificate name");
        }
    };
    let name = call.word(0).to_owned();
    let shown = line.split_whitespace().next().unwrap_or_default().to_owned();
    let list = name.clone();
    match aside(call, move |store| store.add_line(&list, &line)).await {
        Some(Ok(count)) => {
            let dots = ".".repeat(count);
            let _ =
                writeln!(call.reply, "Inserting certificate '{shown}' in crt-list '{name}'{dots}\nSuccess!");
        }
        Some(Err(failure)) => {
            let why = match failure {
                Failure::Unknown => format!("crt-list '{name}' does not exist!"),
                Failure::Empty => format!("certificate '{shown}' is empty!"),
                Failure::Bad(problem) => problem.text,
                other => sentence(Kind::Certificate, &name, &other, "set"),
            };
            call.error(&format!("Can't edit the crt-list: {why}"));
        }
        None => {}
    }
}

/// `del ssl crt-list <list> <certificate>[:<line>]`
pub(super) async fn remove_line(call: &mut Call<'_, '_>) {
    let [name, certificate, ..] = call.words else {
        return call.error("'del ssl crtlist' expects a filename and a certificate name");
    };
    let (name, mut certificate, mut number) = (name.clone(), certificate.clone(), 0);
    if let Some((file, line)) = certificate.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        (certificate, number) = (file.to_owned(), line);
    }
    let (list, file) = (name.clone(), certificate.clone());
    match aside(call, move |store| store.remove_line(&list, &file, number)).await {
        Some(Ok(_)) => call.info(&format!("Entry '{certificate}' deleted in crtlist '{name}'!")),
        Some(Err(failure)) => {
            let why = match failure {
                Failure::Unknown => format!("crt-list '{name}' does not exist!"),
                Failure::Bad(problem) => problem.text,
                other => sentence(Kind::Certificate, &name, &other, "set"),
            };
            call.error(&format!("Can't delete the entry: {why}"));
        }
        None => {}
    }
}

/// `show tls-keys [<file>|#<id>|*]`
pub(super) async fn show_ticket_keys(call: &mut Call<'_, '_>) {
    let Some(files) = aside(call, Store::ticket_keys).await else { return };
    let wanted = call.word(0).to_owned();
    if wanted.is_empty() {
        call.reply.put("# id (file)\n");
        for (number, (file, _)) in files.iter().enumerate() {
            let _ = writeln!(call.reply, "{number} ({file})");
        }
        return;
    }
    let number = wanted.strip_prefix('#').and_then(|number| number.parse::<usize>().ok());
    let is_wanted = |(own, (file, _)): &(usize, &(Box<str>, Vec<[u8; 16]>))| {
        wanted == "*" || number == Some(*own) || **file == *wanted
    };
    let mut shown = files.iter().enumerate().filter(is_wanted).peekable();
    if shown.peek().is_none() {
        return call.error("'show tls-keys' unable to locate referenced filename");
    }
    // The keys stay secret; their names are visible in every ticket.
    call.reply.put("# id name\n");
    for (number, (file, names)) in shown {
        let _ = writeln!(call.reply, "# {number} ({file})");
        for (index, name) in names.iter().enumerate() {
            let _ = write!(call.reply, "{number}.{index} ");
            for byte in name {
                let _ = write!(call.reply, "{byte:02x}");
            }
            call.reply.put("\n");
        }
    }
}

/// `set ssl tls-key {<file>|#<id>} {<key>|<payload>}`
pub(super) async fn add_ticket_key(call: &mut Call<'_, '_>) {
    let payload = call.payload.take();
    let (file, key) = match (call.words, payload) {
        ([file, ..], Some(key)) => (file.clone(), key),
        ([file, key, ..], None) => (file.clone(), Zeroizing::new(key.clone())),
        _ => {
            return call
                .error("'set ssl tls-key' expects a filename and the new TLS key in base64 encoding.");
        }
    };
    match aside(call, move |store| store.add_ticket_key(&file, &key)).await {
        Some(Ok(())) => call.info("TLS ticket key updated!"),
        Some(Err(BadKey::Unknown)) => call.error("'set ssl tls-key' unable to locate referenced filename"),
        Some(Err(BadKey::Malformed)) => {
            call.error("'set ssl tls-key' received invalid base64 encoded TLS key.");
        }
        Some(Err(BadKey::OtherLength)) => {
            call.error("'set ssl tls-key' received a key of wrong size.");
        }
        None => {}
    }
}

/// `show ssl ocsp-response [[text|base64] {<id>|<file>}]`
pub(super) async fn show_ocsp(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let (which, encoded) = match call.words {
        [form, which, ..] if form == "text" => (which.clone(), false),
        [form, which, ..] if form == "base64" => (which.clone(), true),
        [which, ..] => (which.clone(), false),
        [] => return all_ocsp(call).await,
    };
    let read = move |store: &Store| {
        let der = store.ocsp_response(&which)?;
        if encoded { Some(manylane_tls::encode_base64(&der) + "\n") } else { manylane_tls::ocsp_text(&der) }
    };
    match aside(call, read).await {
        Some(Some(text)) => call.reply.put(&text),
        Some(None) => call.error("'show ssl ocsp-response' expects a valid certid or certificate path."),
        None => {}
    }
    Ok(())
}

async fn all_ocsp(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let Some(all) = aside(call, Store::stapled).await else { return Ok(()) };
    if !all.is_empty() {
        call.reply.put("# Certificate IDs\n");
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    for (id, file) in all {
        let _ = writeln!(
            call.reply,
            "Certificate ID key : {}\nCertificate path : {file}\n Certificate ID:\n   Issuer Name Hash: \
             {}\n   Issuer Key Hash: {}\n   Serial Number: {}",
            id.text(),
            hex(&id.name),
            hex(&id.key),
            hex(&id.serial)
        );
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `30/Jan/2023:00:08:09 +0000`, of seconds since 1970.
fn date(seconds: u64) -> String {
    let time = Civil::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0);
    format!(
        "{:02}/{}/{}:{:02}:{:02}:{:02} +0000",
        time.day,
        time.month_name(),
        time.year,
        time.hour,
        time.minute,
        time.second
    )
}

/// `show ssl ocsp-updates`
pub(super) async fn show_ocsp_updates(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let Some(all) = aside(call, Store::ocsp_updates).await else { return Ok(()) };
    call.reply.put(
        "OCSP Certid | Path | Next Update | Last Update | Successes | Failures | Last Update Status | Last \
         Update Status (str)\n",
    );
    for state in all {
        let _ = writeln!(
            call.reply,
            "{} | {} | {} | {} | {} | {} | {} | {}",
            state.id,
            state.certificate,
            date(state.next),
            state.last.map_or_else(|| "-".to_owned(), date),
            state.successes,
            state.failures,
            state.status as u8,
            state.status.text()
        );
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `update ssl ocsp-response <file>`
pub(super) async fn update_ocsp(call: &mut Call<'_, '_>) {
    let file = call.word(0).to_owned();
    if file.is_empty() {
        return call.error("'update ssl ocsp-response' expects a filename");
    }
    let requested = file.clone();
    let question = match aside(call, move |store| store.ask_ocsp(&requested)).await {
        Some(Ok(question)) => question,
        Some(Err(NoQuestion::Unknown)) => {
            return call.error(&format!(
                "Unknown certificate! 'update ssl ocsp-response' expects an already known certificate file \
                 name.\nCan't send ocsp request for {file}!"
            ));
        }
        Some(Err(NoQuestion::NoResponder)) => {
            return call.error(&format!(
                "The certificate names no responder of http://, or its issuer is not known: add it to the \
                 chain.\nCan't send ocsp request for {file}!"
            ));
        }
        None => return,
    };
    let Some(local) = call.local() else { return };
    match manylane_runtime::renew_ocsp(&local, question).await {
        Some(OcspState { status: OcspUpdate::Successful, .. }) => {
            let read = move |store: &Store| store.ocsp_response(&file);
            let response = aside(call, read).await.flatten();
            if let Some(text) = response.and_then(|der| manylane_tls::ocsp_text(&der)) {
                call.reply.put(&text);
            }
        }
        Some(OcspState { status, reason, .. }) => {
            let reason = reason.map(|why| format!(" ({why})")).unwrap_or_default();
            call.error(&format!("{}{reason}.", status.text()));
        }
        None => call.error("Too many OCSP requests are waiting: try again."),
    }
}

/// `set ssl ocsp-response {<response>|<payload>}`
pub(super) async fn set_ocsp(call: &mut Call<'_, '_>) {
    let text = match (call.payload.take(), call.words) {
        (Some(payload), _) => payload.as_str().to_owned(),
        (None, [response, ..]) => response.clone(),
        _ => return call.error("'set ssl ocsp-response' expects response in base64 encoding."),
    };
    match aside(call, move |store| store.set_ocsp(&text)).await {
        Some(Ok(())) => call.info("OCSP Response updated!"),
        Some(Err(BadOcsp::Malformed)) => {
            call.error("'set ssl ocsp-response' received invalid base64 encoded response.");
        }
        Some(Err(BadOcsp::Refused(why))) => call.error(&format!("The OCSP response was not taken: {why}.")),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa,
        KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
    };

    #[test]
    fn a_long_revocation_list_is_written_in_parts() {
        const COUNT: u64 = 2_000;
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let revoked = |serial: u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: (1..=COUNT).map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let store = Store::default();
        store.create(Kind::Revoked, "list").unwrap();
        let sent = list.signed_by(&authority).unwrap().pem().unwrap();
        store.set(Kind::Revoked, "list", sent.as_bytes(), false).unwrap();
        let lists = store.revoked_lists("*list").unwrap();
        let mut writer =
            RevokedWriter { head: "head\n".to_owned(), numbers: 0..lists.len(), lists, text: None };
        let (mut all, reader) = (String::new(), Reader::new());
        loop {
            let mut part = String::new();
            let more = writer.next(&mut part, &reader);
            assert!(part.len() < PART, "{}", part.len());
            all.push_str(&part);
            if !more {
                break;
            }
        }
        assert!(all.starts_with("head\n \nCertificate Revocation List #1:\nVersion 2\n"), "{all}");
        let serials = all.lines().filter_map(|line| line.strip_prefix("    Serial Number: "));
        let expected = (1..=COUNT).map(|serial| match serial {
            ..256 => format!("{serial:02X}"),
            _ => format!("{serial:04X}"),
        });
        assert!(serials.eq(expected), "{all}");
        assert!(all.ends_with("\n        Revocation Date: Jan  1 00:00:00 2020 GMT\n"), "{all}");
    }
}
