//! On the real machine.

use manylane_buf::Chain;
use manylane_io::{Driver, Io, Stream, tcp_listener};
use manylane_sched::{Class, Config, Lane, TaskKind};
use std::error::Error;
use std::net::SocketAddr;

static SESSION: TaskKind = TaskKind::new("session");

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".into());
    let address = address.parse().map_err(|_| {
        format!("{address:?} is no address with a port: write it like 127.0.0.1:7000 or [::1]:7000")
    })?;
    let mut lane = Lane::new(Config::new())?;
    let mut driver = Driver::from_environment(lane.here())?;
    let io = driver.io();
    let socket = tcp_listener(&address, 1024, false)?;
    let bound: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    let listener = io.listener(socket)?;
    println!("echoing on {bound}, by {}", driver.kind());
    lane.block_on(&mut driver, async move {
        loop {
            let stream = listener.accept().await?.into_stream(&io);
            // Without memory for a task the connection is dropped: the client sees it closed.
            let _ = io.here().spawn(&SESSION, Class::Normal, echo(io.clone(), stream));
        }
    })?
}

/// Sends what it receives, by reference, until either end stops.
async fn echo(_io: Io, stream: Stream) {
    while let Ok(Some(bytes)) = stream.recv().await {
        if stream.send(&mut Chain::from(bytes)).await.is_err() {
            return;
        }
    }
}
