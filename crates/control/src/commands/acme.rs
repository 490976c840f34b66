//! Commands about certificates that ACME renews.

use super::Call;
use super::certificates::aside;
use super::info::span;
use crate::reply::ReplyError;
use manylane_expr::Civil;
use manylane_plan::generation::{AcmeCertificate, certificate_info};
use std::fmt::Write;

/// Finds the certificate that the first word names. If there is none, replies with an error and returns
/// `None`.
fn named<'c>(call: &mut Call<'c, '_>, expected: &str) -> Option<&'c AcmeCertificate> {
    let generation = call.generation;
    let name = call.word(0);
    let found = generation.acme.certificates.iter().find(|own| *own.name == *name);
    if found.is_none() {
        call.error(&match name {
            "" => format!("{expected} expects a certificate"),
            _ => format!("No ACME configuration defined for file '{name}'."),
        });
    }
    found
}

/// `acme renew <file>`
pub(super) fn renew(call: &mut Call<'_, '_>) {
    let Some(own) = named(call, "'acme renew'") else { return };
    if !manylane_acme::ask(&own.name) {
        let name = &own.name;
        call.error(&format!("Task already exists for '{name}' certificate.\nCan't start the ACME client."));
    }
}

/// `acme challenge_ready <file> domain <name>`
pub(super) fn challenge_ready(call: &mut Call<'_, '_>) {
    let [certificate, word, name, ..] = call.words else {
        return call.error("Not enough parameters: \"acme challenge_ready <certfile> domain <domain>\"");
    };
    if word != "domain" {
        return call.error(&format!("'acme challenge_ready' expects 'domain <name>', found '{word}'"));
    }
    match manylane_acme::set_ready(certificate, name) {
        Some((true, left)) => {
            call.info(&format!("1 '{name}' challenge(s) ready! Remaining challenges to deploy: {left}"));
        }
        Some((false, _)) => call.error(&format!(
            "ACME challenge for crt \"{certificate}\" and dns \"{name}\" was already READY !"
        )),
        None => call
            .error(&format!("Couldn't find the ACME task using crt \"{certificate}\" and dns \"{name}\" !")),
    }
}

/// Formats seconds since 1970: `2026-12-29T00:50:57Z`.
fn date(seconds: u64) -> String {
    let time = Civil::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year, time.month, time.day, time.hour, time.minute, time.second
    )
}

/// The state, and the columns of when the certificate is renewed: what runs was due by now.
fn schedule(running: bool, due: Option<u64>, now: u64) -> (&'static str, String) {
    let (word, due) = match due {
        _ if running => ("Running", Some(now)),
        None => ("Stopped", None),
        Some(at) => ("Scheduled", Some(at.max(now))),
    };
    (word, due.map_or_else(|| "-\t-".to_owned(), |at| format!("{}\t{}", date(at), span(at - now))))
}

/// `acme status`
pub(super) async fn status(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let (all, scheduled) = (call.generation.acme.certificates.clone(), call.generation.acme.scheduled);
    let read = move |store: &manylane_tls::Store| {
        let lines = all.into_iter().filter_map(|own| {
            let info = certificate_info(store, &own.name)?;
            let due = manylane_acme::due(&own.name, &info, &own.names, scheduled);
            Some((own, info.not_after, due))
        });
        lines.collect::<Vec<_>>()
    };
    let Some(lines) = aside(call, read).await else { return Ok(()) };
    call.reply.put(
        "# certificate\tsection\tstate\texpiration date (UTC)\texpires in\tscheduled date (UTC)\tscheduled \
         in\n",
    );
    let now = manylane_acme::now();
    for (own, not_after, due) in lines {
        let state = manylane_acme::state(&own.name);
        let (word, scheduled) = schedule(state.running, due, now);
        let _ = writeln!(
            call.reply,
            "{}\t{}\t{word}\t{}\t{}\t{scheduled}",
            own.name,
            own.section.name,
            date(not_after),
            span(not_after.saturating_sub(now)),
        );
        if let Some(reason) = state.reason {
            let _ = writeln!(call.reply, "# {}: {} failed, the last: {reason}", own.name, state.failures);
        }
        call.reply.breathe().await?;
    }
    Ok(())
}

/// `dump ssl cert <file>`
pub(super) async fn dump(call: &mut Call<'_, '_>) -> Result<(), ReplyError> {
    let name = call.word(0);
    let own = call.generation.acme.certificates.iter().find(|own| *own.name == *name);
    match own.and_then(|own| manylane_acme::obtained(&own.name, &own.of_file, 0)) {
        Some((_, pem)) => call.reply.secret(&pem).await?,
        None => call.error(&format!(
            "ACME has obtained no certificate '{name}': others are in their files, and their keys do not \
             leave the process."
        )),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::schedule;

    #[test]
    fn what_runs_was_due_by_now() {
        let now = 1_798_505_457;
        let at = |text: &str| text.to_owned();
        let due = at("2026-12-29T00:50:57Z\t0d 0h00m00s");
        assert_eq!(schedule(true, None, now), ("Running", due.clone()));
        assert_eq!(schedule(true, Some(now + 60), now), ("Running", due.clone()));
        assert_eq!(schedule(false, Some(now - 60), now), ("Scheduled", due));
        let later = at("2026-12-29T00:51:57Z\t0d 0h01m00s");
        assert_eq!(schedule(false, Some(now + 60), now), ("Scheduled", later));
        assert_eq!(schedule(false, None, now), ("Stopped", at("-\t-")));
    }
}
