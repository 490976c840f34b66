//! Finds circles of imports among the modules of a crate, direct ones and those through other modules.
//! Without circles, the reader of a module knows on which others it stands, and each module could become a
//! crate. A module that the crate's root declares counts together with everything below it. The root itself
//! may import its modules and be imported by them.

use super::known_circles::KNOWN;
use super::{Source, test_code};
use crate::finding::{Finding, Position};
use proc_macro2::{Ident, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use syn::UseTree;
use syn::visit::{self, Visit};

/// Where a module first names another.
type Arrows = BTreeMap<String, BTreeMap<String, (PathBuf, Position)>>;

/// Adds a finding for each circle among the modules of the package in `folder`.
pub(super) fn check(
    root: &Path,
    package: &str,
    folder: &Path,
    sources: &[Source],
    is_test: impl Fn(&Path) -> bool,
    findings: &mut Vec<Finding>,
) {
    let src = folder.join("src");
    let roots: Vec<&Source> = sources
        .iter()
        .filter(|one| ["lib.rs", "main.rs"].iter().any(|name| one.path == src.join(name)))
        .collect();
    let mut names = Names::default();
    roots.iter().for_each(|one| names.read(&one.syntax));
    let mut arrows = Arrows::new();
    for source in sources.iter().filter(|source| !is_test(&source.path)) {
        let Some(module) = module_of(&src, &source.path) else { continue };
        let mut reading = Reading { names: &names, path: &source.path, module, arrows: &mut arrows };
        reading.visit_file(&source.syntax);
    }
    let circles = circles(&arrows);
    for circle in &circles {
        let is_known = KNOWN.iter().any(|known| known.package == package && circle.iter().eq(known.modules));
        if !is_known {
            let steps = shortest(&arrows, circle);
            let (file, position) = &arrows[&steps[0]][&steps[1]];
            let message = format!(
                "modules of `{package}` import each other in a circle: {}; move what they share into a \
                    module below both, or name all modules of the circle ({}) with the reason in \
                    xtask/src/sources/known_circles.rs",
                steps.join(" -> "),
                circle.iter().cloned().collect::<Vec<_>>().join(", "),
            );
            findings.push(Finding::new(root, file, *position, message));
        }
    }
    for known in KNOWN.iter().filter(|known| known.package == package) {
        let is_there = known.modules.iter().all(|module| names.modules.contains(*module));
        if is_there && !circles.iter().any(|circle| circle.iter().eq(known.modules)) {
            let message = format!(
                "the circle of {} is not what xtask/src/sources/known_circles.rs says; correct it there",
                known.modules.join(", "),
            );
            findings.push(Finding::new(root, &src, Position::START, message));
        }
    }
}

/// The names of a crate's root.
#[derive(Default)]
struct Names {
    /// Modules that are not for tests only.
    modules: BTreeSet<String>,
    /// What the root imports from its modules, by the name that it has there.
    imported: BTreeMap<String, String>,
}

impl Names {
    fn read(&mut self, syntax: &syn::File) {
        for item in syntax.items.iter().filter(|item| !test_code::is_marked(test_code::attributes(item))) {
            if let syn::Item::Mod(module) = item {
                self.modules.insert(module.ident.to_string());
            }
        }
        for item in &syntax.items {
            let syn::Item::Use(item) = item else { continue };
            each_import(&mut Vec::new(), &item.tree, &mut |path, name| {
                let mut path = path.iter().skip_while(|part| **part == "self" || **part == "crate");
                if let Some(first) =
                    path.next().map(ToString::to_string).filter(|first| self.modules.contains(first))
                {
                    self.imported.insert(name.to_string(), first);
                }
            });
        }
    }

    /// The module that a path of the crate leads to.
    fn module(&self, first: &str) -> Option<&str> {
        self.modules.get(first).or_else(|| self.imported.get(first)).map(String::as_str)
    }
}

/// Calls `work` with each path that `tree` imports, and with the name that it has then.
fn each_import<'t>(
    path: &mut Vec<&'t Ident>,
    tree: &'t UseTree,
    work: &mut impl FnMut(&[&'t Ident], &'t Ident),
) {
    let mut named = |path: &mut Vec<&'t Ident>, last: &'t Ident, name: &'t Ident| {
        if last == "self" {
            return path
                .last()
                .copied()
                .into_iter()
                .for_each(|last| work(path, if name == "self" { last } else { name }));
        }
        path.push(last);
        work(path, name);
        path.pop();
    };
    match tree {
        UseTree::Path(part) => {
            path.push(&part.ident);
            each_import(path, &part.tree, work);
            path.pop();
        }
        UseTree::Name(part) => named(path, &part.ident, &part.ident),
        UseTree::Rename(part) => named(path, &part.ident, &part.rename),
        UseTree::Glob(_) => path.last().copied().into_iter().for_each(|last| work(path, last)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| each_import(path, tree, work)),
    }
}

/// The path of the module in a file below `src`; `None` of a file elsewhere.
fn module_of(src: &Path, file: &Path) -> Option<Vec<String>> {
    let below = file.strip_prefix(src).ok()?.with_extension("");
    let mut module: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let last = module.last()?;
    if last == "mod" || (module.len() == 1 && (last == "lib" || last == "main")) {
        module.pop();
    }
    Some(module)
}

/// Reads which modules a file names.
struct Reading<'a> {
    names: &'a Names,
    path: &'a Path,
    /// The module that is being read.
    module: Vec<String>,
    arrows: &'a mut Arrows,
}

impl Reading<'_> {
    fn named(&mut self, path: &[&Ident]) {
        let Some(from) = self.module.first() else { return };
        let mut parts = path.iter().map(ToString::to_string).peekable();
        let mut whole = match parts.peek().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super" | "self") => self.module.clone(),
            _ => return,
        };
        while let Some(part) = parts.next_if(|part| ["crate", "self", "super"].contains(&part.as_str())) {
            if part == "super" {
                whole.pop();
            }
        }
        whole.extend(parts);
        let to = whole.first().and_then(|first| self.names.module(first)).filter(|to| to != from);
        if let (Some(to), Some(at)) = (to, path.last()) {
            let first = || (self.path.to_owned(), Position::of(at.span()));
            self.arrows.entry(from.clone()).or_default().entry(to.to_owned()).or_insert_with(first);
        }
    }

    /// Paths in a macro call, which the parser hands over as tokens.
    fn tokens(&mut self, stream: TokenStream) {
        let mut path: Vec<Ident> = Vec::new();
        let mut colons = 0;
        for token in stream {
            match token {
                TokenTree::Ident(word) if colons == 2 && !path.is_empty() => path.push(word),
                TokenTree::Ident(word) => {
                    self.named(&path.iter().collect::<Vec<_>>());
                    path = vec![word];
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => {
                    self.named(&path.iter().collect::<Vec<_>>());
                    path.clear();
                    self.tokens(group.stream());
                }
                _ => {
                    self.named(&path.iter().collect::<Vec<_>>());
                    path.clear();
                }
            }
            colons = 0;
        }
        self.named(&path.iter().collect::<Vec<_>>());
    }
}

impl<'ast> Visit<'ast> for Reading<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !test_code::is_marked(test_code::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        each_import(&mut Vec::new(), &item.tree, &mut |path, _| self.named(path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.named(&path.segments.iter().map(|segment| &segment.ident).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

/// All modules that `from` leads to.
fn reached<'a>(arrows: &'a Arrows, from: &str) -> BTreeSet<&'a str> {
    let mut all = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(module) = next.pop() {
        for (to, _) in arrows.get(module).into_iter().flatten() {
            if all.insert(to.as_str()) {
                next.push(to);
            }
        }
    }
    all
}

/// The largest sets of modules each of which leads to each other.
fn circles(arrows: &Arrows) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|from| (from.as_str(), reached(arrows, from))).collect();
    let with = |from: &str| {
        let back = |to: &&&str| reached.get(**to).is_some_and(|onward| onward.contains(from));
        reached[from].iter().filter(back).map(|to| (*to).to_owned()).collect::<BTreeSet<String>>()
    };
    reached.keys().map(|from| with(from)).filter(|circle| !circle.is_empty()).collect()
}

/// The shortest way within `circle` from its first module back to that.
fn shortest(arrows: &Arrows, circle: &BTreeSet<String>) -> Vec<String> {
    let first = circle.first().cloned().unwrap_or_default();
    let mut ways = VecDeque::from([vec![first.clone()]]);
    while let Some(path) = ways.pop_front() {
        let last = path.last().unwrap_or(&first);
        for to in arrows.get(last).into_iter().flatten().map(|(to, _)| to).filter(|to| circle.contains(*to)) {
            let longer = [&path[..], std::slice::from_ref(to)].concat();
            if *to == first {
                return longer;
            }
            if !path.contains(to) {
                ways.push_back(longer);
            }
        }
    }
    vec![first.clone(), first]
}
