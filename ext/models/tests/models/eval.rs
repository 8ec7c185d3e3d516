//! Standard errors in the table of `canonc eval`.

use models::eval::spread;

#[test]
fn a_spread_of_nothing_is_not_a_standard_error_of_zero() {
    assert_eq!(spread(Some(0.25)), "±25.00 pp");
    assert_eq!(spread(Some(0.0)), "unknown: all equal");
    assert_eq!(spread(None), "");
}
