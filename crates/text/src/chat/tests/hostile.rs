//! Templates that would crash the process, or never end.

use super::*;
use std::time::{Duration, Instant};

/// Far above the time of any of them, which is two seconds, for a machine that does other work too.
const SOON: Duration = Duration::from_secs(30);

/// Each must end soon with the `expected` error: the name of a limit, or `fails` for a template that fails.
fn all_end(cases: &[(String, &str)]) {
    let mut wrong = Vec::new();
    for (source, expected) in cases {
        let begun = Instant::now();
        let rendered = rendered(source);
        let found = match &rendered {
            Ok(text) => format!("a text of {} bytes", text.len()),
            Err(Error::Chat(ChatError::Limit { what, .. })) => (*what).to_owned(),
            Err(Error::Chat(ChatError::Template { reason, .. })) if reason.contains("recursion limit") => {
                "recursion".to_owned()
            }
            Err(Error::Chat(ChatError::Template { .. })) => "fails".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        let (taken, shown) = (begun.elapsed(), source.chars().take(160).collect::<String>());
        println!("{taken:?} {found}: {shown}");
        if found != *expected || taken > SOON {
            wrong.push(format!("{shown}\n  found {found} in {taken:?}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// `before`, then `step` a hundred thousand times, then `after`.
fn looped(before: &str, step: &str, after: &str) -> String {
    format!("{before}{{% for i in range(100000) %}}{step}{{% endfor %}}{after}")
}

const LEVELS: &str = "levels of nested values";
const WORK: &str = "units of work";

#[test]
fn values_that_nest_without_end_are_refused() {
    let list = "{% set ns = namespace(x=[]) %}";
    let mut cases = Vec::new();
    for after in
        ["", "{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}", "{{ ns.x == ns.x }}", "{{ ns.x in [ns.x] }}"]
    {
        for step in [
            "{% set ns.x = [ns.x] %}",
            "{% set ns.x = (ns.x,) %}",
            "{% set ns.x = {'a': ns.x} %}",
            "{% set ns.x = dict(a=ns.x) %}",
            "{% set ns.x = [ns.x] | batch(1) %}",
            "{% set ns.x = [ns.x] | list %}",
            "{% set ns.x = {'a': ns.x} | items %}",
            "{% set ns.x = {'a': ns.x}.items() %}",
        ] {
            cases.push((looped(list, step, after), LEVELS));
        }
    }
    cases.extend([
        // A namespace that holds another could come to hold itself.
        ("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}".into(), "fails"),
        ("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}".into(), "fails"),
        ("{% set ns = namespace() %}{% set ns.x = {'a': ns} %}{{ ns.x | tojson }}".into(), "fails"),
        ("{% set ns = namespace() %}{% set ns.x = dict(a=ns) %}".into(), "fails"),
        ("{% set a = namespace() %}{% set b = namespace(a=a) %}".into(), "fails"),
        ("{% set a = namespace() %}{% set b = {'b': 1} | map('default', a) | list %}".into(), "a text of 0 bytes"),
        ("{% set a = namespace() %}{{ [1, missing] | map('default', a) | list }}".into(), "fails"),
        // A loop holds its items, and these hold the previous loop.
        (looped(list, "{% for a in [ns.x] %}{% set ns.x = loop %}{% endfor %}", ""), "fails"),
        (looped(list, "{% for a in [ns.x] %}{% set ns.x = [loop] %}{% endfor %}", ""), "fails"),
        (looped(list, "{% for a in [ns.x] %}{% set ns.x = loop.previtem or [a] %}{% endfor %}", ""), LEVELS),
        ("{% for a in [1] %}{{ loop }}{% endfor %}".into(), "fails"),
        ("{% macro m() %}{% endmacro %}{{ m }}".into(), "fails"),
        ("{% macro m() %}{% endmacro %}{{ [m] | tojson }}".into(), "fails"),
        ("{{ range }}".into(), "fails"),
        ("{{ namespace() }}".into(), "fails"),
        ("{{ namespace() | tojson }}".into(), "fails"),
    ]);
    all_end(&cases);
}

#[test]
fn tags_that_nest_without_end_are_refused() {
    const TOKENS: &str = "tokens in one tag";
    let many = 100_000;
    let chain = |item: &str| format!("{{{{ x{} }}}}", item.repeat(many));
    let mut cases: Vec<(String, &str)> = Vec::new();
    for item in
        ["+x", "~x", "-x", "**x", " and x", " or x", ".a", "[0]", "(0)", "|f", "==x", " if x else x", "<x", "[0:]"]
    {
        cases.push((chain(item), TOKENS));
    }
    for open in ["(", "[", "{1:", "not ", "-", "x(", "x[", "+"] {
        cases.push((format!("{{{{ {}", open.repeat(many)), TOKENS));
    }
    cases.extend([
        (format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(many)), "branches of conditions"),
        (format!("{}{}", "{% if x %}".repeat(many), "{% endif %}".repeat(many)), "recursion"),
        (format!("{}{}", "{% for x in y %}".repeat(many), "{% endfor %}".repeat(many)), "recursion"),
        ("{% macro m() %}".repeat(many), "recursion"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(1000), ")".repeat(1000)), "recursion"),
        (format!("{{{{ {}{} }}}}", "[".repeat(1000), "]".repeat(1000)), "recursion"),
    ]);
    all_end(&cases);
}

/// Templates just within the limits are rendered, and their stack suffices.
#[test]
fn the_deepest_that_is_allowed_fits_the_stack() {
    let mut cases: Vec<(String, &str)> = Vec::new();
    let tokens = rewrite::TAG_TOKENS - 8;
    for (first, item, each) in [
        ("1", "+1", 2),
        ("''", "~''", 2),
        ("x", " or x", 2),
        ("x", "|d", 2),
        ("x", "|d()", 4),
        ("''", ".upper()", 4),
        ("''", "[0:]", 5),
        ("1", "==1", 2),
        ("not ", "not ", 1),
        ("-", "-", 1),
    ] {
        let end = if matches!(first, "not " | "-") { "1" } else { "" };
        cases.push((format!("{{% set y = {first}{}{end} %}}", item.repeat(tokens / each)), "a text of 0 bytes"));
    }
    let elifs = format!("{{% if x %}}{}{{% endif %}}", "{% elif x %}".repeat(rewrite::ELIFS));
    cases.push((elifs, "a text of 0 bytes"));
    let nested = 140;
    let ifs = format!("{}{}", "{% if 1 %}".repeat(nested), "{% endif %}".repeat(nested));
    cases.push((ifs, "a text of 0 bytes"));
    let deepest = limits::DEPTH - 1;
    for after in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == ns.x }}"] {
        let source = format!(
            "{{% set ns = namespace(x=[]) %}}{{% for i in range({deepest}) %}}{{% set ns.x = [ns.x] %}}{{% endfor %}}\
             {{% set y %}}{after}{{% endset %}}"
        );
        cases.push((source, "a text of 0 bytes"));
    }
    all_end(&cases);
}

#[test]
fn recursion_is_bounded() {
    let endless = [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% set x = m() %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}\
         {% macro n() %}{% call m() %}{{ n() }}{% endcall %}{% endmacro %}{{ n() }}",
        "{% set ns = namespace(x=[1]) %}{% for a in ns.x recursive %}{{ loop(ns.x) }}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for a in ns.x recursive %}{% set y = loop(ns.x) %}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% block a %}{% set x = self.a() %}{% endblock %}",
    ];
    // No template can include another, or itself.
    let others = [
        "{% include '<template>' %}",
        "{% extends '<template>' %}",
        "{% import '<template>' as t %}",
        "{% from '<template>' import t %}",
    ];
    let mut cases: Vec<_> = endless.iter().map(|source| ((*source).to_owned(), "recursion")).collect();
    cases.extend(others.iter().map(|source| ((*source).to_owned(), "fails")));
    all_end(&cases);
}

#[test]
fn operations_that_take_too_much_are_refused() {
    let text = "{% set ns = namespace(x='x' * 1000000, y='y' * 1000) %}";
    let list = "{% set ns = namespace(x=[1, 2, 3], y=range(1000) | list) %}";
    let mut cases: Vec<(String, &str)> = Vec::new();
    for (before, step) in [
        (text, "{% set ns.x = ns.x ~ ns.x %}"),
        (text, "{% set ns.x = ns.x + ns.x %}"),
        (text, "{% set ns.x = [ns.x, ns.x] | join %}"),
        (text, "{% set ns.x = ns.x.replace('x', 'xx') %}"),
        (text, "{% set ns.x = ns.x | replace('x', 'xx') %}"),
        (text, "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        (text, "{% set y %}{% filter upper %}{{ ns.x }}{% endfilter %}{% endset %}"),
        (text, "{% set y = 'x' * 50000000 %}"),
        (text, "{% set y = 'y' in ns.x %}"),
        (text, "{% set y = ns.x == 'x' * 1000000 %}"),
        (text, "{% set y = ns.x < ns.x ~ 'y' %}"),
        (text, "{% set y = ns.x | length %}"),
        (text, "{% set y = ns.x | upper %}"),
        (text, "{% set y = ns.x[::-1] %}"),
        (text, "{% set y = ns.x[999999] %}"),
        (text, "{% set y = ns.x.count('x') %}"),
        (text, "{% set y = ns.x.split('y') %}"),
        (text, "{% set y = ns.x is upper %}"),
        (text, "{% set y = {ns.x: 1} %}"),
        (text, "{% set y = messages[0][ns.x] %}"),
        (text, "{% set y = ns.x | list %}"),
        (text, "{% for c in ns.x %}{% break %}{% endfor %}"),
        (text, "{% for c in messages %}{{ loop.changed(ns.x) or '' }}{% endfor %}"),
        (text, "{% set y = ns.x.strip(ns.x) %}"),
        (text, "{% set y = '{}'.format(ns.x) %}"),
        (list, "{% set ns.x = [ns.x, ns.x] %}"),
        (list, "{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
        (list, "{% set ns.x = ns.x + ns.x %}"),
        (list, "{% set y = ns.y * 10000 %}"),
        (list, "{% set y = ns.y[::-1] %}"),
        (list, "{% set y = ns.y[1:] %}"),
        (list, "{% set y = ns.y | sort %}"),
        (list, "{% set y = ns.y | unique | list %}"),
        (list, "{% set y = ns.y | map('string') | list %}"),
        (list, "{% set y = ns.y | select('in', ns.y) | list %}"),
        (list, "{% set y = ns.y | tojson %}"),
        (list, "{% set y = ns.y | batch(3) | list %}"),
        (list, "{% set y = ns.y.index(999) %}"),
        (list, "{% set y = 1001 in ns.y %}"),
        (
            list,
            "{% macro m() %}{{ i }}{{ ns }}{% endmacro %}{% for a in ns.y %}{% macro n() %}{{ a }}{% endmacro %}{% endfor %}",
        ),
        (list, "{% set y = range(100000) %}"),
        (list, "{% do range(100000) %}"),
        (list, "{% set y = dict(ns.y | map('string') | zip) %}"),
    ] {
        let expected = match () {
            () if step.contains("zip") => "fails",
            () if step.contains("macro") => "instructions",
            () => WORK,
        };
        cases.push((looped(before, step, ""), expected));
    }
    // Without a loop: a value that grows is made of itself.
    let doubled = |start: &str, step: &str, after: &str| format!("{{% set x = {start} %}}{}{after}", step.repeat(60));
    for (start, step, after) in [
        ("'x'", "{% set x = x ~ x %}", ""),
        ("'x'", "{% set x = x + x %}", ""),
        ("'x'", "{% set x = x * 2 %}", ""),
        ("[1]", "{% set x = [x, x] %}", "{{ x }}"),
        ("[1]", "{% set x = [x, x] %}", "{{ x | string }}"),
        ("[1]", "{% set x = [x, x] %}", "{{ x == x }}"),
        ("[1]", "{% set x = x + x %}", "{{ x | length }}"),
        ("[1]", "{% set x = x * 2 %}", "{{ x | length }}"),
        ("{'a': 1}", "{% set x = {'a': x, 'b': x} %}", "{{ x | tojson }}"),
    ] {
        cases.push((doubled(start, step, after), WORK));
    }
    all_end(&cases);
}

#[test]
fn numbers_that_ask_for_too_much_are_refused() {
    let cases = [
        ("{{ range(1000000000) | length }}", "numbers in a range"),
        ("{{ range(0, -1000000000, -1) | length }}", "numbers in a range"),
        ("{{ range(-9223372036854775807, 9223372036854775807) | list }}", "numbers in a range"),
        ("{{ 'x' * 1000000000 }}", "fails"),
        ("{{ 1000000000 * 'x' }}", "fails"),
        ("{{ 'x' * 100000000 }}", WORK),
        ("{{ [1] * 1000000000 }}", "fails"),
        ("{{ [1] * 100000000 }}", WORK),
        ("{{ 'a\nb' | indent(1000000000) }}", "spaces in a margin"),
        ("{{ 'a\nb' | indent(width=1000000000) }}", "spaces in a margin"),
        ("{{ [1] | tojson(indent=1000000000) }}", "spaces in a margin"),
        ("{{ '%1000000000d' | format(1) }}", "characters in a field"),
        ("{{ '%.1000000000f' | format(1.5) }}", "characters in a field"),
        ("{{ '%*d' | format(1000000000, 1) }}", "fails"),
        ("{{ '{:1000000000}'.format(1) }}", "characters in a field"),
        ("{{ '{:{}}'.format(1, 1000000000) }}", "fails"),
        ("{{ '%1000000000d' % 1 }}", "fails"),
        ("{{ 'x'.center(1000000000) }}", WORK),
        ("{{ 'x'.zfill(1000000000) }}", WORK),
        ("{{ [1] | batch(1000000000, 'x') | list }}", WORK),
        ("{{ [1] | slice(1000000000) | list }}", WORK),
        ("{{ 1.5 | round(1000000000) }}", "a text of 3 bytes"),
        ("{{ 10 ** 1000000000 }}", "fails"),
        ("{{ strftime_now('%1000000000Y') }}", "fails"),
        ("{% set f = '%A' * 500000 %}{% for i in range(99999) %}{% set x = strftime_now(f) %}{% endfor %}", WORK),
        ("{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}", "a text of 1 bytes"),
        ("{{ 'abc'[9223372036854775807:-9223372036854775807:-9223372036854775807] }}", "a text of 1 bytes"),
        ("{{ ''[::-1] }}{{ [][::-1] | length }}", "a text of 1 bytes"),
        ("{{ (('x' * 1000000) | list | join('y' * 1000000)) | length }}", WORK),
        ("{{ ('x' * 1000000).replace('x', 'y' * 1000000) | length }}", WORK),
        ("{{ ('{0}' * 1000000).format('y' * 1000000) | length }}", WORK),
        ("{{ (range(100000) | list) | map('indent', 'x' * 1000000) | join }}", WORK),
        ("{{ ([1] * 100000) | tojson(indent='x' * 1000000) }}", WORK),
        ("{{ ([1] * 100000) | tojson(separators=('x' * 1000000, ':')) }}", WORK),
        ("{% for i in range(99999) %}a text of some twenty bytes{% endfor %}", "bytes of text"),
    ];
    all_end(&cases.map(|(source, expected)| (source.to_owned(), expected)));
}

/// Tags of random tokens are rendered or refused; none shows a bug of the engine or of this library.
#[test]
fn random_tags_never_panic() {
    const TOKENS: [&str; 64] = [
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "{% if ",
        "{% endif %}",
        "{% for ",
        "{% endfor %}",
        "{% set ",
        "{% macro m(",
        "{% endmacro %}",
        "{% else %}",
        "{% elif ",
        "{% with ",
        "{% endset %}",
        "{% call m() %}",
        "{% endcall %}",
        "{% block a %}",
        "{% endblock %}",
        "{% filter ",
        "{% endfilter %}",
        "{% do ",
        " in ",
        " is ",
        " not ",
        " and ",
        " if ",
        " else ",
        "|",
        ".",
        ",",
        ":",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "=",
        "==",
        "<",
        "+",
        "-",
        "*",
        "**",
        "//",
        "%",
        "~",
        "'a'",
        "'%s{}'",
        "1",
        "-1",
        "0.5",
        "none",
        "true",
        "messages",
        "ns",
        "namespace(x=1)",
        "loop",
        "tojson",
        "split",
        "range(3)",
        "items()",
        "[::-1]",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let (mut texts, mut faults) = (0, Vec::new());
    for _ in 0..20_000 {
        let inside: String = (0..1 + next(8)).map(|_| TOKENS[next(TOKENS.len())]).collect();
        let source = match next(3) {
            0 => format!("{{{{ {inside} }}}}"),
            1 => format!("{{% set ns = namespace(x=messages) %}}{{{{ {inside} }}}}"),
            _ => inside,
        };
        match rendered(&source) {
            Ok(_) => texts += 1,
            Err(Error::Chat(ChatError::Template { reason, .. })) if reason.contains("fault") => faults.push(source),
            Err(Error::Chat(ChatError::Template { .. }) | Error::Chat(ChatError::Limit { .. })) => {}
            Err(error) => faults.push(format!("{source}: {error}")),
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
    // Enough of them must be valid.
    assert!(texts > 1000, "{texts} were rendered");
}
