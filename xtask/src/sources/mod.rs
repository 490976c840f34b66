//! Checks the sources. Rust is parsed, not searched as text; only words in comments are searched.

mod circles;
mod known_circles;
mod leftovers;
pub(crate) mod memory;
mod safety;
mod test_code;
mod tokens;
mod words;

use crate::finding::{Finding, Position};
use crate::rooms::{self, Memory, UnsafeCode};
use cargo_metadata::Metadata;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use walkdir::WalkDir;

/// Folders of a package with code outside of the product, which may use any tool.
const TOOLS: [&str; 3] = ["tests", "benches", "examples"];

/// Checks all packages and all texts. Returns the number of Rust files.
pub(crate) fn check(workspace: &Metadata, findings: &mut Vec<Finding>) -> Result<usize, String> {
    let root = workspace.workspace_root.as_std_path();
    let mut files = 0;
    for package in &workspace.packages {
        let folder = package.manifest_path.parent().map_or(root, |folder| folder.as_std_path());
        // A package without a room is a finding itself. It gets no permissions.
        let room = rooms::of(&package.name);
        let unsafe_code = room.map_or(UnsafeCode::Refused, |room| room.unsafe_code);
        let memory = room.map_or(Memory::ThroughSync, |room| room.memory);
        let sources = Source::read_all(folder)?;
        let test_modules: Vec<_> =
            sources.iter().flat_map(|source| test_code::modules(&source.path, &source.syntax)).collect();
        files += sources.len();
        for source in &sources {
            let below = source.path.strip_prefix(folder).unwrap_or(&source.path);
            // All of the room `tests` is test code.
            let tool = room.is_some_and(|room| room.name == "tests")
                || TOOLS.iter().any(|tool| below.starts_with(tool));
            let mut check = Check {
                root,
                path: &source.path,
                lines: source.text.lines().collect(),
                unsafe_code,
                memory,
                test: tool || test_modules.iter().any(|module| module.holds(&source.path)),
                findings,
            };
            check.visit_file(&source.syntax);
        }
        let is_test = |path: &Path| test_modules.iter().any(|module| module.holds(path));
        circles::check(root, &package.name, folder, &sources, is_test, findings);
    }
    for file in texts(root, &["rs", "toml", "md"]) {
        leftovers::words(root, &file, findings)?;
    }
    Ok(files)
}

struct Source {
    path: PathBuf,
    text: String,
    syntax: syn::File,
}

impl Source {
    fn read_all(folder: &Path) -> Result<Vec<Self>, String> {
        let read = |path: PathBuf| {
            let text =
                fs::read_to_string(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
            let syntax = syn::parse_file(&text).map_err(|e| {
                let Position { line, column } = Position::of(e.span());
                format!("{}:{line}:{column}: {e}", path.display())
            })?;
            Ok(Self { path, text, syntax })
        };
        texts(folder, &["rs"]).map(read).collect()
    }
}

/// Files below `folder` with one of the extensions, without output of builds and fuzzers.
pub(crate) fn texts(folder: &Path, extensions: &'static [&str]) -> impl Iterator<Item = PathBuf> {
    const LEFT_BEHIND: [&str; 3] = ["target", "corpus", "artifacts"];
    WalkDir::new(folder)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() == 0 || !(name.starts_with('.') || LEFT_BEHIND.contains(&&*name))
        })
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(move |path| path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)))
}

/// The file being checked.
struct Check<'a> {
    root: &'a Path,
    path: &'a Path,
    lines: Vec<&'a str>,
    unsafe_code: UnsafeCode,
    memory: Memory,
    /// True while visiting test code.
    test: bool,
    findings: &'a mut Vec<Finding>,
}

impl Check<'_> {
    fn find(&mut self, span: proc_macro2::Span, message: String) {
        self.findings.push(Finding::new(self.root, self.path, Position::of(span), message));
    }

    /// Visits an item with `attributes`, which may mark it as test code.
    fn within(&mut self, attributes: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        let outside = self.test;
        self.test |= test_code::is_marked(attributes);
        visit(self);
        self.test = outside;
    }
}

impl<'ast> Visit<'ast> for Check<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.within(&file.attrs, |check| visit::visit_file(check, file));
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.within(test_code::attributes(item), |check| visit::visit_item(check, item));
    }

    fn visit_impl_item_fn(&mut self, method: &'ast syn::ImplItemFn) {
        self.within(&method.attrs, |check| visit::visit_impl_item_fn(check, method));
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let attributes = match statement {
            syn::Stmt::Local(local) => &local.attrs[..],
            syn::Stmt::Macro(call) => &call.attrs,
            _ => &[], // items have their own visit; attributes on expressions are rare
        };
        self.within(attributes, |check| visit::visit_stmt(check, statement));
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        self.attribute_leftover(attribute);
        self.attribute_unsafe(attribute);
        self.attribute_skip(attribute);
        visit::visit_attribute(self, attribute);
    }

    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        self.name(ident);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.value_name(name);
        }
        visit::visit_field(self, field);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        if !self.test {
            self.value_name(&pattern.ident);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.macro_leftover(call);
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.method_leftover(&call.method, call.args.is_empty());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<_> = path.segments.iter().map(|segment| &segment.ident).collect();
        self.memory_path(&segments);
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.memory_use(&mut Vec::new(), &item.tree);
        visit::visit_item_use(self, item);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.memory_import(&[&item.ident]);
        visit::visit_item_extern_crate(self, item);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.unsafe_use(block.unsafe_token.span);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = item.unsafety {
            self.unsafe_use(token.span);
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.unsafe_signature(signature);
        self.value_name(&signature.ident);
        visit::visit_signature(self, signature);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(token) = item.unsafety {
            self.unsafe_permitted(token.span);
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_foreign_mod(&mut self, item: &'ast syn::ItemForeignMod) {
        if let Some(token) = item.unsafety {
            self.unsafe_use(token.span);
        }
        visit::visit_item_foreign_mod(self, item);
    }
}
