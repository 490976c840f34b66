//! `do-resolve(variable,resolvers[,family]) expression`

use super::Reader;
use manylane_config::lex::Word;
use manylane_config::tree;
use manylane_expr::{EvalPoints, Expression, VariableId};
use manylane_resolve::Kind;

/// `do-resolve`: resolves a name into a variable.
#[derive(Debug)]
pub struct Lookup {
    /// Variable that gets the address.
    pub variable: VariableId,
    /// Number of the `resolvers` section.
    pub section: usize,
    /// Record type that is tried first.
    pub kind: Kind,
    /// Name to resolve.
    pub name: Expression,
}

impl Reader<'_, '_, '_> {
    pub(super) fn lookup(
        &mut self,
        rule: &tree::Rule,
        head: &Word,
        words: &[Word],
        points: EvalPoints,
    ) -> Option<Lookup> {
        let open = rule.action.len();
        let Some(inside) = head.bytes().get(open..).and_then(|rest| rest.strip_suffix(b")")) else {
            return self.expected(rule, head, "(<variable>,<resolvers>[,ipv4|ipv6])");
        };
        let parts: Vec<&[u8]> = inside.split(|&byte| byte == b',').collect();
        let (variable, section, kind) = match parts[..] {
            [variable, section] => (variable, section, Kind::Aaaa),
            [variable, section, b"ipv6"] => (variable, section, Kind::Aaaa),
            [variable, section, b"ipv4"] => (variable, section, Kind::A),
            [_, _, _] => return self.expected(rule, head, "(<variable>,<resolvers>[,ipv4|ipv6])"),
            _ => {
                return self.expected(rule, head, "(<variable>,<resolvers>[,ipv4|ipv6])");
            }
        };
        let variable = match self.compiler.variables.resolve(variable) {
            Ok(id) => id,
            Err(error) => {
                self.refuse.found.alert(head.pos_at(open + error.at), error.to_string());
                return None;
            }
        };
        let Some(section) = self.refuse.config.resolvers.iter().position(|own| own.name.bytes() == section)
        else {
            let found = manylane_config::Shown(section);
            let message = format!("expects the name of a 'resolvers' section, found '{found}'");
            return self.wrong(rule, head.pos(), &message);
        };
        Some(Lookup { variable, section, kind, name: self.expression(words, points)? })
    }
}
