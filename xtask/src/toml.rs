//! Manifests with positions and comments.

use crate::finding::Position;
use std::fs;
use std::path::Path;
use toml_edit::{Document, Item, Table};

/// A manifest and its text.
pub(crate) struct Manifest {
    text: String,
    document: Document<String>,
}

/// An entry of a dependency table.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) item: &'a Item,
    pub(crate) position: Position,
    /// The rest of the entry's last line, from `#` on.
    pub(crate) comment: Option<&'a str>,
}

impl Manifest {
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|e| format!("{} cannot be read: {e}", file.display()))?;
        let document = Document::parse(text.clone()).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(Self { text, document })
    }

    pub(crate) fn root(&self) -> &Table {
        self.document.as_table()
    }

    /// The entries of `table`; none if there is no such table.
    pub(crate) fn entries<'a>(&'a self, table: Option<&'a Item>) -> Vec<Entry<'a>> {
        let Some(table) = table.and_then(Item::as_table_like) else { return Vec::new() };
        table
            .iter()
            .map(|(name, item)| {
                let start = table.key(name).and_then(|key| key.span()).map_or(0, |span| span.start);
                let end = item.span().map_or(start, |span| span.end);
                let rest = self.text[end..].lines().next().unwrap_or_default();
                let comment = rest.find('#').map(|at| &rest[at..]);
                Entry { name, item, position: Position::at(&self.text, start), comment }
            })
            .collect()
    }

    /// The entries of the three dependency tables, and of those under `[target.*]`.
    pub(crate) fn dependencies(&self) -> Vec<Entry<'_>> {
        const TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
        let targets = self.root().get("target").and_then(Item::as_table_like);
        let targets = targets.into_iter().flat_map(|targets| targets.iter());
        let holders = targets.filter_map(|(_, target)| target.as_table_like());
        TABLES
            .iter()
            .map(|table| self.root().get(table))
            .chain(holders.flat_map(|holder| TABLES.iter().map(|table| holder.get(table))))
            .flat_map(|table| self.entries(table))
            .collect()
    }

    /// True if `table` has `key = true`.
    pub(crate) fn is_true(table: Option<&Item>, key: &str) -> bool {
        let value = table.and_then(|table| table.get(key));
        value.and_then(Item::as_bool) == Some(true)
    }
}
