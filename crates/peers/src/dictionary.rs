//! Names and addresses of servers (`server_key`) in updates. A sender numbers the texts of a connection, and
//! sends each one once per number.

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
    /// Returns the sender's number of a text, and the text unless the peer has it under that number. `None`
    /// if there is no such text.
    pub(crate) fn send(&mut self, key: u64) -> Option<(u64, Option<&'static str>)> {
        let text = server_key_text(key)?;
        let index = (key as usize - 1) % SIZE;
        let is_known = std::mem::replace(&mut self.0[index], key as u32) == key as u32;
        Some((index as u64 + 1, Some(text).filter(|_| !is_known)))
    }

    /// Keeps a text under a sender's number, if there is one, and returns what is kept there. `None` if a
    /// sender has no such number.
    pub(crate) fn receive(&mut self, number: u64, text: Option<&[u8]>) -> Option<u64> {
        let own = self.0.get_mut(usize::try_from(number).ok()?.checked_sub(1)?)?;
        if let Some(text) = text {
            let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_TEXT);
            *own = text.and_then(peer_server_key).unwrap_or_default();
        }
        Some((*own).into())
    }
}
