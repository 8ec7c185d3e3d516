//! Random trees, sequences of tokens, and texts with comments wherever a line may end.

use dsl::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

fn nowhere() -> Span {
    Span::new(FileId(0), 0, 0)
}

fn named(text: &str) -> Name {
    Name { text: text.into(), span: nowhere() }
}

fn one_of_names(names: &'static [&'static str]) -> impl Strategy<Value = Name> + Clone {
    select(names).prop_map(named)
}

/// Names in expressions; the soft keywords are names too.
const VALUES: &[&str] = &[
    "x",
    "dim",
    "heads",
    "mixer",
    "mlp",
    "head",
    "block",
    "layers",
    "canon",
    "a_long_name_of_something",
];
const CALLEES: &[&str] = &["f", "linear", "rms_norm", "mixer", "canon", "a_long_name_of_a_callee"];
const FIELDS: &[&str] = &["x", "dim", "rope", "mixer", "mlp", "head", "init", "block", "canon"];
const SLOTS: &[&str] = &["A", "B", "C", "D", "mixer"];

const DECIMALS: &[&str] =
    &["0.5", "1e-5", "2.5e10", "1e30", "10000.0", "0.0133", "12345678901234567890.0"];

fn value_of(kind: ExprKind) -> Expr {
    Expr { kind, span: nowhere() }
}

fn number() -> impl Strategy<Value = ExprKind> {
    prop_oneof![
        (0i64..).prop_map(ExprKind::Int),
        (0i64..100).prop_map(ExprKind::Int),
        select(DECIMALS).prop_map(|text| ExprKind::Decimal(Decimal::parse(text).unwrap())),
        (1i128..1_000_000, -30i32..30)
            .prop_map(|(m, e)| ExprKind::Decimal(Decimal::new(m, e).unwrap())),
    ]
}

pub(crate) fn expr() -> impl Strategy<Value = Expr> + Clone {
    let leaf = prop_oneof![
        number(),
        any::<bool>().prop_map(ExprKind::Bool),
        one_of_names(VALUES).prop_map(|name| ExprKind::Name(name.text)),
    ]
    .prop_map(value_of);
    leaf.prop_recursive(5, 40, 4, |inner| {
        let binary = select(
            &[
                BinaryOp::Or,
                BinaryOp::And,
                BinaryOp::Eq,
                BinaryOp::Ne,
                BinaryOp::Lt,
                BinaryOp::Le,
                BinaryOp::Gt,
                BinaryOp::Ge,
                BinaryOp::Add,
                BinaryOp::Sub,
                BinaryOp::Mul,
                BinaryOp::Div,
            ][..],
        );
        let args = (vec(inner.clone(), 0..3), vec((one_of_names(FIELDS), inner.clone()), 0..2));
        let args = args.prop_map(|(positional, named)| {
            let positional = positional.into_iter().map(|value| Arg { name: None, value });
            let named = named.into_iter().map(|(name, value)| Arg { name: Some(name), value });
            positional.chain(named).collect::<Vec<_>>()
        });
        prop_oneof![
            (one_of_names(CALLEES), option::of(one_of_names(&["wq", "head", "mixer"])), args)
                .prop_map(|(callee, instance, args)| ExprKind::Call { callee, instance, args }),
            (one_of_names(SLOTS), vec(inner.clone(), 0..3))
                .prop_map(|(name, args)| ExprKind::Slot { name, args }),
            (one_of_names(CALLEES), entries(inner.clone()))
                .prop_map(|(def, entries)| ExprKind::Applied { def, entries }),
            (select(&[UnaryOp::Neg, UnaryOp::Not][..]), inner.clone())
                .prop_map(|(op, operand)| ExprKind::Unary(op, Box::new(operand))),
            (binary, inner.clone(), inner).prop_map(|(op, l, r)| ExprKind::Binary(
                op,
                Box::new(l),
                Box::new(r)
            )),
        ]
        .prop_map(value_of)
    })
}

fn path() -> impl Strategy<Value = Path> + Clone {
    let select = prop_oneof![
        Just(Select::All),
        (0u64..50).prop_map(Select::Index),
        (0u64..10, 1u64..10).prop_map(|(start, length)| Select::Range(start, start + length)),
        (1u64..10, 0u64..10).prop_map(|(step, from)| Select::Every { step, from }),
        (vec(one_of_names(FIELDS), 1..3), one_of_names(CALLEES))
            .prop_map(|(path, def)| Select::Is { path, def }),
    ];
    let layers = select.prop_map(|select| Segment::Layers { select, span: nowhere() });
    let names = vec(one_of_names(FIELDS).prop_map(Segment::Name), 1..4);
    (option::weighted(0.2, layers), names).prop_map(|(layers, names)| Path {
        segments: layers.into_iter().chain(names).collect(),
        span: nowhere(),
    })
}

fn slots() -> impl Strategy<Value = Vec<Path>> + Clone {
    vec(
        (option::weighted(0.2, path()), one_of_names(SLOTS)).prop_map(|(path, slot)| {
            let above = path.map_or(Vec::new(), |path| path.segments);
            let segments = above.into_iter().chain([Segment::Name(slot)]).collect();
            Path { segments, span: nowhere() }
        }),
        1..4,
    )
}

pub(crate) fn entries(
    value: impl Strategy<Value = Expr> + Clone + 'static,
) -> BoxedStrategy<Vec<Entry>> {
    let span = nowhere();
    let set =
        (path(), value.clone()).prop_map(move |(path, value)| Entry::Set { path, value, span });
    let replace =
        (path(), value.clone()).prop_map(move |(path, value)| Entry::Replace { path, value, span });
    let nested = (path(), vec(set.clone(), 0..3)).prop_map(move |(path, entries)| Entry::Nested {
        path,
        entries,
        span,
    });
    let fill =
        (slots(), value.clone()).prop_map(move |(slots, with)| Entry::Fill { slots, with, span });
    let canon = (slots(), option::of(vec(set.clone(), 0..3)))
        .prop_map(move |(slots, entries)| Entry::Canon { slots, entries, span });
    let empty = slots().prop_map(move |slots| Entry::Empty { slots, span });
    let layers = layer_list().prop_map(move |value| Entry::Layers { value, span });
    vec(
        prop_oneof![set.clone(), set.clone(), set, replace, nested, fill, canon, empty, layers],
        0..5,
    )
    .boxed()
}

fn layer_list() -> impl Strategy<Value = LayerList> {
    let layer = prop_oneof![
        one_of_names(CALLEES).prop_map(|name| ExprKind::Name(name.text)),
        (one_of_names(CALLEES), number()).prop_map(|(def, value)| {
            let path = Path { segments: vec![Segment::Name(named("x"))], span: nowhere() };
            let set = Entry::Set { path, value: value_of(value), span: nowhere() };
            ExprKind::Applied { def, entries: vec![set] }
        }),
    ]
    .prop_map(value_of);
    let count =
        prop_oneof![(1i64..50).prop_map(ExprKind::Int), Just(ExprKind::Name("layers".into())),];
    let count = option::of(count.prop_map(value_of));
    let one = (any::<bool>(), layer).prop_map(|(share, layer)| LayerWhat::One { share, layer });
    let leaf = (count.clone(), one);
    let leaf = leaf.prop_map(|(count, what)| LayerList { count, what, span: nowhere() });
    leaf.prop_recursive(3, 10, 4, move |inner| {
        (count.clone(), vec(inner, 1..4)).prop_map(|(count, list)| LayerList {
            count,
            what: LayerWhat::List(list),
            span: nowhere(),
        })
    })
}

fn statements() -> impl Strategy<Value = Vec<Statement>> {
    let span = nowhere();
    const BOUND: &[&str] = &["x", "h", "q", "mixer", "init"];
    let simple =
        prop_oneof![
            (vec(one_of_names(BOUND), 1..4), expr())
                .prop_map(move |(names, value)| Statement::Let { names, value, span }),
            (one_of_names(BOUND), vec(expr(), 0..3), option::of(expr()))
                .prop_map(move |(name, dims, init)| Statement::Param { name, dims, init, span }),
            (one_of_names(BOUND), one_of_names(CALLEES), option::of(entries(expr()))).prop_map(
                move |(name, callee, entries)| Statement::Share { name, callee, entries, span }
            ),
        ];
    let block = |inner: BoxedStrategy<Statement>| vec(inner, 0..3);
    let any = simple.prop_recursive(3, 8, 3, move |inner| {
        let branches = (expr(), block(inner.clone()), block(inner.clone())).prop_map(
            move |(condition, then, otherwise)| Statement::If { condition, then, otherwise, span },
        );
        let carried = (one_of_names(BOUND), expr(), block(inner)).prop_map(
            move |(name, value, otherwise)| Statement::Carry { name, value, otherwise, span },
        );
        prop_oneof![branches, carried]
    });
    vec(any, 0..5)
}

fn docs() -> impl Strategy<Value = Vec<String>> {
    vec(
        select(&["", "Some words.", "  indented", "/ slash", "é ∑"][..]).prop_map(str::to_string),
        0..3,
    )
}

fn item() -> impl Strategy<Value = Item> {
    let span = nowhere();
    let kind = select(&DefKind::ALL[..]);
    let name = || one_of_names(&["to_be_numbered"]);
    let def = (
        (docs(), kind.clone(), vec(name(), 0..4), vec((name(), option::of(expr())), 0..5)),
        (statements(), vec(expr(), 1..3)),
    );
    let def = def.prop_map(move |((docs, kind, mut tensors, config), (statements, result))| {
        let mut config: Vec<ConfigParam> =
            config.into_iter().map(|(name, default)| ConfigParam { name, default }).collect();
        let all = tensors.iter_mut().chain(config.iter_mut().map(|param| &mut param.name));
        for (i, name) in all.enumerate() {
            name.text = format!("v{i}");
        }
        let body = Body { statements, result, span };
        Item::Def(Def { docs, kind, name: named("d"), tensors, config, body, span })
    });
    let alias = (docs(), kind, expr()).prop_map(move |(docs, kind, value)| {
        Item::Alias(Alias { docs, kind, name: named("d"), value, span })
    });
    let role = (one_of_names(&["linear", "norm", "canon", "layers", "embed"]), expr());
    let role = role.prop_map(move |(role, value)| {
        let path = Path { segments: vec![Segment::Name(role)], span };
        Entry::Set { path, value, span }
    });
    let init = (docs(), vec(role, 0..4)).prop_map(move |(docs, entries)| {
        Item::Init(InitTable { docs, name: named("d"), entries, span })
    });
    let arch =
        (docs(), option::of(name()), entries(expr())).prop_map(move |(docs, base, entries)| {
            let body = match base {
                Some(base) => ArchBody::With { base, edits: entries },
                None => ArchBody::Fields(entries),
            };
            Item::Arch(Arch { docs, name: named("d"), body, span })
        });
    prop_oneof![def, alias, init, arch]
}

pub(crate) fn ast() -> impl Strategy<Value = Ast> {
    let import =
        (vec(any::<bool>(), 1..4), any::<bool>()).prop_map(|(aliases, long)| (aliases, long));
    (vec(import, 0..3), vec(item(), 0..5)).prop_map(|(imports, mut items)| {
        let mut fresh = (0..).map(|i| named(&format!("n{i}")));
        let mut next = move || fresh.next().unwrap();
        let imports = imports.into_iter().map(|(aliases, long)| {
            let names = aliases.into_iter().map(|alias| {
                let mut name = next();
                name.text += if long { "_which_is_a_rather_long_name_for_an_import" } else { "" };
                ImportName { name, alias: alias.then(&mut next) }
            });
            let names = names.collect();
            Import { names, path: "a/b.canon".into(), path_span: nowhere(), span: nowhere() }
        });
        let imports = imports.collect();
        for (i, item) in items.iter_mut().enumerate() {
            let name = match item {
                Item::Def(def) => &mut def.name,
                Item::Alias(alias) => &mut alias.name,
                Item::Init(table) => &mut table.name,
                Item::Arch(arch) => &mut arch.name,
            };
            name.text = format!("d{i}");
        }
        Ast { imports, items, comments: Vec::new() }
    })
}

/// Tokens of the language, texts that break one, and some beginnings.
const TOKENS: &[&str] = &[
    "import",
    "from",
    "as",
    "block",
    "mixer",
    "mlp",
    "head",
    "init",
    "arch",
    "with",
    "param",
    "share",
    "carry",
    "if",
    "else",
    "slot",
    "layers",
    "of",
    "fill",
    "canon",
    "empty",
    "true",
    "false",
    "and",
    "or",
    "not",
    "every",
    "is",
    "x",
    "y",
    "A",
    "heads",
    "0",
    "1",
    "4",
    "0.5",
    "1e-5",
    "1_0",
    "\"a.canon\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ".",
    "..",
    "=",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "// c\n",
    "/// d\n",
    "layers[3]",
    "é",
    "\"",
    "@",
    "block f(x) {",
    "block g(x; n = 1) {",
    "arch a {",
    "arch b = a with {",
    "h = x",
    "mixer attention { heads 4 }",
    "linear w (x)",
    "slot A(x)",
    "canon A, B",
    "rope { theta 1 }",
    "if x {",
    "} else {",
    "layers 4 of x",
    "layers [x, 2 of y]",
    "init t {",
];

/// Tokens of the language in random order.
pub(crate) fn random_tokens() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => select(TOKENS).prop_map(str::to_string),
        1 => "\\PC{0,3}",
    ];
    let gap = select(&[" ", " ", " ", "\n", "\n", "", "\n\n", "\r\n", "\t"][..]);
    vec((piece, gap), 0..80).prop_map(|list| list.into_iter().map(|(p, g)| p + g).collect())
}

/// A text made of whole pieces of the language. It often parses, unlike [`random_tokens`].
pub(crate) fn random_pieces() -> impl Strategy<Value = String> {
    const ENTRIES: &[&str] = &[
        "heads 4",
        "dim = 8",
        "rope { theta 1e4, layout interleaved }",
        "canon A, B",
        "canon A { kernel 4 }",
        "fill A, layers[0].B with canon { kernel 4 }",
        "empty C",
        "layers 4 of x { a 1 }",
        "layers [a, 2 of b, share c]",
        "mixer attention { heads 1_000 }",
        "mlp swiglu {\n hidden 4\n}",
        "layers[every 2 from 1].mixer.heads 4",
        "x (1 + 2) * 3",
        "y (-1)",
        "window none",
        "a_much_longer_field_name 1 + 2 * 3 - dim / heads + some_function(with_, several, arguments)",
    ];
    const STATEMENTS: &[&str] = &[
        "if a_long_condition == another_long_condition or a_third_condition != false { y = 1   z = 2 }",
        "if a { y = a_long_value_that_is_long } else if b { y = another_long_value } else { y = z_and_more }",
        "h = x",
        "q, k = f(x)",
        "param P [n, 4] init normal(0.02)",
        "share proj = linear { bias true }",
        "if a == 1 { y = 2 }",
        "if not a {\n y = 2   z = 3\n} else if b { y = 1 } else {\n y = 3\n}",
        "h = x +\n y *\n (z)",
        "v = linear wv (x,\n 3, init = ones)",
        "param P [n]",
    ];
    let gap = select(&["\n", "\n", "\n\n\n", "   ", " // c\n", "\n// own\n", "\n\n// own\n\n"][..]);
    let entries = vec((select(ENTRIES), gap.clone()), 0..8);
    let statements = vec((select(STATEMENTS), gap.clone()), 0..8);
    let glue = |list: Vec<(&str, &str)>| {
        list.into_iter().map(|(piece, gap)| format!("{piece}{gap}")).collect::<String>()
    };
    let open = select(&["", "\n", " // open\n"][..]);
    let arch =
        (open.clone(), entries).prop_map(move |(open, list)| format!("{{{open}{}}}", glue(list)));
    let body =
        (open, statements).prop_map(move |(open, list)| format!("{{{open}{}\nx }}", glue(list)));
    let item = prop_oneof![
        arch.clone().prop_map(|text| format!("arch N {text}")),
        arch.prop_map(|text| format!("/// Doc.\narch N = base with {text}")),
        body.clone().prop_map(|text| format!("block N(x; a, b = 1) {text}")),
        body.prop_map(|text| format!(
            "/// Doc.\n// between\n///\nmixer N(\n x; // c\n a, // d\n) {text}"
        )),
    ];
    vec((item, gap), 0..5).prop_map(|list| {
        let numbered = list
            .into_iter()
            .enumerate()
            .map(|(i, (item, gap))| item.replacen(" N", &format!(" n{i}"), 1) + gap);
        numbered.collect()
    })
}

/// Adds comments where a line may end without changing the meaning: after opening brackets, after
/// operators, after commas in parentheses, and at the ends of lines. `picks` chooses which, and
/// whether they get their own line.
pub(crate) fn sprinkle(text: &str, picks: &[u8]) -> String {
    let mut out = String::new();
    let mut picks = picks.iter().cycle();
    let mut count = 0;
    let mut comment = |out: &mut String| {
        let pick = picks.next().copied().unwrap_or(0) % 8;
        if pick < 2 {
            out.push_str(&format!("{} // c{count}\n", if pick == 0 { "" } else { "\n" }));
            count += 1;
        }
    };
    let mut open = Vec::new();
    for line in text.lines() {
        let code = !line.trim_start().starts_with("//");
        let mut chars = line.chars().filter(|_| code).peekable();
        while let Some(c) = chars.next() {
            out.push(c);
            let before_space = chars.peek() == Some(&' ');
            let free = match c {
                '(' | '[' | '{' => {
                    open.push(c);
                    true
                }
                ')' | ']' | '}' => {
                    open.pop();
                    false
                }
                ',' => open.last() == Some(&'('),
                '+' | '*' | '=' => before_space,
                '/' if before_space => break_off(&mut out, &mut chars),
                _ => false,
            };
            if free {
                comment(&mut out);
            }
        }
        if code {
            comment(&mut out);
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

/// After a `/`: an operator may be followed by a comment; text after `//` is already a comment.
fn break_off(out: &mut String, rest: &mut impl Iterator<Item = char>) -> bool {
    let comment = out.ends_with("//");
    if comment {
        out.extend(rest);
    }
    !comment
}

/// The same cases on every machine, unless `PROPTEST_RNG_SEED` is set.
pub(crate) fn repeatable() -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(20_260_101);
    }
    config
}
