//! The sources of the workspace -> which module uses which; fails on an import cycle and on a crossed boundary.
//!
//! `.ci/boundaries` compiles and runs it; the rules are in `.ci/modules`. Modules are found from the roots by their `mod`
//! lines, so test modules, comments and strings do not count. A name is followed through the `use` that brought it, to the
//! module that has it; what the body of a macro uses is used by those who call it. Cycles are looked for among the children
//! of each module, where everything below a child counts as the child; what a module shares with its parent is no cycle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::process::ExitCode;

/// The crates of the workspace, and their roots.
const CRATES: [(&str, &str); 5] = [
    ("model_factory_dtypes", "crates/dtypes/src/lib.rs"),
    ("model_factory_format", "crates/format/src/lib.rs"),
    ("model_factory_kernels", "crates/kernels/src/lib.rs"),
    ("model_factory_diagnostics", "diagnostics/src/lib.rs"),
    ("model_factory", "src/lib.rs"),
];

const RULES: &str = ".ci/modules";

fn main() -> ExitCode {
    let root = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let (modules, faults) = check(Path::new(&root));
    faults.iter().for_each(|fault| println!("{fault}\n"));
    println!("{modules} modules, {} faults", faults.len());
    if modules > CRATES.len() && faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many modules there are below `root`, and what is wrong with them.
fn check(root: &Path) -> (usize, Vec<String>) {
    let mut tree = Tree::default();
    for (name, file) in CRATES {
        tree.read(root, name, file);
    }
    let imports = tree.imports();
    let rules = std::fs::read_to_string(root.join(RULES)).unwrap_or_default();
    let (mut faults, mut known) = (Vec::new(), BTreeSet::new());
    for line in rules.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some((from, to)) = line.split_once("->") {
            known.insert((from.trim().to_owned(), to.trim().to_owned()));
        } else if let Some((module, allowed)) = line.split_once(": ") {
            faults.extend(crossed(&tree, &imports, module.trim(), &allowed.split_whitespace().collect::<Vec<_>>()));
        } else if !line.is_empty() {
            faults.push(format!("{RULES}: not a rule: {line}"));
        }
    }
    faults.extend(cycles(&imports, known));
    (tree.modules.len(), faults)
}

/// Modules by their paths, which are what a user of the crates would write.
#[derive(Default)]
struct Tree {
    modules: BTreeMap<String, Module>,
    /// What the bodies of macros use; it is used by those who call them.
    macros: BTreeMap<String, Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    /// What `use` brought: the name it has here, its path, and the line.
    names: Vec<(String, Vec<String>, usize)>,
    /// Other paths, and their lines.
    paths: Vec<(Vec<String>, usize)>,
    /// Macros that are called, and the lines.
    calls: Vec<(String, usize)>,
}

impl Module {
    fn paths(&self) -> impl Iterator<Item = (&[String], usize)> {
        let names = self.names.iter().map(|(_, path, line)| (path.as_slice(), *line));
        names.chain(self.paths.iter().map(|(path, line)| (path.as_slice(), *line)))
    }
}

/// A use of something by a module.
struct Import {
    from: String,
    /// The module that has it; `None` outside of the workspace.
    to: Option<String>,
    /// Its path.
    item: String,
    /// File and line.
    place: String,
}

impl Tree {
    /// Reads the module `name` in `file`, and all below it.
    fn read(&mut self, root: &Path, name: &str, file: &str) {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { return };
        // The files of a module's children lie beside `mod.rs` and `lib.rs`, or else in a folder of its name.
        let folder = file.strip_suffix("/mod.rs").or(file.strip_suffix("/lib.rs"));
        let folder = folder.or(file.strip_suffix(".rs")).unwrap_or(file);
        let module = self.module(root, name, &without_tests(tokens(&text)), folder, file);
        self.modules.insert(name.into(), module);
    }

    fn module(&mut self, root: &Path, name: &str, tokens: &[Token], folder: &str, file: &str) -> Module {
        let mut module = Module { file: file.into(), ..Module::default() };
        let mut at = 0;
        while at < tokens.len() {
            match (text(tokens, at), text(tokens, at + 1), text(tokens, at + 2)) {
                ("mod", child, ";") => {
                    let files = [format!("{folder}/{child}.rs"), format!("{folder}/{child}/mod.rs")];
                    if let Some(file) = files.iter().find(|file| root.join(file).is_file()) {
                        self.read(root, &format!("{name}::{child}"), file);
                    }
                    at += 3;
                }
                ("mod", child, "{") => {
                    let end = closing(tokens, at + 2);
                    let folder = format!("{folder}/{child}");
                    let name = format!("{name}::{child}");
                    let module = self.module(root, &name, &tokens[at + 3..end], &folder, file);
                    self.modules.insert(name, module);
                    at = end + 1;
                }
                ("macro_rules", "!", called) => {
                    let end = closing(tokens, at + 3);
                    let body = self.module(root, name, &tokens[at + 4..end], folder, file);
                    self.macros.insert(called.into(), body);
                    at = end + 1;
                }
                (called, "!", "(" | "[" | "{") if is_name(called) => {
                    module.calls.push((called.into(), tokens[at].line));
                    at += 2;
                }
                ("use", ..) => at = used(tokens, at + 1, &[], &mut module.names),
                (first, "::", _) if is_name(first) && (at == 0 || text(tokens, at - 1) != "::") => {
                    let (line, mut path) = (tokens[at].line, vec![first.to_owned()]);
                    while text(tokens, at + 1) == "::" && is_name(text(tokens, at + 2)) {
                        path.push(text(tokens, at + 2).to_owned());
                        at += 2;
                    }
                    module.paths.push((path, line));
                    at += 1;
                }
                _ => at += 1,
            }
        }
        module
    }

    /// Whether `path` is a module or a type of one, as far as its modules say; true outside of the workspace.
    fn has(&self, path: &str) -> bool {
        let is_type = |name: &&str| name.starts_with(char::is_uppercase);
        let module: Vec<&str> = path.split("::").take_while(|name| !is_type(name)).collect();
        CRATES.iter().all(|(name, _)| !is_in(path, name)) || self.modules.contains_key(&module.join("::"))
    }

    fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (from, module) in &self.modules {
            let mut import = |path: &[String], line| {
                let (to, item) = self.resolve(from, path, 0);
                imports.push(Import { from: from.clone(), to, item, place: format!("{}:{line}", module.file) });
            };
            module.paths().for_each(|(path, line)| import(path, line));
            let (mut calls, mut seen) = (module.calls.clone(), BTreeSet::new());
            while let Some((called, line)) = calls.pop() {
                if let Some(body) = self.macros.get(&called).filter(|_| seen.insert(called)) {
                    body.paths().for_each(|(path, _)| import(path, line));
                    calls.extend(body.calls.iter().map(|(called, _)| (called.clone(), line)));
                }
            }
        }
        imports
    }

    /// The module that has what `path` means in the module `here`, and its full path.
    fn resolve(&self, here: &str, path: &[String], depth: usize) -> (Option<String>, String) {
        let outside = (None, path.join("::"));
        let Some((first, mut rest)) = path.split_first().filter(|_| depth < 16) else { return outside };
        let mut module = match first.as_str() {
            "crate" => here.split("::").next().unwrap_or(here).to_owned(),
            "self" => here.to_owned(),
            "super" => parent(here).to_owned(),
            known if self.modules.contains_key(known) => known.to_owned(),
            _ => {
                rest = path;
                here.to_owned()
            }
        };
        while let Some((name, behind)) = rest.split_first() {
            let below = format!("{module}::{name}");
            if name == "super" {
                module = parent(&module).to_owned();
            } else if self.modules.contains_key(&below) {
                module = below;
            } else if let Some((_, path, _)) = self.modules[&module].names.iter().find(|(own, ..)| own == name) {
                let path = [path, behind].concat();
                // A crate's name stands for itself, also where `use` names it.
                return if path[0] == *name && module == here && rest.len() == path.len() && path == rest {
                    (None, path.join("::"))
                } else {
                    self.resolve(&module, &path, depth + 1)
                };
            } else if rest.len() == path.len() {
                return outside;
            } else {
                return (Some(module.clone()), format!("{module}::{}", rest.join("::")));
            }
            rest = behind;
        }
        (Some(module.clone()), module)
    }
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or(module, |(parent, _)| parent)
}

/// Whether `path` is `prefix` or lies in it.
fn is_in(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The imports of `module` that its rule does not allow: `!path` forbids, and where other paths are named, everything else
/// of the workspace is forbidden too. The root of a crate may hand on what is its own.
fn crossed(tree: &Tree, imports: &[Import], module: &str, rule: &[&str]) -> BTreeSet<String> {
    let named = rule.iter().map(|path| path.trim_start_matches('!')).chain([module]);
    let unknown = named.filter(|path| !tree.has(path)).map(|path| format!("{RULES}: there is no module {path}"));
    let forbidden: Vec<&str> = rule.iter().filter_map(|path| path.strip_prefix('!')).collect();
    let allowed: Vec<&&str> = rule.iter().filter(|path| !path.starts_with('!')).collect();
    let crosses = |import: &&Import| {
        let Import { from, to, item, .. } = *import;
        let forbidden = forbidden.iter().any(|path| is_in(item, path) && !is_in(from, path) && from != parent(path));
        let open = allowed.is_empty() || to.is_none() || is_in(item, module);
        is_in(from, module) && (forbidden || !open && !allowed.iter().any(|path| is_in(item, path)))
    };
    // One line a pair of modules says enough.
    let mut seen = BTreeSet::new();
    let once = |import: &&Import| seen.insert((import.from.clone(), import.to.clone().unwrap_or(import.item.clone())));
    let fault = |import: &Import| format!("{}: {module} may not use {}", import.place, import.item);
    unknown.chain(imports.iter().filter(crosses).filter(once).map(fault)).collect()
}

/// An import of one child of a module by another: where they part, and the place of the first such import.
type Edges<'i> = BTreeMap<(String, String), &'i str>;

/// A cycle for each module that is in one, but for those that are over without the edges `known`; and the known that are not
/// needed.
fn cycles(imports: &[Import], known: BTreeSet<(String, String)>) -> Vec<String> {
    let mut edges = Edges::new();
    for import in imports {
        let (from, to): (Vec<_>, Vec<_>) =
            (import.from.split("::").collect(), import.to.iter().flat_map(|to| to.split("::")).collect());
        let same = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
        if same > 0 && same < from.len() && same < to.len() {
            edges.entry((from[..=same].join("::"), to[..=same].join("::"))).or_insert(&import.place);
        }
    }
    let mut faults = Vec::new();
    let mut left = edges.clone();
    left.retain(|edge, _| !known.contains(edge));
    for edge in &known {
        let closes = edges.contains_key(edge) && !way(&left, &edge.1, &edge.0).is_empty();
        if !closes {
            faults.push(format!("{RULES}: {} -> {} closes no cycle any more", edge.0, edge.1));
        }
    }
    // Each cycle that is told is broken, so that those that are left are told too.
    while let Some(cycle) = left.keys().filter_map(|(from, to)| cycle(&left, from, to)).min_by_key(Vec::len) {
        let mut fault = format!("import cycle: {}", cycle.join(" -> "));
        for pair in cycle.windows(2) {
            let edge = (pair[0].clone(), pair[1].clone());
            fault += &format!("\n    {}: {} -> {}", left[&edge], edge.0, edge.1);
        }
        faults.push(fault);
        left.remove(&(cycle[0].clone(), cycle[1].clone()));
    }
    faults
}

/// The shortest cycle that begins with the edge from `from` to `to`.
fn cycle(edges: &Edges<'_>, from: &str, to: &str) -> Option<Vec<String>> {
    let way = way(edges, to, from);
    (!way.is_empty()).then(|| [vec![from.to_owned()], way].concat())
}

/// The shortest way from one module to another, both included; empty where there is none.
fn way(edges: &Edges<'_>, from: &str, to: &str) -> Vec<String> {
    let (mut before, mut next) = (BTreeMap::new(), VecDeque::from([from]));
    while let Some(module) = next.pop_front() {
        if module == to {
            let mut way = vec![to.to_owned()];
            while way[0] != from {
                way.insert(0, String::from(before[way[0].as_str()]));
            }
            return way;
        }
        for (_, to) in edges.keys().filter(|(from, _)| from == module) {
            if to != from && !before.contains_key(to.as_str()) {
                before.insert(to.as_str(), module);
                next.push_back(to);
            }
        }
    }
    Vec::new()
}

/// A name, `::`, or one other character.
struct Token {
    text: String,
    line: usize,
}

fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The tokens of `source`, without comments and the contents of strings and characters.
fn tokens(source: &str) -> Vec<Token> {
    let (mut tokens, mut line, mut rest) = (Vec::new(), 1, source);
    while let Some(c) = rest.chars().next() {
        let name = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let token = if name > 0 { &rest[..name] } else { &rest[..c.len_utf8()] };
        let behind = &rest[token.len()..];
        let hashes = behind.len() - behind.trim_start_matches('#').len();
        let is_raw = matches!(token, "r" | "br" | "cr") && behind[hashes..].starts_with('"');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            comment(rest)
        } else if is_raw {
            let open = token.len() + hashes + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            rest[open..].find(&close).map_or(rest.len(), |at| open + at + close.len())
        } else if c == '"' {
            quoted(rest, '"')
        } else if c == '\'' && (behind.starts_with('\\') || behind.chars().nth(1) == Some('\'')) {
            quoted(rest, '\'')
        } else {
            0
        };
        let taken = if skipped > 0 {
            skipped
        } else {
            let token = if rest.starts_with("::") { "::" } else { token };
            if !c.is_whitespace() {
                tokens.push(Token { text: token.into(), line });
            }
            token.len()
        };
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    tokens
}

/// Bytes of the block comment at the front; they nest.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(found) = text[at..].find("/*").into_iter().chain(text[at..].find("*/")).min() {
        at += found + 2;
        depth += if text[..at].ends_with("/*") { 1 } else { -1 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Bytes of the string or character at the front.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// The place of the bracket that closes the one at `open`, or the end.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_i32;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        depth += match token.text.as_str() {
            "{" | "[" | "(" => 1,
            "}" | "]" | ")" => -1,
            _ => 0,
        };
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Drops attributes, and what `#[cfg(test)]` or `#[cfg(all(test, ..))]` stands on.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let (mut kept, mut at, mut test) = (Vec::new(), 0, false);
    while at < tokens.len() {
        let inner = usize::from(text(&tokens, at + 1) == "!");
        if text(&tokens, at) == "#" && text(&tokens, at + 1 + inner) == "[" {
            let end = closing(&tokens, at + 1 + inner);
            let words: Vec<&str> = (at + 2..end).map(|at| text(&tokens, at)).collect();
            test |= words.starts_with(&["cfg", "(", "test"]) || words.starts_with(&["cfg", "(", "all", "(", "test"]);
            at = end + 1;
        } else if test {
            // To the end of the item: its body, or the semicolon.
            while at < tokens.len() && !matches!(text(&tokens, at), ";" | "{" | "," | "}") {
                at = if matches!(text(&tokens, at), "(" | "[") { closing(&tokens, at) + 1 } else { at + 1 };
            }
            at = if text(&tokens, at) == "{" { closing(&tokens, at) } else { at } + 1;
            test = false;
        } else {
            kept.push(Token { text: text(&tokens, at).into(), line: tokens[at].line });
            at += 1;
        }
    }
    kept
}

/// Reads what stands behind `use` and `prefix` into `names`; the place behind it.
fn used(tokens: &[Token], mut at: usize, prefix: &[String], names: &mut Vec<(String, Vec<String>, usize)>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        let line = tokens.get(at).map_or(0, |token| token.line);
        match text(tokens, at) {
            "::" => {}
            "{" => {
                let end = closing(tokens, at);
                while at < end {
                    at = used(&tokens[..end], at + 1, &path, names);
                }
                return end + 1;
            }
            "*" => names.push(("*".into(), path.clone(), line)),
            "self" if !path.is_empty() => {}
            name if is_name(name) && name != "as" => path.push(name.into()),
            _ => return at,
        }
        let last = path.last().cloned().unwrap_or_default();
        match (text(tokens, at + 1), text(tokens, at + 2)) {
            ("as", name) => {
                names.push((name.into(), path.clone(), line));
                at += 2;
            }
            (";" | "," | "", _) if text(tokens, at) != "*" && !path.is_empty() => {
                names.push((last, path.clone(), line))
            }
            _ => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a tree of `files` and `rules`.
    fn faults(files: &[(&str, &str)], rules: &str) -> Vec<String> {
        let name = format!("modules-{}-{:?}", std::process::id(), std::thread::current().id());
        let root = std::env::temp_dir().join(name);
        for (file, text) in files.iter().chain(&[(RULES, rules)]) {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), text).unwrap();
        }
        let (_, faults) = check(&root);
        std::fs::remove_dir_all(&root).unwrap();
        faults
    }

    const LIB: (&str, &str) = ("src/lib.rs", "mod a;\nmod b;\nmod c;\npub use a::One;");

    #[test]
    fn a_planted_cycle_is_told_with_the_lines_that_close_it() {
        let c = ("src/c/mod.rs", "mod d;\n");
        let found = faults(
            &[
                LIB,
                ("src/a.rs", "use crate::b::Two;"),
                ("src/b.rs", "\nuse super::c::d::X;"),
                c,
                ("src/c/d.rs", "fn f(one: crate::One) {}"),
            ],
            "",
        );
        let cycle = "import cycle: model_factory::a -> model_factory::b -> model_factory::c -> model_factory::a\n    \
            src/a.rs:1: model_factory::a -> model_factory::b\n    src/b.rs:2: model_factory::b -> model_factory::c\n    \
            src/c/d.rs:1: model_factory::c -> model_factory::a";
        assert_eq!(found, [cycle]);
        let within = ("src/c/mod.rs", "mod d { use super::e; }\nmod e { use super::d; }\n");
        assert!(faults(&[LIB, within], "")[0].starts_with("import cycle: model_factory::c::d -> "));
    }

    #[test]
    fn tests_comments_strings_and_parents_are_no_imports() {
        let b = "use crate::c; // use crate::a;\n/* crate::a /* crate::a */ crate::a */\n\
            const S: &str = \"crate::a \\\" crate::a\"; const R: &str = r#\"\" crate::a\"#; const C: char = '\"';\n\
            #[cfg(test)] use crate::a; #[cfg(test)] #[allow(x)] fn f() { crate::a::g() }\n\
            #[cfg(all(test, unix))] mod tests { use crate::a; }";
        let c = ("src/c.rs", "mod d { use super::E; }\nuse d::F;");
        assert_eq!(faults(&[LIB, ("src/a.rs", "use crate::b;"), ("src/b.rs", b), c], ""), [""; 0]);
    }

    #[test]
    fn what_a_macro_uses_is_used_by_who_calls_it() {
        let a = "macro_rules! m { () => { $crate::c::f() } }\nmacro_rules! n { () => { m!() } }\nuse crate::b;";
        let files = [LIB, ("src/a.rs", a), ("src/b.rs", "fn f() {\n n!() }"), ("src/c.rs", "use crate::b;")];
        let cycle = "import cycle: model_factory::b -> model_factory::c -> model_factory::b\n    \
            src/b.rs:2: model_factory::b -> model_factory::c\n    src/c.rs:1: model_factory::c -> model_factory::b";
        assert_eq!(faults(&files, ""), [cycle]);
    }

    #[test]
    fn a_planted_crossing_is_told() {
        let files = [
            LIB,
            ("src/a.rs", "use crate::{b::{self, Two}, c};\nuse std::{fs, path};"),
            ("src/b.rs", ""),
            ("src/c.rs", "fn f() { std::fs::read(x) }"),
        ];
        let allowed = "model_factory::a: model_factory::b !std::fs\nmodel_factory::c: !std::env # a reason";
        let crossed = [
            "src/a.rs:1: model_factory::a may not use model_factory::c",
            "src/a.rs:2: model_factory::a may not use std::fs",
        ];
        assert_eq!(faults(&files, allowed), crossed);
        let typing_error = ".ci/modules: there is no module model_factory::d";
        assert_eq!(faults(&files, "model_factory::a: !model_factory::d"), [typing_error]);
    }

    #[test]
    fn a_known_cycle_is_let_pass_until_it_is_resolved() {
        let known = "model_factory::b -> model_factory::a";
        let files = [LIB, ("src/a.rs", "use crate::b::Two;"), ("src/b.rs", "use crate::One;")];
        assert_eq!(faults(&files, known), [""; 0]);
        let stale = ".ci/modules: model_factory::b -> model_factory::a closes no cycle any more";
        assert_eq!(faults(&[LIB, ("src/a.rs", "use crate::b::Two;")], known), [stale]);
    }
}
