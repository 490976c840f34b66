//! Names and addresses of servers (`server_key`) in updates. A sender numbers the texts of a connection, and
//! sends each one once per number.

use crate::wire::{MessageError, Reader, put_number};
use manylane_stick::{peer_server_key, server_key_text};

/// Numbers of a sender, as in HAProxy: 1 to this.
const SIZE: usize = 128;
/// Longest text that is kept, in bytes: names of servers are shorter than those of hosts.
const MAX_TEXT: usize = 256;

/// The texts of one direction of a connection, as numbers of [`manylane_stick`]; 0 for none.
#[derive(Debug)]
pub struct Dictionary(Box<[u32; SIZE]>);

impl Default for Dictionary {
    fn default() -> Self {
        Self(Box::new([0; SIZE]))
    }
}

impl Dictionary {
    /// Appends a text: a length, the sender's number and, unless the peer has it under that number, the text.
    pub(crate) fn put(&mut self, key: u64, out: &mut Vec<u8>) {
        let Some(text) = server_key_text(key) else { return put_number(0, out) };
        let index = (key as usize - 1) % SIZE;
        let mut body = Vec::new();
        put_number(index as u64 + 1, &mut body);
        if std::mem::replace(&mut self.0[index], key as u32) != key as u32 {
            put_number(text.len() as u64, &mut body);
            body.extend_from_slice(text.as_bytes());
        }
        put_number(body.len() as u64, out);
        out.extend_from_slice(&body);
    }

    /// Reads a text. `None` if there is none, or none that is kept.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>) -> Result<Option<u64>, MessageError> {
        let mut reader = Reader(reader.counted()?);
        if reader.0.is_empty() {
            return Ok(None);
        }
        let number = usize::try_from(reader.number()?).ok().and_then(|number| number.checked_sub(1));
        let own = number.and_then(|index| self.0.get_mut(index)).ok_or(MessageError::Malformed)?;
        if !reader.0.is_empty() {
            let text = std::str::from_utf8(reader.counted()?).ok().filter(|text| text.len() <= MAX_TEXT);
            *own = text.and_then(peer_server_key).unwrap_or_default();
        }
        Ok(Some(u64::from(*own)).filter(|key| *key > 0))
    }
}
