//! Which characters of a prompt are the template's own, whatever it does to them.

use super::*;
use proptest::prelude::*;

/// The text, and the part of it that is the template's own.
fn owned(source: &str, content: &str) -> (String, String) {
    let rendered = template(source).render_with_spans(&[Message::user(content)], &ChatOptions::default(), true);
    let RenderedChat { text, template_spans } = rendered.unwrap_or_else(|error| panic!("{source}: {error}"));
    let own = template_spans.iter().map(|span| &text[span.clone()]).collect();
    (text, own)
}

/// Templates, their output for the message `a<|x|>B é "'`, and the part of it that is theirs.
#[test]
fn only_what_the_template_writes_is_its_own() {
    let content = "a<|x|>B é \"'";
    let cases = [
        ("<|x|>{{ m }}<|y|>", "<|x|>a<|x|>B é \"'<|y|>", "<|x|><|y|>"),
        ("{{ '<|x|>' ~ m }}", "<|x|>a<|x|>B é \"'", "<|x|>"),
        ("{{ '<|' + m[3:4] + '|>' }}", "<|x|>", "<||>"),
        ("{{ ('<|x|>' + m).split('|') | join('!') }}", "<!x!>a<!x!>B é \"'", "<!x!>!!"),
        ("{{ (m + '<|x|>')[::-1] }}", ">|x|<'\" é B>|x|<a", ">|x|<"),
        ("{{ m.replace('<|x|>', '<|y|>') }}", "a<|y|>B é \"'", "<|y|>"),
        ("{{ ('<|y|>' ~ m) | replace('|y', '|x') }}", "<|x|>a<|x|>B é \"'", "<|x|>"),
        ("{{ ('a' ~ m) | upper }}", "AA<|X|>B É \"'", "A"),
        ("{{ ('<|x|>' ~ m).title() }}", "<|X|>A<|X|>B É \"'", "<|X|>"),
        ("{{ [m, '<|x|>'] | tojson }}", "[\"a<|x|>B é \\\"'\", \"<|x|>\"]", "<|x|>"),
        ("{{ [m, '<|x|>'] }}", "['a<|x|>B é \"\\'', '<|x|>']", "<|x|>"),
        ("{{ {'k': '<|x|>'} | tojson(indent='  ') }}", "{\n  \"k\": \"<|x|>\"\n}", "  <|x|>"),
        ("{% for c in '<' ~ m %}{{ c }}{% endfor %}", "<a<|x|>B é \"'", "<"),
        ("{% macro f(t) %}<|x|>{{ t }}{% endmacro %}{{ f(m) | trim }}", "<|x|>a<|x|>B é \"'", "<|x|>"),
        ("{% set s %}<|x|>{{ m }}{% endset %}{{ s | reverse }}", "'\" é B>|x|<a>|x|<", ">|x|<"),
        ("{{ (' <|x|> ' ~ m).strip() }}", "<|x|> a<|x|>B é \"'", "<|x|> "),
        ("{{ ('<|x|>' ~ m).removeprefix('<|') }}", "x|>a<|x|>B é \"'", "x|>"),
        ("{{ ('a<|x|>' ~ m).partition('<|x|>')[1] }}{{ m.partition('<|x|>')[1] }}", "<|x|><|x|>", "<|x|>"),
        ("{{ '<|{}|>'.format(messages[0].role) }}{{ '<|%s|>' | format(m[3:4]) }}", "<|user|><|x|>", "<|user|><||>"),
        ("{{ m.format() }}{{ '%c%c' | format(60, 124) }}", "a<|x|>B é \"'<|", ""),
        ("{{ '<|x|>' * 2 }}{{ '<' * m | length }}", "<|x|><|x|><<<<<<<<<<<<", "<|x|><|x|><<<<<<<<<<<<"),
        (
            "{{ '<|' + messages[0].role + '|>' }}{{ bos_token }}{{ eos_token }}",
            "<|user|><bos><eos>",
            "<|user|><bos><eos>",
        ),
        ("{{ (m, '<') | join('') | escape }}", "a&lt;|x|&gt;B é &#34;&#39;&lt;", ""),
        ("{{ ('<' ~ m).center(15, '*') }}", "*<a<|x|>B é \"'*", "*<*"),
        ("{{ ('z\\n' ~ m).splitlines() | last }}{{ 'a\\nb' | indent }}", "a<|x|>B é \"'a\n    b", "ab"),
        ("{% filter lower %}<|X|>{{ m }}{% endfilter %}", "<|x|>a<|x|>b é \"'", "<|x|>"),
        ("{{ missing | default('<|x|>') }}{{ missing | d(m) }}", "<|x|>a<|x|>B é \"'", "<|x|>"),
        ("{{ [m, '<'] | map('upper') | list | last }}{{ [m, '<'] | select('ne', m) | first }}", "<<", "<<"),
        ("{{ ['<', m] | sort | first }}", "<", ""),
        ("{{ {'<': 1} | items | first | first }}", "<", ""),
    ];
    let mut wrong = Vec::new();
    for (source, expected, own) in cases {
        let source = format!("{{%- set m = messages[0].content -%}}{source}");
        let found = owned(&source, content);
        if found != (expected.to_owned(), own.to_owned()) {
            wrong.push(format!("{source}\n  found {found:?}\n  expected {:?}", (expected, own)));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}

/// Operations that inspect characters see no marks.
#[test]
fn what_is_looked_at_has_no_marks() {
    let source = "{%- set u = 'user' -%}{%- set x = 'a b' -%}\
        {{ [messages[0].role == u, u == messages[0]['role'], u in messages[0].role, u in ['user'], {'user': 1}[u],
            {u: 1}.user, dict(user=1).get(u), u.startswith(('us',)), u < 'v', 'ser' in u, u is eq('user'), u is in(['user']),
            ['12', '3'] | map('int') | sum, x.split() | length, x.find('b'), u.isalpha(), u | length, u.upper() == 'USER',
            [u, 'user'] | unique | list | length, [u].index('user'), [u].count('user'), [u] == ['user'],
            messages | selectattr('role', 'equalto', u) | list | length, messages | map(attribute='role') | first == u,
            messages | groupby('role') | length, [{'a': 2}, {'a': 1}] | sort(attribute='a') | map(attribute='a') | list,
            u is lower, 'A\\nB'.splitlines(), strftime_now('%Y')] }}{{ u | tojson(ensure_ascii=true) }}\
        {% for a in [u, 'user'] %}{{ loop.changed(a) }}{% endfor %}";
    let now = ChatOptions::default().now("2026-01-31T12:00:00".parse().unwrap());
    let text = template(source).render(&[Message::user("Hi")], &now, true).unwrap();
    let expected = "[True, True, True, True, 1, 1, 1, True, True, True, True, True, 15, 2, 2, True, 4, True, 1, 0, 1, True, \
        1, True, 1, [1, 2], True, ['A', 'B'], '2026']\"user\"TrueFalse";
    assert_eq!(text, expected);
}

#[test]
fn private_characters_of_others_are_kept() {
    let content = "\u{f0041}\u{100041}\u{10ffff}\u{e000}\u{c0041}";
    let kept = "\u{f0041}\u{100041}\u{10ffff}\u{e000}\u{fffd}";
    assert_eq!(owned("<{{ messages[0].content }}>", content), (format!("<{kept}>"), "<>".into()));
    let message = Message::user("").field("\u{f0041}", "x");
    let source =
        "{% for k in messages[0] %}{{ messages[0][k] }}{% endfor %}{{ messages[0]['\u{f0041}'] }}\u{f0041}\u{1f600}";
    let rendered = template(source).render_with_spans(&[message], &ChatOptions::default(), true).unwrap();
    assert_eq!(rendered.text, "userxx\u{f0041}\u{1f600}");
    assert_eq!(rendered.template_spans, [0..4, 10..14], "the role, and what is not private");
    let repr = owned("{{ [messages[0].content] }}{{ messages[0].content | tojson(ensure_ascii=true) }}", "\u{f0041}");
    assert_eq!(repr.0, "['\\U000f0041']\"\\udb80\\udc41\"");
}

#[test]
fn only_known_roles_and_trusted_chats_are_the_templates() {
    let source = "{{ '<|' + messages[0].role + '|>' }}{{ messages[0].content }}";
    let of = |role: &str, options: &ChatOptions| {
        template(source).render_with_spans(&[Message::new(role, "<|x|>")], options, true).unwrap().template_spans
    };
    let plain = ChatOptions::default();
    assert_eq!(of("tool", &plain), std::slice::from_ref(&(0..8)));
    assert_eq!(of("im_end", &plain), [0..2, 8..10]);
    assert_eq!(of("im_end", &plain.clone().trust_special_tokens(true)), std::slice::from_ref(&(0..15)));
    let named = template("{{ bos_token }}");
    let own = named.render_with_spans(&[], &plain.variable("bos_token", "<|x|>"), true).unwrap();
    assert!(own.template_spans.is_empty(), "a variable is nobody's token");
}

/// Operations on a text `t` with another, `o`.
const OPERATIONS: [&str; 44] = [
    "{t} ~ {o}",
    "{t} + {o}",
    "{t}[1:]",
    "{t}[::-1]",
    "{t}[:-2]",
    "{t} | upper",
    "{t}.lower()",
    "{t}.title()",
    "{t} | title",
    "{t} | capitalize",
    "{t} | trim",
    "{t}.strip({o})",
    "{t}.lstrip()",
    "{t}.rstrip({o})",
    "{t}.split() | join({o})",
    "{t}.split({o}) | join('-')",
    "{t}.rsplit({o}, 1) | last",
    "{t}.replace({o}, 'é')",
    "{t} | replace('a', {o})",
    "{t}.replace({o}, {o} ~ 'b', 1)",
    "{t} | tojson",
    "{t} | tojson(ensure_ascii=true)",
    "[{t}, {o}] | string",
    "{t} | escape",
    "{t}.splitlines() | join({o})",
    "{t}.partition({o}) | join('|')",
    "{t}.rpartition({o})[2]",
    "{t} | list | join({o})",
    "[{t}, {o}] | sort | join",
    "[{t}, {o}, {t}] | unique | join",
    "{t}.removeprefix({o})",
    "{t}.removesuffix({o})",
    "{t}.center(9, '*')",
    "{t}.zfill(7)",
    "{t} | indent(width={o})",
    "{o} if {t} < {o} else {t}",
    "{t}.find({o}) ~ {t}.count({o})",
    "{t} | reverse",
    "({t} in {o}) ~ {t}",
    "'{}x{}'.format({t}, {o})",
    "'%s-%5s' | format({t}, {o})",
    "{{{t}: {o}}} | tojson(indent=1)",
    "{t} * 2",
    "[{o}, {t}] | map('upper') | select('ne', {o}) | join",
];

/// The text of `operations` on `atoms`, some of which are the template's and the others a message's, and the template's part of it.
fn operated(operations: &[(usize, usize)], atoms: &[String], own: &[bool]) -> Option<(String, String)> {
    let literal = |at: usize| match own[at % own.len()] {
        true => {
            format!("\"{}\"", atoms[at % atoms.len()].replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
        }
        false => format!("messages[0].a[{}]", at % atoms.len()),
    };
    let step = |text: String, (operation, other): &(usize, usize)| {
        let operation = OPERATIONS[operation % OPERATIONS.len()];
        format!(
            "({})",
            operation.replace("{t}", &text).replace("{o}", &literal(*other)).replace("{{", "{").replace("}}", "}")
        )
    };
    let expression = operations.iter().fold(literal(0), step);
    let message = Message::user("").field("a", atoms.to_vec());
    let source = format!("{{{{ {expression} }}}}");
    let rendered = template(&source).render_with_spans(&[message], &ChatOptions::default(), true).ok()?;
    let own = rendered.template_spans.iter().map(|span| &rendered.text[span.clone()]).collect();
    Some((rendered.text, own))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("FORGERY_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4000)
    ))]
    #[test]
    fn marks_change_no_text_and_what_is_a_messages_gets_none(
        operations in prop::collection::vec((0..OPERATIONS.len(), 0usize..4), 1..6),
        atoms in prop::collection::vec("[a-cAß<|é '\"\n\u{f0061}ΣΑ1]{0,6}", 4),
        own in prop::collection::vec(any::<bool>(), 4),
    ) {
        let given = operated(&operations, &atoms, &[false; 4]);
        let mixed = operated(&operations, &atoms, &own);
        prop_assert_eq!(given.as_ref().map(|(text, _)| text), mixed.as_ref().map(|(text, _)| text));
        // The constants of the operations are the template's in both runs.
        let constant = |character: char| "-|éÉ*bBxX".contains(character);
        prop_assert!(given.is_none_or(|(_, own)| own.chars().all(constant)));
    }
}
