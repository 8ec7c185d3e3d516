//! Results, records and equal columns are no findings; a difference in anything else is.

use audit::{AuditReport, Findings, Names, Rules, audit, subjects, table, table_in};

fn audited(text: &str) -> AuditReport {
    audit(&subjects(&table("t.csv", text).unwrap()), &Rules::default(), Findings::default())
}

/// A table with one more column, in a pair with nothing else to find.
fn column(name: &str, cells: [&str; 2]) -> String {
    format!(
        "name,canon_set,optim.lr,steps,{name}\nllama,,0.003,1000,{}\nllama-canon,ABCD,0.003,1000,{}\n",
        cells[0], cells[1]
    )
}

#[test]
fn a_column_that_is_equal_in_both_arms_is_no_finding() {
    for name in ["my.flag", "whatever", "optim.lrr", "loss_weight", "gpu_type", "status"] {
        for cells in [["x", "x"], ["1", "1.0"], ["", ""]] {
            let report = audited(&column(name, cells));
            assert!(report.findings.is_empty() && report.clean.len() == 1, "{name} {cells:?}");
        }
        let report = audited(&column(name, ["x", "y"]));
        if name == "status" {
            assert_eq!(report.results, [name]);
            continue;
        }
        assert!(report.fails() && report.clean.is_empty(), "{name}");
    }
}

#[test]
fn results_and_records_are_listed_and_not_compared() {
    for (name, cells) in [
        ("eval_loss", ["2.31", "2.29"]),
        ("final_loss", ["2.31", "2.29"]),
        ("val_loss", ["2.31", ""]),
        ("train/loss", ["2.31", "NaN"]),
        ("ppl", ["10.1", "9.9"]),
        ("mmlu", ["25.1", "26"]),
        ("accuracy", ["0.5", "0.51"]),
        ("hellaswag/acc", ["0.31", "0.33"]),
        ("Notes", ["", "second try"]),
        ("Tags", ["a", "b"]),
        ("id", ["abc", "def"]),
        ("run_id", ["1", "2"]),
        ("url", ["https://localhost/a", "https://localhost/b"]),
        ("date", ["2024-01-01", "2024-01-02"]),
        ("created_at", ["2024-01-01", "2024-01-02"]),
        ("Created", ["2024-01-01", "2024-01-02"]),
        ("runtime", ["3600", "3700"]),
        ("tokens_per_second", ["1000", "900"]),
        ("user", ["ada", "bob"]),
        ("state", ["finished", "completed"]),
        ("group", ["a", "b"]),
        ("job_id", ["1", "2"]),
        ("host", ["n1", "n2"]),
        ("gpu_hours", ["10", "11"]),
        ("comment", ["x", ""]),
        ("out_dir", ["/a", "/b"]),
    ] {
        let report = audited(&column(name, cells));
        assert!(
            report.findings.is_empty() && report.clean.len() == 1,
            "{name}: {:?}",
            report.findings
        );
        assert_eq!(report.results, [name]);
    }
    // The number of parameters follows from the treatment, if it hardly changes.
    assert_eq!(audited(&column("n_params", ["124000000", "124500000"])).clean.len(), 1);
    assert!(audited(&column("n_params", ["124000000", "350000000"])).clean.is_empty());
}

#[test]
fn settings_named_like_results_are_compared() {
    for (name, cells) in [
        ("z_loss", ["0", "0.0001"]),
        ("loss_weight", ["1", "2"]),
        ("label_smoothing", ["0", "0.1"]),
        ("loss", ["mse", "ce"]),
        ("score_func", ["sigmoid", "softmax"]),
        ("group", ["4", "8"]),
        ("dump_dir", ["/scratch/a", "/scratch/b"]),
        ("checkpoint.path", ["/scratch/a", "/scratch/b"]),
        ("data_url", ["s3://a", "s3://b"]),
        ("commit", ["abc", "def"]),
    ] {
        let report = audited(&column(name, cells));
        assert!(report.fails() && report.clean.is_empty(), "{name}: {:?}", report.findings);
    }
}

/// The columns of a W&B export, with a note that has a line break.
#[test]
fn a_wandb_export_is_read_as_it_is() {
    let text = "\"Name\",\"State\",\"Notes\",\"User\",\"Tags\",\"Created\",\"Runtime\",\"Sweep\",\"learning_rate\",\"per_device_train_batch_size\",\
                \"num_train_epochs\",\"canon_set\",\"eval/loss\",\"train/loss\"\n\
                \"gpt\",\"finished\",\"first\nline, and \"\"more\"\"\",\"ada\",\"\",\"2024-01-01T10:00:00.000Z\",\"3600\",\"\",\"0.0003\",\"8\",\"1\",\"\",\"2.31\",\"2.2\"\n\
                \"gpt-canon\",\"finished\",\"-\",\"bob\",\"x\",\"2024-01-02T10:00:00.000Z\",\"3700\",\"\",\"0.0003\",\"8\",\"1\",\"ABCD\",\"2.29\",\"2.1\"\n";
    let read = table_in("export.csv", text, &Names::default()).unwrap();
    assert_eq!(read[0].vocabulary.name, "transformers");
    assert_eq!((read[0].name.as_str(), read[1].source.as_str()), ("gpt", "export.csv:4"));
    let report = audit(&subjects(&read), &Rules::default(), Findings::default());
    assert!(report.findings.is_empty() && report.clean.len() == 1, "{:?}", report.findings);
    let results = [
        "Created",
        "Notes",
        "Runtime",
        "State",
        "Sweep",
        "Tags",
        "User",
        "eval/loss",
        "train/loss",
    ];
    assert_eq!(report.results, results);
    let other = text.replace("0.0003\",\"8\",\"1\",\"ABCD", "0.001\",\"8\",\"1\",\"ABCD");
    let read = table_in("export.csv", &other, &Names::default()).unwrap();
    assert!(audit(&subjects(&read), &Rules::default(), Findings::default()).fails());
}
