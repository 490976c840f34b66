//! Cases over HTTP/2: the same configuration with `proto h2` on client listeners, and the same requests on
//! streams.
//!
//! A case is skipped if its requests cannot be sent so: [`plan`] says why.

use crate::TIMEOUT;
use crate::case::{Case, Step};
use crate::client::Got;
use crate::message::{Kind, Message};
use manylane_h2::hpack::{DEFAULT_TABLE, Decoder};
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Initial window, and so the limit of a body that is sent at once (RFC 9113, 6.9.2).
const WINDOW: usize = 65_535;
/// Initial limit of a frame (RFC 9113, 4.2).
const FRAME: usize = 16_384;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// The flag ACK has the same value.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A request of a stream.
#[derive(Clone, Debug)]
pub struct Request {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
}

/// Returns the requests of a case, one for each sending step, and the configuration.
///
/// # Errors
/// The reason why the case cannot run over HTTP/2.
pub fn plan(case: &Case) -> Result<(String, VecDeque<Request>), &'static str> {
    let mut requests = VecDeque::new();
    for step in &case.steps {
        if let Step::Send { bytes, answers, to_head: _ } = step {
            requests.push_back(request(bytes, *answers)?);
        }
    }
    if requests.is_empty() {
        return Err("it sends no request");
    }
    Ok((config(&case.config)?, requests))
}

/// Adds `proto h2` to the listeners of clients.
fn config(text: &str) -> Result<String, &'static str> {
    let (mut usual, mut mode, mut listens) = ("tcp", "tcp", false);
    let mut in_defaults = false;
    let mut out = String::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let front = words.first() == Some(&"bind") && line.contains("${FRONT");
        match *words.as_slice() {
            ["defaults", ..] => (usual, in_defaults) = ("tcp", true),
            ["global" | "frontend" | "listen" | "backend", ..] => {
                if listens && mode == "tcp" {
                    return Err("a frontend is not in HTTP mode");
                }
                (mode, listens, in_defaults) = (usual, false, false);
            }
            ["mode", which] if in_defaults => usual = which,
            ["mode", which] => mode = which,
            _ => {}
        }
        out += line;
        if front {
            listens = true;
            if words.contains(&"proto") {
                return Err("it says its protocol itself");
            }
            out += " proto h2";
        }
        out.push('\n');
    }
    if listens && mode == "tcp" { Err("a frontend is not in HTTP mode") } else { Ok(out) }
}

/// Parses a request.
fn request(bytes: &[u8], answers: usize) -> Result<Request, &'static str> {
    let mut rest = bytes;
    if answers == 0 {
        return Err("it sends without waiting for the answer");
    }
    let lines = bytes.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty() && *line != b"\r");
    if !lines.clone().all(|line| line.ends_with(b"\r") && line.is_ascii()) {
        return Err("a request is no strict HTTP/1.1");
    }
    let Ok(Some(message)) = Message::read(&mut rest, Kind::Request) else {
        return Err("a request is not whole");
    };
    let [method, target, "HTTP/1.1"] = *message.start.split(' ').collect::<Vec<_>>().as_slice() else {
        return Err("a request is no strict HTTP/1.1");
    };
    if !rest.is_empty() {
        return Err("it sends several requests at once");
    }
    if !target.starts_with('/') && (method, target) != ("OPTIONS", "*") {
        return Err("a target is not a path");
    }
    if !target.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#') {
        return Err("a request is no strict HTTP/1.1");
    }
    if message.body.len() > WINDOW {
        return Err("a body is larger than a window");
    }
    let mut hosts = message.values("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err("a request has not one Host");
    };
    let mut request = Request {
        fields: [(":method", method), (":scheme", "http"), (":authority", host), (":path", target)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        body: message.body.clone(),
        trailers: Vec::new(),
    };
    let mut into = &mut request.fields;
    for field in &message.fields {
        if field == "--" {
            into = &mut request.trailers;
            continue;
        }
        let (name, value) = field.split_once(':').ok_or("a request is no strict HTTP/1.1")?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_text = |byte: u8| byte == b'\t' || (b' '..0x7f).contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) || !value.bytes().all(is_text) {
            return Err("a request is no strict HTTP/1.1");
        }
        let name = name.to_ascii_lowercase();
        match &*name {
            "host" => {}
            "transfer-encoding" if value.trim() == "chunked" => {}
            "content-length" if value.trim().parse() != Ok(message.body.len()) => {
                return Err("a request is no strict HTTP/1.1");
            }
            // Connection-specific fields (RFC 9113, 8.2.2).
            "connection" | "upgrade" | "keep-alive" | "proxy-connection" | "transfer-encoding" => {
                return Err("a request has fields of HTTP/1's connections");
            }
            _ => into.push((name, value.trim().to_owned())),
        }
    }
    Ok(request)
}

/// A connection to the program under test.
#[derive(Debug)]
pub struct Client {
    writer: TcpStream,
    reader: BufReader<TcpStream>,
    decoder: Decoder,
    /// Number of the last stream.
    stream: u32,
    /// The response so far, and whether it is complete.
    answer: Option<Message>,
    ended: bool,
}

impl Client {
    /// Connects; `None` if nothing listens.
    pub fn connect(to: SocketAddr) -> Option<Self> {
        let writer = TcpStream::connect(to).ok()?;
        writer.set_read_timeout(Some(TIMEOUT)).unwrap();
        writer.set_write_timeout(Some(TIMEOUT)).unwrap();
        writer.set_nodelay(true).unwrap();
        let reader = BufReader::new(writer.try_clone().unwrap());
        let decoder = Decoder::new(DEFAULT_TABLE);
        let mut client = Self { writer, reader, decoder, stream: u32::MAX, answer: None, ended: true };
        // SETTINGS_INITIAL_WINDOW_SIZE and the connection's window: all responses fit.
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff], &mut bytes);
        frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes(), &mut bytes);
        client.write(&bytes);
        Some(client)
    }

    fn write(&mut self, bytes: &[u8]) {
        let _ = self.writer.write_all(bytes); // a closed connection shows when reading
    }

    /// Sends a request on a new stream.
    pub fn send(&mut self, request: &Request) {
        self.stream = self.stream.wrapping_add(2);
        (self.answer, self.ended) = (None, false);
        let mut bytes = Vec::new();
        let (body, trailers) = (&request.body, &request.trailers);
        let end = |is_last: bool| if is_last { END_STREAM } else { 0 };
        let flags = END_HEADERS | end(body.is_empty() && trailers.is_empty());
        frame(HEADERS, flags, self.stream, &block(&request.fields), &mut bytes);
        let mut pieces = body.chunks(FRAME).peekable();
        while let Some(piece) = pieces.next() {
            let flags = end(pieces.peek().is_none() && trailers.is_empty());
            frame(DATA, flags, self.stream, piece, &mut bytes);
        }
        if !trailers.is_empty() {
            frame(HEADERS, END_HEADERS | END_STREAM, self.stream, &block(trailers), &mut bytes);
        }
        self.write(&bytes);
    }

    /// Reads one response to the last request; 1xx responses count separately.
    pub fn answer(&mut self) -> Got {
        match self.read() {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
            Err(_) if self.answer.is_none() => Got::End,
            Err(_) => Got::Broken,
        }
    }

    fn read(&mut self) -> io::Result<Got> {
        while !self.ended {
            let (kind, flags, stream, payload) = self.frame()?;
            let own = stream == self.stream;
            match kind {
                HEADERS => {
                    let mut block =
                        contents(flags, &payload)?[5 * usize::from(flags & PRIORITY != 0)..].to_vec();
                    let mut last = flags & END_HEADERS != 0;
                    while !last {
                        let (CONTINUATION, flags, _, more) = self.frame()? else {
                            return Err(io::ErrorKind::InvalidData.into());
                        };
                        block.extend_from_slice(&more);
                        last = flags & END_HEADERS != 0;
                    }
                    let fields = self.fields(&block)?;
                    if !own {
                        continue;
                    }
                    self.ended = flags & END_STREAM != 0;
                    match &mut self.answer {
                        Some(answer) => {
                            answer.fields.push("--".into());
                            answer.fields.extend(fields);
                        }
                        None => {
                            let (status, fields) = fields.split_first().ok_or(io::ErrorKind::InvalidData)?;
                            let status =
                                status.strip_prefix(":status: ").ok_or(io::ErrorKind::InvalidData)?;
                            let message = Message {
                                start: format!("HTTP/2 {status}"),
                                fields: fields.to_vec(),
                                body: Vec::new(),
                                last: false,
                            };
                            if message.status() / 100 == 1 {
                                return Ok(Got::Answer(message));
                            }
                            self.answer = Some(message);
                        }
                    }
                }
                DATA if own => {
                    let answer = self.answer.as_mut().ok_or(io::ErrorKind::InvalidData)?;
                    answer.body.extend_from_slice(contents(flags, &payload)?);
                    self.ended = flags & END_STREAM != 0;
                }
                RST_STREAM if own => {
                    self.ended = true;
                    let code = payload.first_chunk().map(|code| u32::from_be_bytes(*code));
                    return Ok(Got::Reset(code.ok_or(io::ErrorKind::InvalidData)?));
                }
                // To the client, a reset and a GOAWAY mean the same when the connection ends.
                GOAWAY if payload.get(4..8).is_some_and(|code| code != [0; 4]) => {
                    self.ended = true;
                    let code = payload[4..].first_chunk().map(|code| u32::from_be_bytes(*code));
                    return Ok(Got::Reset(code.ok_or(io::ErrorKind::InvalidData)?));
                }
                SETTINGS | PING if flags & END_STREAM == 0 => {
                    let mut bytes = Vec::new();
                    frame(kind, END_STREAM, 0, if kind == PING { &payload } else { &[] }, &mut bytes);
                    self.write(&bytes);
                }
                _ => {}
            }
        }
        Ok(self.answer.take().map_or(Got::End, Got::Answer))
    }

    fn frame(&mut self) -> io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.reader.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.reader.read_exact(&mut payload)?;
        Ok((kind, flags, u32::from_be_bytes(stream), payload))
    }

    fn fields(&mut self, block: &[u8]) -> io::Result<Vec<String>> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.escape_ascii().to_string(),
        };
        let decoded = self.decoder.decode(block, &mut Vec::new(), |line| {
            fields.push(format!("{}: {}", text(line.name), text(line.value)));
        });
        decoded.map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(fields)
    }

    /// Closes its sending side and waits for the end.
    pub fn finish(mut self) {
        let _ = self.writer.shutdown(std::net::Shutdown::Write); // it may be closed already
        while let Ok(bytes @ 1..) = self.reader.fill_buf().map(<[u8]>::len) {
            self.reader.consume(bytes);
        }
    }
}

/// Returns a payload without padding.
fn contents(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(io::ErrorKind::InvalidData)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(io::ErrorKind::InvalidData)?;
    Ok(&rest[..length])
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Encodes a header block without changing the tables (RFC 7541, 6.2.2).
fn block(fields: &[(String, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // An integer with a prefix of 7 bits.
            let mut length = text.len();
            if length < 127 {
                block.push(length as u8);
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push((length % 128) as u8 | 128);
                    length /= 128;
                }
                block.push(length as u8);
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
