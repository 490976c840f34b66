//! A folder with very many certificates: the time to start and to read them again, their memory, the choice
//! of one by name, and what a change costs the lanes.

use super::running::{Running, memory};
use super::{Bench, DEFAULTS, met, ms};
use crate::proxy::load::Load;
use crate::proxy::program::{Kind, free_port};
use manylane_sync::qsbr::Reader;
use manylane_tls::{ServerSettings, Source, Store, time_choices};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits: seconds to start, KiB a certificate, microseconds of a choice, and time of a lane for a change.
const MOST_START: f64 = 10.0;
const MOST_MEMORY: f64 = 6.0;
const MOST_CHOICE: f64 = 1.0;
const SLICE: Duration = Duration::from_millis(1);

/// Changes by commands, and hellos whose certificate is chosen.
const CHANGES: usize = 10;
const HELLOS: usize = 1_000;

pub(super) fn run(bench: &Bench, _: &Load) -> Result<(), String> {
    let folders = Folders::make(bench)?;
    let count = bench.certificates;
    println!("\nA folder of {count} certificates with ECDSA keys (certificates)");
    let choice = folders.choice()?;
    println!("{choice:.2} us a choice by name: {}", met(choice < MOST_CHOICE));
    println!(
        "\n| who | start, s | at most {MOST_START} | KiB a certificate | at most {MOST_MEMORY} | a change by \
            commands, ms | reload, one file changed, s | KiB a certificate behind it | slices over {} ms |",
        SLICE.as_millis()
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for kind in bench.kinds() {
        let before = memory(folders.start(bench, kind, &folders.one)?.0.pid());
        let (running, start) = folders.start(bench, kind, &folders.all)?;
        let each =
            |running: &Running| (memory(running.pid()).saturating_sub(before)) as f64 / f64::from(count);
        let own = each(&running);
        let mut change = Duration::ZERO;
        for number in 0..CHANGES {
            let name = folders.file(&folders.all, number);
            let new = folders.pem(&format!("changed-{number}.example"))?;
            let begun = Instant::now();
            for line in [
                format!("set ssl cert {} <<\n{new}", name.display()),
                format!("commit ssl cert {}", name.display()),
            ] {
                let (said, _) = running.ask(&line, 1 << 10)?;
                if !said.contains("Success") && !said.contains("ransaction created") {
                    return Err(format!("{kind} says '{said}'"));
                }
            }
            change += begun.elapsed() / CHANGES as u32;
        }
        let mut reloaded = None;
        if kind.is_ours() {
            let changed = folders.file(&folders.all, 0);
            fs::write(&changed, folders.pem("name-0.example")?).map_err(|error| error.to_string())?;
            let begun = Instant::now();
            let (said, _) = running.ask("reload", 1 << 10)?;
            if !said.contains("Reloaded: ") {
                return Err(said);
            }
            reloaded = Some((begun.elapsed(), each(&running)));
        }
        println!(
            "| {kind} | {:.2} | {} | {own:.2} | {} | {:.1} | {} | {} | {} |",
            start.as_secs_f64(),
            met(start.as_secs_f64() <= MOST_START),
            met(own <= MOST_MEMORY),
            ms(change),
            reloaded.map_or("–".into(), |(time, _)| format!("{:.2}", time.as_secs_f64())),
            reloaded.map_or("–".into(), |(_, memory)| format!("{memory:.2}")),
            match kind.is_ours() {
                true => {
                    let slices = running.slices(SLICE);
                    format!("{} {}: {}", slices.len(), slices.join(" "), met(slices.is_empty()))
                }
                false => "not told".into(),
            },
        );
    }
    Ok(())
}

/// Folders with certificates of one authority.
struct Folders {
    authority: CertifiedIssuer<'static, KeyPair>,
    one: PathBuf,
    all: PathBuf,
}

impl Folders {
    fn make(bench: &Bench) -> Result<Self, String> {
        let failed = |error: rcgen::Error| error.to_string();
        let key = KeyPair::generate().map_err(failed)?;
        let authority = CertifiedIssuer::self_signed(CertificateParams::default(), key).map_err(failed)?;
        let own = Self { authority, one: bench.folder.join("one"), all: bench.folder.join("all") };
        for (folder, count) in [(&own.one, 1), (&own.all, bench.certificates as usize)] {
            fs::create_dir_all(folder).map_err(|error| error.to_string())?;
            for number in 0..count {
                let pem = own.pem(&format!("name-{number}.example"))?;
                fs::write(own.file(folder, number), pem).map_err(|error| error.to_string())?;
            }
        }
        Ok(own)
    }

    fn file(&self, folder: &Path, number: usize) -> PathBuf {
        folder.join(format!("{number}.pem"))
    }

    /// A certificate with a key of its own.
    fn pem(&self, name: &str) -> Result<String, String> {
        let make = || {
            let key = KeyPair::generate()?;
            let certificate =
                CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &self.authority)?;
            Ok(certificate.pem() + &key.serialize_pem())
        };
        make().map_err(|error: rcgen::Error| error.to_string())
    }

    /// Starts a program with a folder. Returns it, and the time until it served.
    fn start(&self, bench: &Bench, kind: Kind, folder: &Path) -> Result<(Running, Duration), String> {
        let (port, secure) = (free_port()?, free_port()?);
        let slices = format!("    warn-blocked-traffic-after {}ms\n", SLICE.as_millis());
        let text = format!(
            "global\n    nbthread 2\n    maxconn 2000\n{}    stats socket {} level admin\n{DEFAULTS}frontend \
             outside\n    bind 127.0.0.1:{port}\n    bind 127.0.0.1:{secure} ssl crt {}\n    http-request \
             return status 200\n",
            if kind.is_ours() { &*slices } else { "" },
            bench.socket().display(),
            folder.display(),
        );
        let begun = Instant::now();
        let running = bench.serve(kind, port, &text, &[])?;
        Ok((running, begun.elapsed()))
    }

    /// The time in which a certificate is chosen by name, in microseconds: the median of rounds.
    fn choice(&self) -> Result<f64, String> {
        let settings = ServerSettings::new(vec![Source::Path(self.all.clone())]);
        let context =
            Store::default().listener(&settings, &mut Vec::new()).map_err(|error| error.to_string())?;
        let files = fs::read_dir(&self.all).map_err(|error| error.to_string())?.count();
        let client =
            ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let (client, mut hellos) = (Arc::new(client), Vec::new());
        for number in 0..HELLOS {
            // A prime apart, so that no two are neighbours.
            let name = format!("name-{}.example", number * 7_919 % files);
            let name = name.try_into().map_err(|_| "a name cannot be asked for")?;
            let mut session =
                ClientConnection::new(client.clone(), name).map_err(|error| error.to_string())?;
            let mut hello = Vec::new();
            session.write_tls(&mut hello).map_err(|error| error.to_string())?;
            hellos.push(hello);
        }
        let reader = Reader::new();
        let mut all = Vec::new();
        for _ in 0..9 {
            all.push(time_choices(&context, &hellos, 20, &reader).map_err(|error| error.to_string())?);
        }
        Ok(super::median(all).as_secs_f64() * 1e6 / (20 * HELLOS) as f64)
    }
}
