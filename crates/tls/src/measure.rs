//! For benchmarks (feature `measure`): times what only handshakes do.

use crate::error::Error;
use crate::hello::accepted;
use crate::server::ServerContext;
use manylane_buf::Chain;
use manylane_sync::qsbr::Reader;
use std::time::{Duration, Instant};

/// Chooses the certificate for each of these hellos, `rounds` times. Returns the time that it took.
///
/// # Errors
/// The bytes of one are no hello.
pub fn time_choices(
    context: &ServerContext,
    hellos: &[Vec<u8>],
    rounds: u32,
    reader: &Reader,
) -> Result<Duration, Error> {
    let mut all = Vec::new();
    for bytes in hellos {
        let mut received = Chain::new();
        received.append(bytes)?;
        let hello = accepted(&received).ok_or(rustls::Error::HandshakeNotComplete)?;
        all.push(hello);
    }
    let configs = context.0.load(reader);
    let begun = Instant::now();
    for _ in 0..rounds {
        for hello in &all {
            std::hint::black_box(configs.usual.cert_resolver.resolve(hello.client_hello()));
        }
    }
    Ok(begun.elapsed())
}
