//! On the real machine.

use manylane_buf::Chain;
use manylane_io::{Driver, Error, Io, Shutdown, Stream, tcp_listener, tcp_socket};
use manylane_sched::{Class, Config, Lane, TaskKind};
use std::io::Read;
use std::net::SocketAddr;
use std::rc::Rc;

static SESSION: TaskKind = TaskKind::new("session");
static BACK: TaskKind = TaskKind::new("way back");

fn address(name: &str) -> Result<SocketAddr, String> {
    name.parse().map_err(|_| {
        format!("{name:?} is no address with a port: write it like 127.0.0.1:7000 or [::1]:7000")
    })
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (listen, target, spliced) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [listen, target] => (address(listen)?, address(target)?, false),
        [listen, target, "splice"] => (address(listen)?, address(target)?, true),
        _ => {
            return Err(
                "usage: forward LISTEN TARGET [splice], e.g. forward 127.0.0.1:7001 127.0.0.1:7000".into()
            );
        }
    };
    let mut lane = Lane::new(Config::new())?;
    let mut driver = Driver::from_environment(lane.here())?;
    let io = driver.io();
    let socket = tcp_listener(&listen, 1024, false)?;
    let bound: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    let listener = io.listener(socket)?;
    println!(
        "forwarding {bound} to {target}, by {}{}",
        driver.kind(),
        if spliced { ", spliced" } else { "" }
    );
    let lanes = lane.remote();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = lanes.stop();
    });
    let outcome = lane.block_on(&mut driver, async move {
        loop {
            let client = listener.accept().await?.into_stream(&io);
            let session = session(io.clone(), client, target, spliced);
            // Without memory for a task the connection is dropped: the client sees it closed.
            let _ = io.here().spawn(&SESSION, Class::Normal, session);
        }
        #[allow(unreachable_code)] // names the type
        Ok::<(), Error>(())
    });
    match outcome {
        Ok(done) => done?,
        Err(stopped) if stopped.kind() == std::io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error.into()),
    }
    for report in manylane_io::report() {
        println!(
            "calls {} waits {} reads {} writes {}",
            report.calls(),
            report.waits,
            report.reads,
            report.writes
        );
    }
    Ok(())
}

/// Forwards both directions of a connection, each in a task.
async fn session(io: Io, client: Stream, target: SocketAddr, spliced: bool) {
    let connected = async {
        let socket = tcp_socket(&target)?;
        rustix::net::sockopt::set_tcp_nodelay(&client, true).ok();
        io.connect(socket, target).await
    };
    let server = match connected.await {
        Ok(server) => Rc::new(server),
        Err(error) => {
            eprintln!("{}", error.at(target));
            return;
        }
    };
    let client = Rc::new(client);
    let back = forward(io.clone(), server.clone(), client.clone(), spliced);
    if io.here().spawn(&BACK, Class::Normal, back).is_ok() {
        forward(io, client, server, spliced).await;
    }
}

/// Forwards one direction. Passes its end on; a failure ends both.
async fn forward(io: Io, from: Rc<Stream>, to: Rc<Stream>, spliced: bool) {
    let moved = if spliced { splice(&io, &from, &to).await } else { by_reference(&from, &to).await };
    let end = if moved.is_ok() { Shutdown::Write } else { Shutdown::Both };
    let _ = to.shutdown(end).await; // the peer may have gone
    if moved.is_err() {
        let _ = from.shutdown(Shutdown::Both).await;
    }
}

async fn by_reference(from: &Stream, to: &Stream) -> Result<(), Error> {
    while let Some(bytes) = from.recv().await? {
        to.send(&mut Chain::from(bytes)).await?;
    }
    Ok(())
}

async fn splice(io: &Io, from: &Stream, to: &Stream) -> Result<(), Error> {
    let mut splicer = io.splicer();
    while splicer.step(from, to, usize::MAX).await? > 0 {}
    Ok(())
}
