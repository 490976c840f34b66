//! A server over blocking sockets that answers each request with a few bytes. It lets tools test HTTP/2, and
//! shows how the life of a stream is coded.
//!
//! ```text
//! cargo run -p manylane-h2 --example server 127.0.0.1:8080      # no address: a port of the system's choice
//! h2spec --port 8080 --strict
//! ```

use manylane_buf::{Chain, Cluster};
use manylane_h2::{Config, Connection, Event, SendError, StreamId};
use manylane_http::{Head, Known, Method, Version};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

/// Body of every response, behind the data of the request.
const BODY: &[u8] = b"hello from manylane-h2\n";

/// State of a stream that is being answered.
#[derive(Default)]
struct Answer {
    /// Data that is still to be sent.
    rest: Chain,
    /// True if trailers follow the data.
    trailers: bool,
    begun: bool,
    /// True if the request was a HEAD.
    bare: bool,
}

/// Serves each connection of `listener` in a thread of its own.
pub(crate) fn serve(listener: &TcpListener, config: Config) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            if let Err(error) = connection(stream, config) {
                eprintln!("{error}");
            }
        });
    }
}

fn connection(mut socket: TcpStream, config: Config) -> Result<(), Failure> {
    socket.set_nodelay(true)?;
    let began = Instant::now();
    let mut connection = Connection::server(config, Duration::ZERO)?;
    let mut answers: HashMap<StreamId, Answer> = HashMap::new();
    let (mut input, mut output) = (Chain::new(), Chain::new());
    let mut bytes = [0; 16_384];
    loop {
        let now = began.elapsed();
        let handled = loop {
            match connection.handle_input(now, &mut input) {
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
                Ok(true) => {
                    while let Some(event) = connection.poll_event() {
                        handle(&mut connection, &mut answers, now, event)?;
                    }
                }
            }
        };
        while let Some(stream) = connection.next_writable() {
            go_on(&mut connection, &mut answers, now, stream)?;
        }
        connection.poll_output(&mut output)?;
        let written = !output.is_empty();
        for segment in output.segments() {
            socket.write_all(segment)?;
        }
        output.clear();
        if written && handled.is_ok() {
            continue; // the output has room again
        }
        if handled.is_err() || connection.is_drained() {
            // Read what the peer still sends: closing with unread bytes would reset the connection, and the
            // peer might lose the last frames.
            socket.shutdown(Shutdown::Write)?;
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            while socket.read(&mut bytes).is_ok_and(|n| n > 0) {}
            return Ok(handled?);
        }
        match socket.read(&mut bytes)? {
            0 => return Ok(()),
            n => input.push_back(Cluster::with(&bytes[..n])?.into_segment())?,
        }
    }
}

fn handle(
    connection: &mut Connection,
    answers: &mut HashMap<StreamId, Answer>,
    now: Duration,
    event: Event,
) -> Result<(), Failure> {
    let (stream, end) = match event {
        Event::Request { stream, request, end } => {
            let trailers = request.head.has("x-want-trailers");
            let bare = request.head.method_kind() == Method::Head;

            answers.insert(stream, Answer { trailers, bare, ..Answer::default() });
            (stream, end)
        }
        Event::Data { stream, mut data, end } => {
            connection.consume(stream, data.len())?;
            if let Some(answer) = answers.get_mut(&stream) {
                answer.rest.append_compact(&mut data)?;
            }
            (stream, end)
        }
        Event::Trailers { stream, .. } => (stream, true),
        Event::TooLarge { stream, .. } => {
            connection.send_response(stream, &Head::response(Version::HTTP_2, 431, None)?, true)?;
            return Ok(());
        }
        Event::Reset { stream, .. } => {
            answers.remove(&stream);
            return Ok(());
        }
        _ => return Ok(()),
    };
    let Some(answer) = answers.get_mut(&stream) else { return Ok(()) };
    if end {
        let mut head = Head::response(Version::HTTP_2, 200, None)?;
        answer.rest.append(BODY)?;
        head.add_field(Known::CONTENT_LENGTH, answer.rest.len().to_string().as_bytes())?;
        let bare = answer.bare;
        connection.send_response(stream, &head, bare)?;
        answer.begun = true;
        if bare {
            answers.remove(&stream);
        }
    }
    go_on(connection, answers, now, stream)
}

fn go_on(
    connection: &mut Connection,
    answers: &mut HashMap<StreamId, Answer>,
    now: Duration,
    stream: StreamId,
) -> Result<(), Failure> {
    let Some(answer) = answers.get_mut(&stream).filter(|answer| answer.begun) else { return Ok(()) };
    match connection.send_data(now, stream, &mut answer.rest, !answer.trailers) {
        Ok(sent) if sent.all => {
            if answer.trailers {
                let mut trailers = Head::trailers()?;
                trailers.add_field("x-trailer", b"the end")?;
                connection.send_trailers(stream, &trailers)?;
            }
            answers.remove(&stream);
        }
        Ok(_) => {}
        Err(SendError::Closed) => drop(answers.remove(&stream)),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    serve(&listener, Config::default());
    Ok(())
}
