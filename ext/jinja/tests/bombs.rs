//! Templates that strangers write to take all time or memory: each ends, within the memory of [`MOST`].

#![expect(
    clippy::print_stdout,
    reason = "the milliseconds of each, for the table in docs/threat-model.md"
)]

use std::time::Instant;

use jinja::{Environment, Undefined, Value};

#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

/// Bytes that a template may take besides its stack.
const MOST: usize = 128 << 20;

const CHAT: Environment =
    Environment { undefined: Undefined::Empty, trims_blocks: true, filters: &[], functions: &[] };

/// A text of a mebibyte, as a conversation may have.
fn context() -> Value {
    let content = "lorem ipsum ".repeat(80_000);
    let message: Value = [("role", "user"), ("content", content.as_str())]
        .into_iter()
        .map(|(key, text)| (key.to_owned(), Value::from(text)))
        .collect();
    [("messages".to_owned(), Value::from(vec![message]))].into_iter().collect()
}

const BOMBS: &[&str] = &[
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a'.ljust(1000000000) }}{{ '1'.zfill(1000000000) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ ('a\n' * 100000) | indent(10000) | length }}",
    "{{ ('a\n' * 1000000) | indent(1000) | length }}",
    "{% macro f(n) %}{{ f(n+1) }}{{ f(n+1) }}{% endmacro %}{{ f(0) }}",
    "{{ 9 ** 9 ** 9 ** 9 }}",
    "{{ 2 ** 100000 }}{{ 10 ** 38 * 10 ** 38 }}",
    "{{ ('a' * 1500000000) | length }}",
    "{{ ([0] * 200000000) | length }}",
    "{{ ([0] * 10000000) | length }}",
    "{% set s = ('a' * 100000) %}{{ s.replace('a', s) | length }}",
    "{% set s = ('a' * 4000) %}{{ s.replace('', s) | length }}",
    "{% include 'chat_template' %}",
    "{{ (range(100000)|list * 100)|join('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')|length }}",
    "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(26) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}",
    "{% set ns = namespace(x=[1]) %}{% for a in range(26) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}",
    "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}x",
    "{% for a in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}",
    "{% set x = {'a':1} %}{{ x | tojson(indent=1000000000) }}",
    "{% set x = {'a':[[[[[[[[[[1]]]]]]]]]]} %}{{ x | tojson(indent=8000000) }}",
    "{{ ('a' * 8000000) | list | length }}",
    "{{ messages[0].content | list | length }}",
    "{{ messages[0].content.split('o') | length }}",
    "{{ (messages[0].content * 3).split('o') | length }}",
    "{{ messages[0].content.split() | map('upper') | map('list') | list | length }}",
    "{% for c in messages[0].content %}{{ c ~ c }}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content | upper | length }}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content | trim | length }}{% endfor %}",
    "{% for a in range(100000) %}{% if 'q' in messages[0].content %}{% endif %}{% endfor %}",
    "{% for a in range(100000) %}{% if messages[0].content == messages[0].content ~ '' %}{% endif %}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content.count('lor') }}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content[a:] | length }}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content[::-1] | length }}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content.title() | length }}{% endfor %}",
    "{% for a in range(100000) %}{{ messages[0].content | wordcount }}{% endfor %}",
    "{% set l = range(100000) | list %}{% for a in range(100000) %}{% if l == l %}{% endif %}{% endfor %}",
    "{% set l = range(100000) | list %}{{ l | unique | list | length }}",
    "{% set l = range(100000) | list %}{{ l | sort(reverse=true) | length }}",
    "{% set l = range(100000) | list %}{{ l | groupby('a') | length }}",
    "{% set l = range(100000) | list %}{% for a in range(1000) %}{{ l | sum }}{% endfor %}",
    "{% set l = range(100000) | list %}{% for a in range(1000) %}{{ l | batch(2) | list | length }}{% endfor %}",
    "{% set l = range(100000) | list %}{% for a in range(1000) %}{{ l | reverse | list | length }}{% endfor %}",
    "{% set l = range(100000) | list %}{% for a in range(1000) %}{{ l | string | length }}{% endfor %}",
    "{% set l = range(100000) | list %}{% for a in l %}{% for b in l if b in l %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(x='') %}{% for a in range(100000) %}{% set ns.x = ns.x ~ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for a in range(100000) %}{% set ns.x = ns.x + [a] %}{% endfor %}",
    "{% set ns = namespace(x=[]) %}{% for a in range(200) %}{% set ns.x = ns.x + [messages[0].content ~ a] %}{% endfor %}",
    "{% set ns = namespace(x={}) %}{% for a in range(100000) %}{% set ns.x = dict(ns.x, **{'k' ~ a: a}) %}{% endfor %}",
    "{% set l = range(100000) | list %}{{ l | select('in', l) | list | length }}",
    "{% set s = messages[0].content %}{% for a in range(100000) %}{% if s is lower %}{% endif %}{% endfor %}",
    "{% set s = messages[0].content %}{% for a in range(100000) %}{% if s is in(s) %}{% endif %}{% endfor %}",
    "{% set s = messages[0].content %}{{ s.strip(s) | length }}{{ s | trim(s) | length }}",
    "{% set s = messages[0].content %}{% for a in range(100000) %}{{ 'a'.count(s) }}{% endfor %}",
    "{% set s = messages[0].content %}{% for a in range(100000) %}{{ '%.0s' % s }}{% endfor %}",
    "{% set s = messages[0].content %}{% for a in range(100000) %}{{ loop.changed(s) }}{% endfor %}",
    "{% for a in range(100000) %}{{ loop.cycle(*range(100000)) }}{% endfor %}",
    "{% set s = messages[0].content %}{% set d = {'a': 1} %}{% for a in range(100000) %}{{ d[s] }}{% endfor %}",
    "{{ ('a ' * 4000000).split() | length }}",
    "{{ ('a ' * 4000000).split(' ') | length }}",
    "{{ ('a\n' * 4000000).splitlines() | length }}",
    "{{ range(10) | batch(8000000, 'x') | list | length }}",
    "{% set l = range(100000) | list %}{{ dict(l | batch(2) | list) | length }}",
    "{% set m = dict(range(20000) | map('string') | map('list') | list) %}{{ m == m }}",
    "{% set l = range(100000) | list %}{{ l | reject('eq', l) | list | length }}",
    "{% for a in range(1000) %}{% for b in range(1000) %}{% macro f() %}{{ a }}{% endmacro %}{% endfor %}{% endfor %}",
    "{% for a in messages[0].content %}{% for b in messages[0].content %}{% for c in messages[0].content %}{% endfor %}{% endfor %}{% endfor %}",
    "{% set l = range(100000) | list %}{{ dict(l | map('string') | map('list')) }}",
    "{{ messages[0].content | urlencode | length }}{{ (messages[0].content * 4) | urlencode | length }}",
    "{{ (messages[0].content * 6) | tojson | length }}",
    "{{ ('\u{7f}é' * 2000000) | tojson(ensure_ascii=true) | length }}",
    "{{ ('a ' * 2000000) | wordwrap(1) | length }}",
    "{% filter upper %}{{ 'a' * 8000000 }}{% endfilter %}",
    "{% set x %}{{ 'ß' * 4000000 }}{% endset %}{{ x | upper | length }}",
];

#[test]
fn each_ends_within_its_memory() {
    let mut all: Vec<String> = BOMBS.iter().map(|bomb| (*bomb).to_owned()).collect();
    let nested =
        |open: &str, close: &str, count| [open.repeat(count), close.repeat(count)].concat();
    all.push(format!("{{{{ {} }}}}", nested("(", ")", 20_000)));
    all.push(format!("{{{{ {} }}}}", nested("[", "]", 5_000)));
    all.push(nested("{% if true %}", "{% endif %}", 3_000));
    all.push(nested("{% for a in range(1000) %}", "{% endfor %}", 50));
    all.push(format!("{{{{ 1{} }}}}", " + 1".repeat(60_000)));
    all.push(format!("{{{{ 'a'{} }}}}", "|upper".repeat(40_000)));
    let context = context();
    for bomb in &all {
        let before = ALLOCATOR.allocated();
        // A template that takes more ends the test here.
        ALLOCATOR.set_limit(before + MOST).unwrap();
        let began = Instant::now();
        let end = CHAT.render(bomb, &context);
        ALLOCATOR.set_limit(usize::MAX).unwrap();
        let shown = match &end {
            Ok(text) => format!("{} bytes", text.len()),
            Err(error) => error.chars().take(100).collect(),
        };
        println!("{:>5} ms  {:.60}: {shown}", began.elapsed().as_millis(), bomb.replace('\n', " "));
        drop(end);
    }
}
