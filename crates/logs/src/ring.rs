//! A ring: the last lines of all lanes, kept in memory for whoever asks.

use crate::outbox::Batch;
use manylane_sync::{LockClass, Mutex};
use std::collections::VecDeque;

static RING: LockClass = LockClass::new("ring", 72);

/// The last lines that were logged to it, up to a size. Lanes bring theirs a batch at a time.
#[derive(Debug)]
pub struct Ring {
    name: Box<str>,
    description: Box<str>,
    size: usize,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    /// One behind the other, each with its line end.
    bytes: VecDeque<u8>,
    /// How long each is.
    lengths: VecDeque<usize>,
}

impl Lines {
    fn push(&mut self, line: &[u8], size: usize) -> bool {
        if line.len() > size {
            return false;
        }
        while self.bytes.len() + line.len() > size {
            let oldest = self.lengths.pop_front().expect("bytes belong to lines");
            self.bytes.drain(..oldest);
        }
        self.bytes.extend(line);
        self.lengths.push_back(line.len());
        true
    }
}

impl Ring {
    /// An empty one of `size` bytes at most.
    pub fn new(name: &str, description: &str, size: usize) -> Self {
        let lines = Mutex::new(&RING, Lines::default());
        Self { name: name.into(), description: description.into(), size, lines }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for, as the file says.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Puts a batch behind what is there; the oldest lines make room. How many lines had any.
    pub(crate) fn put(&self, batch: &Batch) -> usize {
        let mut lines = self.lines.lock();
        batch.lines().filter(|line| lines.push(line, self.size)).count()
    }

    /// What `before` has goes first: this one takes its place.
    pub fn follow(&self, before: &Self) {
        let text = before.text();
        let mut lines = self.lines.lock();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            lines.push(line, self.size);
        }
    }

    /// All lines, the oldest first, each with its line end.
    pub fn text(&self) -> Vec<u8> {
        self.lines.lock().bytes.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lines: &[&str]) -> Batch {
        let mut batch = Batch::default();
        for line in lines {
            batch.bytes.extend(line.as_bytes());
            batch.bytes.push(b'\n');
            batch.ends.push(batch.bytes.len());
        }
        batch
    }

    #[test]
    fn the_oldest_lines_make_room() {
        let ring = Ring::new("r", "", 10);
        assert_eq!(ring.put(&batch(&["abc", "de"])), 2);
        assert_eq!(ring.text(), b"abc\nde\n");
        assert_eq!(ring.put(&batch(&["much too long", "xyz"])), 1);
        assert_eq!(ring.text(), b"de\nxyz\n");
        let next = Ring::new("r", "", 5);
        next.follow(&ring);
        assert_eq!(next.text(), b"xyz\n");
    }
}
