//! `canonc show --fields` and `--recipe-fields`, and the documents that contain their output.

use crate::{GOOD, canonc, folder, root};

#[test]
fn every_field_is_listed_by_the_path_that_locks_use() {
    let edited =
        format!("{GOOD}\narch other = good with {{ canon A  layers[1].mixer.rope = nope }}\n");
    let dir = folder(&[("two.canon", &edited)]);
    let ran = canonc(dir.path(), &["show", "--fields", "two.canon", "--arch", "other"]);
    insta::assert_snapshot!("fields", ran.text(dir.path()));
    let json = canonc(dir.path(), &["show", "--fields", "--json", "two.canon"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["schema"], "canonc.show.fields.v1");
    let fields = value["archs"][1]["fields"].as_array().unwrap();
    let field = |path: &str| {
        let entry = fields.iter().find(|field| field["path"] == path);
        let entry = entry.unwrap_or_else(|| panic!("no {path} in {}", json.stdout));
        (entry["value"].as_str().unwrap(), entry["written"].as_bool().unwrap())
    };
    // Paths from LANGUAGE.md.
    assert_eq!(field("layers.0.mixer.rope.dims"), ("4", false));
    assert_eq!(field("layers.1.slots.A.kernel"), ("4", false));
    assert_eq!(field("layers.1.mixer.rope"), ("nope", true));
    assert_eq!(field("head"), ("untied", true));
    let tied = GOOD.replace("init lingua", "init lingua  head tied");
    std::fs::write(dir.path().join("tied.canon"), tied).unwrap();
    let tied = canonc(dir.path(), &["show", "--fields", "tied.canon"]);
    assert!(tied.stdout.contains("  head.table "), "{}", tied.stdout);
    // A lock has the same fields.
    assert_eq!(canonc(dir.path(), &["build", "two.canon"]).code, 0);
    let locked = canonc(dir.path(), &["show", "--fields", "lockfiles/other.lock"]);
    let values = |text: &str| -> Vec<String> {
        let rows = text.lines().map(|line| line.split_whitespace().take(2));
        rows.map(|row| row.collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(values(&locked.stdout), values(&ran.stdout));
    let name = canonc(dir.path(), &["show", "--fields", "attention"]);
    insta::assert_snapshot!("fields_of_a_name", name.text(dir.path()));
}

#[test]
fn the_recipe_reference_is_what_the_field_table_says() {
    let page = std::fs::read_to_string(root().join("recipes/README.md")).unwrap();
    let printed = canonc(&root(), &["show", "--recipe-fields"]);
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    let (_, rest) = page.split_once("<!-- canonc show --recipe-fields -->\n\n").unwrap();
    let (held, _) = rest.split_once("\n<!-- end -->").unwrap();
    assert_eq!(
        held, printed.stdout,
        "put what `canonc show --recipe-fields` prints into recipes/README.md"
    );
    let json = canonc(&root(), &["show", "--recipe-fields", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let fields = value["fields"].as_array().unwrap();
    assert_eq!(fields.len(), lab::field::TABLE.len());
    for field in fields {
        let path = field["path"].as_str().unwrap();
        assert!(printed.stdout.contains(&format!("| `{path}` |")), "{path}");
    }
}

/// The recipes shown in the reference build unchanged.
#[test]
fn the_recipe_reference_shows_what_builds() {
    let page = std::fs::read_to_string(root().join("recipes/README.md")).unwrap();
    let dir = folder(&[]);
    let first = canonc(dir.path(), &["new", "."]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 5, "{}", blocks.len());
    for (n, block) in blocks.iter().enumerate() {
        // A sweep block is the end of a recipe.
        let text = match block.starts_with("[sweep]") {
            true => {
                let recipe =
                    std::fs::read_to_string(dir.path().join("recipes/depo_first.toml")).unwrap();
                let kept = recipe.lines().filter(|line| {
                    !line.starts_with("arch =")
                        && !line.starts_with("lr =")
                        && !line.starts_with("weight_decay =")
                });
                format!("{}\n{block}", kept.collect::<Vec<_>>().join("\n"))
            }
            false => (*block).to_owned(),
        };
        std::fs::write(dir.path().join(format!("recipes/page{n}.toml")), text).unwrap();
        let ran = canonc(dir.path(), &["build", "-q", &format!("recipes/page{n}.toml")]);
        assert_eq!(ran.code, 0, "{block}: {}{}", ran.stdout, ran.stderr);
    }
}
