//! Applies the same rules inside macros, which the parser leaves as tokens.

use super::Check;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

impl Check<'_> {
    /// Checks the tokens of a macro call or definition.
    pub(super) fn tokens(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            let length = self.token_path(&tokens[at..]).max(1);
            for offset in at..at + length {
                self.token(&tokens, offset);
            }
            at += length;
        }
    }

    /// Checks the path at the front and the groups that may end it. Returns the number of tokens.
    fn token_path(&mut self, tokens: &[TokenTree]) -> usize {
        let Some((path, length)) = path_of(tokens) else { return 0 };
        let path: Vec<&Ident> = path.iter().collect();
        match tokens.get(length) {
            // `use std::sync::{..}`: the group continues the path.
            Some(TokenTree::Group(group))
                if group.delimiter() == Delimiter::Brace && is_colon(tokens.get(length - 1)) =>
            {
                self.token_group(&path, group.stream());
            }
            Some(TokenTree::Punct(star)) if star.as_char() == '*' && is_colon(tokens.get(length - 1)) => {
                self.memory_import(&path);
            }
            _ => self.memory_path(&path),
        }
        length
    }

    fn token_group(&mut self, prefix: &[&Ident], stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
        for part in tokens.split(is_comma) {
            let Some((rest, length)) = path_of(part) else { continue };
            let path: Vec<&Ident> = prefix.iter().copied().chain(&rest).collect();
            match part.get(length) {
                Some(TokenTree::Group(group)) if is_colon(part.get(length - 1)) => {
                    self.token_group(&path, group.stream());
                }
                _ if rest.last().is_some_and(|last| last == "self") => self.memory_import(prefix),
                _ => self.memory_import(&path),
            }
        }
    }

    fn token(&mut self, tokens: &[TokenTree], at: usize) {
        let next = tokens.get(at + 1);
        if let TokenTree::Ident(word) = &tokens[at] {
            self.name(word);
        }
        match &tokens[at] {
            TokenTree::Group(group) => self.tokens(group.stream()),
            TokenTree::Ident(word) if word == "unsafe" => {
                if matches!(next, Some(TokenTree::Ident(next)) if next == "fn" || next == "extern") {
                    self.unsafe_permitted(word.span());
                } else {
                    self.unsafe_use(word.span());
                }
            }
            TokenTree::Ident(word) if is_punct(next, '!') => self.unfinished(word),
            TokenTree::Ident(word) if at > 0 && is_punct(tokens.get(at - 1), '.') => {
                if let Some(TokenTree::Group(arguments)) = next {
                    self.method_leftover(word, arguments.stream().is_empty());
                }
            }
            TokenTree::Punct(pound) if pound.as_char() == '#' => {
                if let Some(TokenTree::Group(attribute)) = next
                    && let Some(TokenTree::Ident(name)) = attribute.stream().into_iter().next()
                    && name == "ignore"
                {
                    self.ignored(pound.span());
                }
            }
            _ => {}
        }
    }
}

/// The identifiers joined by `::` at the front, and the number of their tokens, including a trailing `::`.
fn path_of(tokens: &[TokenTree]) -> Option<(Vec<Ident>, usize)> {
    let TokenTree::Ident(first) = tokens.first()? else { return None };
    let mut path = vec![first.clone()];
    let mut length = 1;
    while is_colon(tokens.get(length)) && is_colon(tokens.get(length + 1)) {
        length += 2;
        let Some(TokenTree::Ident(next)) = tokens.get(length) else { break };
        path.push(next.clone());
        length += 1;
    }
    Some((path, length))
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    is_punct(token, ':')
}

fn is_punct(token: Option<&TokenTree>, punct: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == punct)
}
