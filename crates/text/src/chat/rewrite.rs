//! Parsed template -> instructions in which every operation that may be expensive passes a guard.
//!
//! The engine counts instructions, but not the cost of each: `x ~ x` doubles a text, and `[x, x]` the cost of
//! printing it. So the parsed template is rewritten, with calls of the functions of [`super::limits`] and
//! [`super::operators`] where values grow, are compared, or are assigned. Every text of the template gets its marks
//! ([`super::marks`]), except where it is only compared.
//!
//! The engine has no hook between an operator and its result, so this needs its syntax tree, which it calls unstable.
//! Every kind of node is matched and made with all its fields: a release with another syntax does not compile here, so no
//! node bypasses the guards. The syntax changes with minor versions, hence `~3.0.5` in `Cargo.toml`.

use super::limits::Exceeded;
use super::marks;
use minijinja::machinery::ast::{self, BinOpKind, CallArg, Expr, Spanned, Stmt, UnaryOpKind};
use minijinja::machinery::{CodeGenerator, Instructions, Span, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};
use std::collections::BTreeMap;

/// Filters and functions of the rewritten template. No template can name them: a name cannot begin with `<`.
pub(super) const WEIGHED: &str = "<weighed>";
pub(super) const UNMARKED: &str = "<unmarked>";
pub(super) const OWN: &str = "<own>";
pub(super) const SCANNED: &str = "<scanned>";
pub(super) const KEPT: &str = "<kept>";
pub(super) const ITERATED: &str = "<iterated>";
pub(super) const INDEXED: &str = "<indexed>";
pub(super) const KEY: &str = "<key>";
pub(super) const COMPARED: &str = "<compared>";
pub(super) const CONCAT: &str = "<concat>";
pub(super) const SLICE: &str = "<slice>";
pub(super) const LESS: &str = "<less>";
pub(super) const AT_MOST: &str = "<at most>";
pub(super) const MORE: &str = "<more>";
pub(super) const AT_LEAST: &str = "<at least>";
pub(super) const WITHIN: &str = "<within>";
pub(super) const ASSIGN: &str = "<assign>";
const CAPTURED: &str = "<captured>";

/// The most tokens of one tag and `elif`s of a template: the parser nests an expression or a condition by at most one level for
/// each. Published templates have under 300 and 20.
pub(super) const TAG_TOKENS: usize = 4096;
pub(super) const ELIFS: usize = 1024;

/// The instructions of a template, and of its blocks.
pub(super) type Compiled<'a> = (Instructions<'a>, BTreeMap<&'a str, Instructions<'a>>);

/// Refuses templates that nest too deep for the parser, or that the parser reads differently from Python.
pub(super) fn check(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let (mut tokens, mut elifs) = (0, 0);
    // The parser reports invalid tokens.
    for (token, span) in tokenize(source, false, syntax.clone()).map_while(Result::ok) {
        match token {
            Token::BlockStart | Token::VariableStart => tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => tokens += 1,
        }
        Exceeded::check("tokens in one tag", tokens, TAG_TOKENS)?;
        Exceeded::check("branches of conditions", elifs, ELIFS)?;
        let text = source.get(span.start_offset as usize..span.end_offset as usize);
        if let (Token::String(_), Some(text)) = (token, text)
            && let Some(escape) = foreign_escape(text)
        {
            let reason = format!("the escape \\{escape} in line {} is not known", span.start_line);
            return Err(Error::new(ErrorKind::SyntaxError, reason));
        }
    }
    Ok(())
}

/// An escape that Python reads differently from the engine.
fn foreign_escape(text: &str) -> Option<char> {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        // Python does not join two surrogates to one character.
        let half = escaped == Some('u')
            && matches!(characters.as_str().as_bytes(), [b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..]);
        if half || escaped.is_some_and(|escaped| "UNav/\n".contains(escaped)) {
            return escaped;
        }
    }
    None
}

/// Compiles `source` with its guards.
pub(super) fn compile<'a>(source: &'a str, syntax: &SyntaxConfig) -> Result<Compiled<'a>, Error> {
    const NAME: &str = "<template>";
    let parsed = parse(source, NAME, syntax.clone())?;
    let mut generator = CodeGenerator::new(NAME, source);
    for statement in statements(std::slice::from_ref(&parsed)) {
        generator.compile_stmt(&statement);
    }
    Ok(generator.finish())
}

fn statements<'a>(nodes: &[Stmt<'a>]) -> Vec<Stmt<'a>> {
    let mut written = Vec::with_capacity(nodes.len());
    for node in nodes {
        statement(node, &mut written);
    }
    written
}

/// `written` at the place of `node`.
fn at<T, U>(node: &Spanned<T>, written: U) -> Spanned<U> {
    Spanned::new(written, node.span())
}

fn statement<'a>(node: &Stmt<'a>, written: &mut Vec<Stmt<'a>>) {
    let rewritten = match node {
        Stmt::Template(node) => Stmt::Template(at(node, ast::Template { children: statements(&node.children) })),
        Stmt::EmitExpr(node) => emitted(expression(&node.expr), node.span()),
        // As an expression it passes the formatter, which counts its cost.
        Stmt::EmitRaw(node) => emitted(constant(marks::own(node.raw), node.span()), node.span()),
        Stmt::ForLoop(node) => {
            let (target, iter) = (target(&node.target), guarded(ITERATED, &node.iter));
            let (filter_expr, recursive) = (optional(&node.filter_expr), node.recursive);
            let (body, else_body) = (statements(&node.body), statements(&node.else_body));
            Stmt::ForLoop(at(node, ast::ForLoop { target, iter, filter_expr, recursive, body, else_body }))
        }
        Stmt::IfCond(node) => {
            let (true_body, false_body) = (statements(&node.true_body), statements(&node.false_body));
            Stmt::IfCond(at(node, ast::IfCond { expr: expression(&node.expr), true_body, false_body }))
        }
        Stmt::WithBlock(node) => {
            let assignments = node.assignments.iter();
            let assignments = assignments.map(|(to, value)| (target(to), unpacked(to, value))).collect();
            Stmt::WithBlock(at(node, ast::WithBlock { assignments, body: statements(&node.body) }))
        }
        Stmt::Set(node) => match &node.target {
            Expr::GetAttr(to) => assigned(to, expression(&node.expr), node.span()),
            to => Stmt::Set(at(node, ast::Set { target: target(to), expr: unpacked(to, &node.expr) })),
        },
        Stmt::SetBlock(node) => {
            let (filter, body) = (optional(&node.filter), statements(&node.body));
            let block = |target| Stmt::SetBlock(at(node, ast::SetBlock { target, filter, body }));
            match &node.target {
                Expr::GetAttr(to) => {
                    written.push(block(variable(CAPTURED, node.span())));
                    assigned(to, variable(CAPTURED, node.span()), node.span())
                }
                to => block(target(to)),
            }
        }
        Stmt::AutoEscape(node) => {
            let enabled = guarded(UNMARKED, &node.enabled);
            Stmt::AutoEscape(at(node, ast::AutoEscape { enabled, body: statements(&node.body) }))
        }
        Stmt::FilterBlock(node) => {
            let filter = expression(&node.filter);
            Stmt::FilterBlock(at(node, ast::FilterBlock { filter, body: statements(&node.body) }))
        }
        Stmt::Block(node) => {
            let (name, required) = (node.name, node.required);
            Stmt::Block(at(node, ast::Block { name, required, body: statements(&node.body) }))
        }
        Stmt::Import(node) => {
            Stmt::Import(at(node, ast::Import { expr: expression(&node.expr), name: target(&node.name) }))
        }
        Stmt::FromImport(node) => {
            let names = node.names.iter().map(|(name, to)| (target(name), to.as_ref().map(target))).collect();
            Stmt::FromImport(at(node, ast::FromImport { expr: expression(&node.expr), names }))
        }
        Stmt::Extends(node) => Stmt::Extends(at(node, ast::Extends { name: expression(&node.name) })),
        Stmt::Include(node) => {
            let (name, ignore_missing) = (expression(&node.name), node.ignore_missing);
            Stmt::Include(at(node, ast::Include { name, ignore_missing }))
        }
        Stmt::Macro(node) => Stmt::Macro(declared(node)),
        Stmt::CallBlock(node) => {
            let (call, macro_decl) = (called(&node.call), declared(&node.macro_decl));
            Stmt::CallBlock(at(node, ast::CallBlock { call, macro_decl }))
        }
        Stmt::Continue(node) => Stmt::Continue(at(node, ast::Continue)),
        Stmt::Break(node) => Stmt::Break(at(node, ast::Break)),
        Stmt::Do(node) => Stmt::Do(at(node, ast::Do { call: called(&node.call) })),
    };
    written.push(rewritten);
}

fn emitted(expr: Expr<'_>, span: Span) -> Stmt<'_> {
    Stmt::EmitExpr(Spanned::new(ast::EmitExpr { expr }, span))
}

fn variable(id: &str, span: Span) -> Expr<'_> {
    Expr::Var(Spanned::new(ast::Var { id }, span))
}

fn constant<'a>(value: impl Into<Value>, span: Span) -> Expr<'a> {
    Expr::Const(Spanned::new(ast::Const { value: value.into() }, span))
}

/// A constant of the template; `text` converts its text.
fn literal<'a>(node: &Spanned<ast::Const>, text: impl Fn(&str) -> String) -> Expr<'a> {
    constant(node.value.as_str().map_or_else(|| node.value.clone(), |own| Value::from(text(own))), node.span())
}

fn call<'a>(function: &'a str, args: impl IntoIterator<Item = Expr<'a>>, span: Span) -> Expr<'a> {
    let args = args.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(ast::Call { expr: variable(function, span), args }, span))
}

/// `{% set to.name = value %}`: a function assigns, and its result writes nothing.
fn assigned<'a>(to: &Spanned<ast::GetAttr<'a>>, value: Expr<'a>, span: Span) -> Stmt<'a> {
    emitted(call(ASSIGN, [expression(&to.expr), constant(to.name, span), value], span), span)
}

fn declared<'a>(node: &Spanned<ast::Macro<'a>>) -> Spanned<ast::Macro<'a>> {
    let (args, defaults) = (node.args.iter().map(target).collect(), expressions(&node.defaults));
    at(node, ast::Macro { name: node.name, args, defaults, body: statements(&node.body) })
}

/// Names that are assigned stay as they are.
fn target<'a>(node: &Expr<'a>) -> Expr<'a> {
    match node {
        Expr::Tuple(node) => Expr::Tuple(at(node, ast::Tuple { items: node.items.iter().map(target).collect() })),
        Expr::List(node) => Expr::List(at(node, ast::List { items: node.items.iter().map(target).collect() })),
        node => expression(node),
    }
}

/// The value that is assigned to several names; its items are counted one by one.
fn unpacked<'a>(to: &Expr<'a>, value: &Expr<'a>) -> Expr<'a> {
    match to {
        Expr::Tuple(_) | Expr::List(_) => guarded(SCANNED, value),
        _ => expression(value),
    }
}

/// `node` passed through the filter `guard`.
fn guarded<'a>(guard: &'a str, node: &Expr<'a>) -> Expr<'a> {
    after(guard, expression(node))
}

/// `node` passed through the filter `guard`, which only inspects it: a text of the template needs no marks there.
fn looked_at<'a>(guard: &'a str, node: &Expr<'a>) -> Expr<'a> {
    match node {
        Expr::Const(node) => after(guard, literal(node, |text| marks::given(text).into_owned())),
        node => guarded(guard, node),
    }
}

fn after<'a>(guard: &'a str, node: Expr<'a>) -> Expr<'a> {
    let span = node.span();
    Expr::Filter(Spanned::new(ast::Filter { name: guard, expr: Some(node), args: Vec::new() }, span))
}

fn called<'a>(node: &Spanned<ast::Call<'a>>) -> Spanned<ast::Call<'a>> {
    // `loop.changed(value)` compares with the previous value.
    let compares = matches!(&node.expr, Expr::GetAttr(attribute) if attribute.name == "changed");
    at(node, ast::Call { expr: expression(&node.expr), args: arguments(&node.args, compares) })
}

fn arguments<'a>(args: &[CallArg<'a>], weighed: bool) -> Vec<CallArg<'a>> {
    let argument = |node: &Expr<'a>| if weighed { guarded(UNMARKED, node) } else { expression(node) };
    let written = args.iter().map(|arg| match arg {
        CallArg::Pos(node) => CallArg::Pos(argument(node)),
        CallArg::Kwarg(name, node) => CallArg::Kwarg(name, argument(node)),
        CallArg::PosSplat(node) => CallArg::PosSplat(guarded(SCANNED, node)),
        CallArg::KwargSplat(node) => CallArg::KwargSplat(guarded(SCANNED, node)),
    });
    written.collect()
}

fn expressions<'a>(nodes: &[Expr<'a>]) -> Vec<Expr<'a>> {
    nodes.iter().map(expression).collect()
}

fn optional<'a>(node: &Option<Expr<'a>>) -> Option<Expr<'a>> {
    node.as_ref().map(expression)
}

fn expression<'a>(node: &Expr<'a>) -> Expr<'a> {
    match node {
        Expr::Var(node) => variable(node.id, node.span()),
        Expr::Const(node) => literal(node, marks::own),
        Expr::Slice(node) => {
            let bounds = [&node.start, &node.stop, &node.step].map(optional);
            let bounds = bounds.map(|bound| bound.unwrap_or_else(|| constant((), node.span())));
            call(SLICE, [expression(&node.expr)].into_iter().chain(bounds), node.span())
        }
        Expr::UnaryOp(node) => {
            #[allow(clippy::needless_match)] // the engine's kind is not Copy, and a new one shall not compile
            let op = match node.op {
                UnaryOpKind::Not => UnaryOpKind::Not,
                UnaryOpKind::Neg => UnaryOpKind::Neg,
            };
            Expr::UnaryOp(at(node, ast::UnaryOp { op, expr: expression(&node.expr) }))
        }
        Expr::BinOp(node) => operation(node),
        Expr::Compare(node) => {
            let ops = node.ops.iter();
            let ops = ops.map(|op| ast::CompareOp { op: op.op, expr: looked_at(UNMARKED, &op.expr) }).collect();
            Expr::Compare(at(node, ast::Compare { expr: looked_at(UNMARKED, &node.expr), ops }))
        }
        Expr::IfExpr(node) => {
            let (test_expr, true_expr) = (expression(&node.test_expr), expression(&node.true_expr));
            let false_expr = optional(&node.false_expr);
            Expr::IfExpr(at(node, ast::IfExpr { test_expr, true_expr, false_expr }))
        }
        Expr::Filter(node) => {
            let (expr, args) = (optional(&node.expr), arguments(&node.args, false));
            Expr::Filter(at(node, ast::Filter { name: node.name, expr, args }))
        }
        Expr::Test(node) => {
            let (expr, args) = (expression(&node.expr), arguments(&node.args, false));
            Expr::Test(at(node, ast::Test { name: node.name, expr, args }))
        }
        Expr::GetAttr(node) => Expr::GetAttr(at(node, ast::GetAttr { expr: expression(&node.expr), name: node.name })),
        Expr::GetItem(node) => {
            let (expr, subscript_expr) = (guarded(INDEXED, &node.expr), looked_at(KEY, &node.subscript_expr));
            Expr::GetItem(at(node, ast::GetItem { expr, subscript_expr }))
        }
        Expr::Call(node) => Expr::Call(called(node)),
        Expr::List(node) => after(WEIGHED, Expr::List(at(node, ast::List { items: expressions(&node.items) }))),
        Expr::Tuple(node) => after(WEIGHED, Expr::Tuple(at(node, ast::Tuple { items: expressions(&node.items) }))),
        Expr::Map(node) => {
            let keys = node.keys.iter().map(|key| looked_at(KEY, key)).collect();
            after(WEIGHED, Expr::Map(at(node, ast::Map { keys, values: expressions(&node.values) })))
        }
    }
}

/// `left op right` by one of the functions of [`super::operators`].
fn by_function<'a>(function: &'a str, node: &Spanned<ast::BinOp<'a>>) -> Expr<'a> {
    call(function, [expression(&node.left), expression(&node.right)], node.span())
}

fn operation<'a>(node: &Spanned<ast::BinOp<'a>>) -> Expr<'a> {
    let operands = |operand: &dyn Fn(&Expr<'a>) -> Expr<'a>| {
        let (left, right) = (operand(&node.left), operand(&node.right));
        Expr::BinOp(at(node, ast::BinOp { op: node.op, left, right }))
    };
    match node.op {
        BinOpKind::Concat => by_function(CONCAT, node),
        // Guarded operands are not constants, which the compiler would compute without counting the cost.
        BinOpKind::Add | BinOpKind::Mul => {
            let is_text = |node: &Expr<'a>| matches!(node, Expr::Const(node) if node.value.as_str().is_some());
            if matches!(node.op, BinOpKind::Mul) && (is_text(&node.left) || is_text(&node.right)) {
                // The result of repeating a text gets the marks.
                after(OWN, after(KEPT, operands(&|node| looked_at(SCANNED, node))))
            } else {
                after(KEPT, operands(&|node| guarded(SCANNED, node)))
            }
        }
        BinOpKind::Eq | BinOpKind::Ne => operands(&|node| looked_at(COMPARED, node)),
        BinOpKind::Lt => by_function(LESS, node),
        BinOpKind::Lte => by_function(AT_MOST, node),
        BinOpKind::Gt => by_function(MORE, node),
        BinOpKind::Gte => by_function(AT_LEAST, node),
        BinOpKind::In => by_function(WITHIN, node),
        BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Sub
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem
        | BinOpKind::Pow => operands(&expression),
    }
}
