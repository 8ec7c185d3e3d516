//! Numbers and tables for people.

use cli::output::{grouped, rounded, table};

#[test]
fn numbers_for_people() {
    let cases: [(i128, &str, &str); 8] = [
        (0, "0", "0 "),
        (999, "999", "999 "),
        (1000, "1,000", "1.00 k"),
        (9_995_000, "9,995,000", "10.0 M"),
        (99_949_999, "99,949,999", "99.9 M"),
        (999_499_999, "999,499,999", "999 M"),
        (999_500_000, "999,500,000", "1.00 G"),
        (-1_366_460_416, "-1,366,460,416", "-1.37 G"),
    ];
    for (n, exact, short) in cases {
        assert_eq!((grouped(n).as_str(), rounded(n).as_str()), (exact, short), "{n}");
    }
}

#[test]
fn a_table_lines_up_and_has_no_trailing_blanks() {
    let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["bcd".to_owned(), "9".to_owned()]];
    assert_eq!(table(&rows, &[false, true], 2), "  a    10\n  bcd   9\n");
}
