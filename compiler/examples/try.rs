use compiler::program::{Program, Std, imports};
fn load(name: &str, files: &mut Vec<(String, String)>) {
    if files.iter().any(|(n, _)| n == name) { return; }
    let text = std::fs::read_to_string(name).unwrap();
    let next = imports(name, &text);
    files.push((name.to_owned(), text));
    for n in next { load(&n, files); }
}
fn main() {
    for name in std::env::args().skip(1) {
        let mut files = vec![];
        load(&name, &mut files);
        let t = std::time::Instant::now();
        let p = Program::new(files, Std::Embedded);
        if !p.diagnostics.is_empty() { println!("{}", p.render(&p.diagnostics)); for d in &p.diagnostics { println!("{} {:?}", d.message, d.labels); } }
        for arch in p.archs(&name) {
            let (c, d) = p.compile(&name, &arch);
            println!("{}", p.render(&d)); for d in &d { println!("{} {:?} {:?}", d.message, d.labels, d.help); }
            if let Some(c) = c {
                let a = compiler::analyse::analyse(&c.graph, 4096);
                println!("{} {:?} graph {} manifest {} text {}b {:?}", arch, a, c.identity.graph.short(), c.identity.manifest.short(), c.text.len(), t.elapsed());
                let p2 = Program::new([("lock".to_owned(), c.text.clone())], Std::None);
                for d in &p2.diagnostics { println!("RELOCK {} {:?}", d.message, d.labels); }
                let (c2, d) = p2.compile("lock", &arch);
                for d in &d { println!("RELOCK {} {:?}", d.message, d.labels); }
                let same = c2.as_ref().map(|c2| c2.identity == c.identity && c2.text == c.text);
                println!("relock {same:?}");
                if std::env::var("SHOW").is_ok() { println!("{}\n{}\n{}", c.text, c.identity.graph_text, c.identity.manifest_text); for f in &c.fields { println!("{} = {} {}", f.path, f.value, f.written); } }
            }
        }
    }
}
