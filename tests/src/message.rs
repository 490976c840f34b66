//! HTTP/1 messages for tests: parsed leniently, stored exactly.

use std::io::{self, BufRead, Read};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The start line, without its line end.
    pub start: String,
    /// Field lines in order, without their line ends.
    pub fields: Vec<String>,
    /// The body, chunks joined; trailers are appended to the fields after a line `--`.
    pub body: Vec<u8>,
    /// True if the body ended with the connection.
    pub last: bool,
}

/// Kind of a message, as far as framing depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request.
    Request,
    /// A response to a request with this method.
    Answer {
        /// HEAD: the response has no body.
        to_head: bool,
    },
}

/// Size limit of a message.
const LONGEST: u64 = 64 << 20;

impl Message {
    /// Reads a message; `None` at the end of the connection.
    ///
    /// # Errors
    /// Those of the connection, and an end in the middle.
    pub fn read(from: &mut impl BufRead, kind: Kind) -> io::Result<Option<Self>> {
        let Some(mut message) = Self::read_head(from)? else { return Ok(None) };
        message.read_body(from, kind)?;
        Ok(Some(message))
    }

    /// Reads a head, or a PROXY protocol line, which has no fields.
    ///
    /// # Errors
    /// As [`Message::read`].
    pub fn read_head(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(start) = line(from)? else { return Ok(None) };
        let mut fields = Vec::new();
        if !start.starts_with("PROXY ") {
            fields_until_empty(from, &mut fields)?;
        }
        Ok(Some(Self { start, fields, body: Vec::new(), last: false }))
    }

    /// Reads what follows the head.
    ///
    /// # Errors
    /// As [`Message::read`].
    pub fn read_body(&mut self, from: &mut impl BufRead, kind: Kind) -> io::Result<()> {
        let status = self.status();
        let bodiless = match kind {
            Kind::Request => false,
            Kind::Answer { to_head } => to_head || status / 100 == 1 || status == 204 || status == 304,
        };
        if bodiless {
            return Ok(());
        }
        let coded = |value: &str| value.to_ascii_lowercase().ends_with("chunked");
        let chunked = self.values("transfer-encoding").any(coded);
        let length = self.values("content-length").next().and_then(|value| value.parse::<u64>().ok());
        if chunked {
            loop {
                let size = line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
                let digits = size.split(';').next().unwrap_or("").trim();
                let size = u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData)?;
                if size == 0 {
                    break;
                }
                exactly(from, size, &mut self.body)?;
                line(from)?;
            }
            let mut trailers = Vec::new();
            fields_until_empty(from, &mut trailers)?;
            if !trailers.is_empty() {
                self.fields.push("--".into());
                self.fields.append(&mut trailers);
            }
        } else if let Some(length) = length {
            exactly(from, length, &mut self.body)?;
        } else if kind != Kind::Request {
            from.take(LONGEST).read_to_end(&mut self.body)?;
            self.last = true;
        }
        Ok(())
    }

    /// Status of a response; 0 for a request.
    pub fn status(&self) -> u16 {
        if !self.start.starts_with("HTTP/") {
            return 0;
        }
        self.start.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// Values of the fields with this name.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter_map(move |field| {
            let (found, value) = field.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// Formats the message, one line each.
    pub fn show(&self) -> String {
        let mut text = format!("{}\n", self.start);
        for field in &self.fields {
            text += &format!("{field}\n");
        }
        text + &format!("\n{}\n", self.body.escape_ascii())
    }
}

fn fields_until_empty(from: &mut impl BufRead, fields: &mut Vec<String>) -> io::Result<()> {
    loop {
        let field = line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if field.is_empty() {
            return Ok(());
        }
        fields.push(field);
    }
}

/// Reads a line without its end; escapes bytes outside ASCII. `None` at the end.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    from.take(LONGEST).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => error.into_bytes().escape_ascii().to_string(),
    }))
}

fn exactly(from: &mut impl BufRead, bytes: u64, into: &mut Vec<u8>) -> io::Result<()> {
    let read = from.take(bytes).read_to_end(into)? as u64;
    if read < bytes { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed_by_chunks_lengths_and_ends() {
        let mut bytes: &[u8] =
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n\
            GET /b HTTP/1.1\r\nContent-Length: 2\r\n\r\nxy";
        let first = Message::read(&mut bytes, Kind::Request).unwrap().unwrap();
        assert_eq!((first.body.as_slice(), first.fields.last().unwrap().as_str()), (&b"abc"[..], "T: 1"));
        let second = Message::read(&mut bytes, Kind::Request).unwrap().unwrap();
        assert_eq!((second.start.as_str(), second.body.as_slice()), ("GET /b HTTP/1.1", &b"xy"[..]));
        assert_eq!(Message::read(&mut bytes, Kind::Request).unwrap(), None);
        let mut bytes: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nall";
        let answer = Message::read(&mut bytes, Kind::Answer { to_head: false }).unwrap().unwrap();
        assert!(answer.last && answer.body == b"all" && answer.status() == 200);
    }
}
