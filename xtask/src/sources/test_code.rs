//! Finds code that exists for tests only.

use std::path::{Path, PathBuf};
use syn::punctuated::Punctuated;
use syn::{Attribute, Item, Meta, Token};

/// True for `#[test]` and for a `#[cfg(..)]` that holds in test builds only.
pub(super) fn is_marked(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || (path.is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|p| implies_test(&p)))
    })
}

fn implies_test(predicate: &Meta) -> bool {
    let Meta::List(list) = predicate else { return predicate.path().is_ident("test") };
    let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
        return false;
    };
    if list.path.is_ident("all") {
        parts.iter().any(implies_test)
    } else {
        list.path.is_ident("any") && parts.iter().all(implies_test)
    }
}

/// A test module in its own file, `#[cfg(test)] mod name;`, with its submodules.
#[derive(Debug)]
pub(super) struct Module {
    file: PathBuf,
    folder: PathBuf,
}

impl Module {
    pub(super) fn holds(&self, path: &Path) -> bool {
        path == self.file || path.starts_with(&self.folder)
    }
}

/// The test modules that `file` declares.
pub(super) fn modules(file: &Path, syntax: &syn::File) -> Vec<Module> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let stem = file.file_stem().unwrap_or_default();
    let is_root = ["lib", "main", "mod"].iter().any(|root| stem == *root);
    let mut found = Vec::new();
    collect(&if is_root { folder.to_owned() } else { folder.join(stem) }, &syntax.items, &mut found);
    found
}

fn collect(folder: &Path, items: &[Item], found: &mut Vec<Module>) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let below = folder.join(module.ident.to_string());
        match &module.content {
            Some((_, items)) => collect(&below, items, found),
            None if is_marked(&module.attrs) => {
                found.push(Module { file: below.with_extension("rs"), folder: below });
            }
            None => {}
        }
    }
}

/// The attributes of an item.
pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
