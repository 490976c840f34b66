//! `stick match`, `stick on`, `stick store-request` and `stick store-response`.

use super::{Reader, Rule};
use manylane_config::lex::Word;
use manylane_config::source::Pos;
use manylane_config::tree::{self, StickKind};
use manylane_expr::{EvalPoints, Expression, TableId, is_castable};

/// Looks up or stores the server of a key in a stick table.
#[derive(Debug)]
pub struct Stick {
    /// The table of the key.
    pub table: TableId,
    /// The key.
    pub key: Expression,
    /// Look the server up.
    pub finds: bool,
    /// Store the server.
    pub stores: bool,
}

impl Reader<'_, '_, '_> {
    pub(super) fn stick(&mut self, rule: &tree::StickRule) -> Option<Rule<Stick>> {
        let tree::StickRule { kind, key, table, condition, pos } = rule;
        let points = match kind {
            StickKind::StoreResponse => EvalPoints::STORE,
            _ => EvalPoints::USE_SERVER,
        };
        let condition = self.condition(condition, points);
        let (key, table) = self.table_key("'stick'", key, table.as_ref(), *pos, points)?;
        let action = Stick {
            table,
            key,
            finds: matches!(kind, StickKind::On | StickKind::Match),
            stores: *kind != StickKind::Match,
        };
        Some(Rule { condition: condition?, action, line: self.line(*pos) })
    }

    /// Compiles a key and finds its stick table: the named one, or that of the proxy. Messages begin with
    /// `what`.
    pub(super) fn table_key(
        &mut self,
        what: &str,
        key: &[Word],
        table: Option<&Word>,
        pos: Pos,
        points: EvalPoints,
    ) -> Option<(Expression, TableId)> {
        let expression = self.expression(key, points)?;
        let wanted = table.map_or(self.proxy.name.bytes(), Word::bytes);
        let Some(found) = self.compiler.names.table(wanted) else {
            let (pos, message) = match table {
                Some(word) => (
                    word.pos(),
                    format!("expects the name of a proxy with a 'stick-table', found '{}'", word.shown()),
                ),
                None => (
                    pos,
                    "expects 'table <name>', or a 'stick-table' of the same proxy, found neither".to_owned(),
                ),
            };
            self.refuse.found.alert(pos, format!("{what} {message}"));
            return None;
        };
        if !is_castable(expression.gives(), found.key) {
            let message = format!(
                "{what} expects a key that can be converted to the table's type {}, found one of type {}",
                found.key,
                expression.gives()
            );
            self.refuse.found.alert(key.first()?.pos(), message);
            return None;
        }
        Some((expression, found.id))
    }
}
