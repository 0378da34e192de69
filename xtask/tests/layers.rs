//! Tests the order of layers: a file of the engine uses only files below it.
//!
//! The order is written once, by the `mod` lines of the source: of two modules of one folder, the
//! one declared first is the lower. A use is a path (`crate::…`, `super::…`) or a method called on
//! `self`, since one type may have its methods in several files. A folder's own file (`mod.rs`) may
//! be used by the files in the folder, or may use them, but no circle is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprMethodCall, ImplItem, Item, ItemImpl, ItemMod, Member, Token, Type,
    UseTree, Visibility,
};

/// Path of a module in the crate; empty for `lib.rs`.
type Module = Vec<String>;

/// The modules of a crate, and the order of those of each folder.
#[derive(Default)]
struct Source {
    files: BTreeMap<Module, syn::File>,
    /// Position of each module among those of its folder.
    position: BTreeMap<Module, usize>,
    /// The module of each method, by type and name.
    methods: BTreeMap<(String, String), Module>,
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.meta.require_list().map(|list| list.tokens.to_string());
        attribute.path().is_ident("cfg")
            && text.is_ok_and(|text| {
                text.starts_with("test") || text.contains("all (test") || text == "loom"
            })
    })
}

/// Returns the files that a `mod` line names: several where `path` attributes choose one.
fn files_of(item: &ItemMod) -> BTreeSet<String> {
    let text =
        |attribute: &Attribute| attribute.meta.require_list().map(|list| list.tokens.to_string());
    let texts = item.attrs.iter().filter_map(|attribute| text(attribute).ok());
    let named = texts.filter_map(|text| {
        let (_, file) = text.split_once("path = \"")?;
        file.strip_suffix(".rs\"").map(Into::into)
    });
    let named: BTreeSet<String> = named.collect();
    if named.is_empty() { [item.ident.to_string()].into() } else { named }
}

/// Returns the items of all lists between which the macro `cfg_if` chooses.
fn items_to_choose_from(item: &Item) -> Vec<Item> {
    let Item::Macro(item) = item else { return Vec::new() };
    if !item.mac.path.is_ident("cfg_if") {
        return Vec::new();
    }
    let lists = item.mac.tokens.clone().into_iter().filter_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    });
    lists.flat_map(|list| syn::parse2::<syn::File>(list).unwrap().items).collect()
}

/// Returns the name of a type without its parameters: `Engine` of `Engine<O>`.
fn name_of(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

impl Source {
    fn read(root: &Path) -> Self {
        let mut source = Self::default();
        let file = ["lib.rs", "main.rs"]
            .map(|name| root.join(name))
            .into_iter()
            .find(|file| file.exists());
        source.add(&file.expect("a crate"), root, Module::new());
        source
    }

    /// Parses texts in place of files, for tests of this test.
    fn of_files(files: &[(&str, &str)]) -> Self {
        let mut source = Self::default();
        for (name, text) in files {
            let module = name.split("::").filter(|part| !part.is_empty()).map(Into::into);
            source.note(module.collect(), syn::parse_file(text).unwrap());
        }
        source
    }

    fn add(&mut self, path: &Path, folder: &Path, module: Module) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        for name in self.note(module.clone(), syn::parse_file(&text).unwrap()) {
            let (file, inner) = (folder.join(format!("{name}.rs")), folder.join(&name));
            let of_folder = inner.join("mod.rs");
            let path = if of_folder.exists() { of_folder } else { file };
            self.add(&path, &inner, [module.clone(), vec![name]].concat());
        }
    }

    /// Adds a file. Returns the modules that it declares.
    fn note(&mut self, module: Module, file: syn::File) -> Vec<String> {
        let mut declared = Vec::new();
        let items = file.items.iter().flat_map(|item| match items_to_choose_from(item) {
            chosen if chosen.is_empty() => vec![item.clone()],
            chosen => chosen,
        });
        for item in &items.collect::<Vec<_>>() {
            match item {
                Item::Mod(item) if item.content.is_none() && !is_for_tests(&item.attrs) => {
                    for name in files_of(item) {
                        if declared.contains(&name) {
                            continue;
                        }
                        let path = [module.clone(), vec![name.clone()]].concat();
                        self.position.insert(path, declared.len());
                        declared.push(name);
                    }
                }
                Item::Impl(ItemImpl { trait_: None, self_ty, items, .. }) => {
                    for item in items {
                        if let (ImplItem::Fn(method), Some(of)) = (item, name_of(self_ty)) {
                            let method = method.sig.ident.to_string();
                            self.methods.insert((of, method), module.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        self.files.insert(module, file);
        declared
    }

    /// Returns the innermost module that is a file on a path.
    fn resolve(&self, path: &[String]) -> Module {
        let found = (0..=path.len()).rev().find(|&end| self.files.contains_key(&path[..end]));
        path[..found.unwrap_or(0)].to_vec()
    }

    fn uses(&self) -> BTreeSet<(Module, Module)> {
        let mut uses = BTreeSet::new();
        for (module, file) in &self.files {
            let mut finder =
                Finder { source: self, module: module.clone(), of: None, found: BTreeSet::new() };
            finder.visit_file(file);
            finder.found.remove(module);
            uses.extend(finder.found.into_iter().map(|used| (module.clone(), used)));
        }
        uses
    }

    /// Returns whether the used module is declared later in the same folder than the user.
    fn leads_up(&self, user: &Module, used: &Module) -> bool {
        let common = user.iter().zip(used).take_while(|(a, b)| a == b).count();
        let position = |module: &Module| self.position.get(&module[..=common]);
        user.len() > common && used.len() > common && position(used) > position(user)
    }

    fn upward_uses(&self) -> Vec<String> {
        let uses = self.uses();
        let up = uses.iter().filter(|(user, used)| self.leads_up(user, used));
        up.map(described).collect()
    }

    /// Returns the uses that are part of a circle: what is used leads back to the user, perhaps
    /// through others.
    fn circle(&self) -> Vec<String> {
        let uses = self.uses();
        let leads_back = |(user, used): &&(Module, Module)| {
            let mut reached = BTreeSet::from([used]);
            let mut next = vec![used];
            while let Some(at) = next.pop() {
                let onward = uses.iter().filter(|(user, _)| user == at).map(|(_, used)| used);
                next.extend(onward.filter(|used| reached.insert(used)));
            }
            reached.contains(user)
        };
        uses.iter().filter(leads_back).map(described).collect()
    }
}

fn described((user, used): &(Module, Module)) -> String {
    format!("{} uses {}", user.join("::"), used.join("::"))
}

/// Finds the modules that a file uses.
struct Finder<'a> {
    source: &'a Source,
    module: Module,
    /// The type of the `impl` block that is being visited.
    of: Option<String>,
    found: BTreeSet<Module>,
}

impl Finder<'_> {
    fn note(&mut self, path: &[String]) {
        let absolute = match path.first().map(String::as_str) {
            Some("crate") => path[1..].to_vec(),
            Some("super") => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let kept = self.module.len().saturating_sub(ups);
                [&self.module[..kept], &path[ups..]].concat()
            }
            Some("self") if path.len() > 1 => [&self.module[..], &path[1..]].concat(),
            Some(first) => {
                let child = [&self.module[..], &[first.to_owned()]].concat();
                if !self.source.files.contains_key(&child) {
                    return;
                }
                [&self.module[..], path].concat()
            }
            None => return,
        };
        let file = self.source.resolve(&absolute);
        self.found.insert(file);
    }

    fn note_tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.note_tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) => self.note(&with(&name.ident)),
            UseTree::Rename(name) => self.note(&with(&name.ident)),
            UseTree::Glob(_) => self.note(before),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_tree(before, tree));
            }
        }
    }

    fn note_method(&mut self, name: &str) {
        let of = self.of.clone().unwrap_or_default();
        if let Some(module) = self.source.methods.get(&(of, name.into())) {
            self.found.insert(module.clone());
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Mod(item) if is_for_tests(&item.attrs) => {}
            Item::Use(item) if is_for_tests(&item.attrs) => {}
            Item::Use(item) => self.note_tree(&[], &item.tree),
            Item::Impl(item) => {
                self.of = name_of(&item.self_ty);
                visit::visit_item_impl(self, item);
                self.of = None;
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        match parts.first().map(String::as_str) {
            Some("Self") if parts.len() == 2 => self.note_method(&parts[1]),
            Some("crate" | "super") => self.note(&parts),
            _ if parts.len() > 1 => self.note(&parts),
            _ => {}
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        let name = call.method.to_string();
        match &*call.receiver {
            Expr::Path(path) if path.path.is_ident("self") => self.note_method(&name),
            // A wrapper of the engine, in reports.
            Expr::Field(field) if matches!(&field.member, Member::Unnamed(_)) => {
                self.note_engine(&name);
            }
            Expr::Path(path) if path.path.is_ident("engine") || path.path.is_ident("ENGINE") => {
                self.note_engine(&name);
            }
            _ => {}
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, of: &'a syn::Macro) {
        let parse = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(arguments) = of.parse_body_with(parse) {
            let of: Vec<Expr> = arguments.into_iter().collect();
            of.iter().for_each(|argument| {
                let mut inner = Finder {
                    found: BTreeSet::new(),
                    of: self.of.clone(),
                    module: self.module.clone(),
                    source: self.source,
                };
                inner.visit_expr(argument);
                self.found.append(&mut inner.found);
            });
        }
    }
}

impl Finder<'_> {
    fn note_engine(&mut self, name: &str) {
        let of = ("Engine".to_owned(), name.to_owned());
        if let Some(module) = self.source.methods.get(&of) {
            self.found.insert(module.clone());
        }
    }
}

fn engine() -> Source {
    Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ebbmalloc/src"))
}

#[test]
fn nothing_uses_a_module_above_it() {
    let found = engine().upward_uses();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn there_is_no_circle() {
    let found = engine().circle();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn there_is_no_circle_in_the_tasks() {
    let tasks = Source::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let found = tasks.circle();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn upward_uses_are_seen() {
    let root = ("", "mod low; mod high;");
    let up = |low: &str, high: &str| {
        Source::of_files(&[root, ("low", low), ("high", high)]).upward_uses()
    };
    let seen = ["low uses high"];
    assert_eq!(up("use crate::high::Thing;", ""), seen);
    assert_eq!(up("fn f() { super::high::g() }", ""), seen);
    assert_eq!(up("impl T { fn f(&self) { self.g() } }", "impl T { fn g(&self) {} }"), seen);
    assert_eq!(up("impl T { fn f() { Self::g() } }", "impl T { fn g() {} }"), seen);
    assert_eq!(up("impl T { fn f(&self) { p!(1, self.g()) } }", "impl T { fn g(&self) {} }"), seen);
    assert!(up("impl T { fn f(&self) {} }", "impl T { fn g(&self) { self.f() } }").is_empty());
    assert!(up("#[cfg(test)] mod tests { use crate::high; }", "use crate::low::T;").is_empty());
}

#[test]
fn modules_that_a_condition_chooses_are_seen() {
    let root = "cfg_if! { if #[cfg(a)] { mod low; mod high; } else { mod low; mod other; } }";
    let low = "use crate::high::Thing; use crate::other::Thing;";
    let files = [("", root), ("low", low), ("high", ""), ("other", "")];
    assert_eq!(Source::of_files(&files).upward_uses(), ["low uses high", "low uses other"]);
}

#[test]
fn circles_are_seen() {
    let files = [("", "mod a;"), ("a", "mod b; use b::B; struct A;"), ("a::b", "use crate::a::A;")];
    assert_eq!(Source::of_files(&files).circle().len(), 2);
}
