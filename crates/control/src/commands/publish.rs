//! `publish backend`, `unpublish backend`.

use super::Call;
use manylane_sync::atomic::Ordering;

/// Lets frontends choose a backend again, or pass it over. Streams that are in the backend continue.
pub(super) fn publish(call: &mut Call<'_, '_>, on: bool) {
    let name = call.word(0);
    match call.generation.backends.iter().find(|backend| *backend.name == *name) {
        Some(backend) => {
            backend.published.store(on, Ordering::Relaxed);
            call.info(if on { "Backend published." } else { "Backend unpublished." });
        }
        None if call.generation.has_disabled(name) => call.error("No effect on a disabled backend."),
        None => call.error("No such backend."),
    }
}
