//! The progress line of a job.

use cli::commands::data::screen::line;

#[test]
fn a_line_says_how_far_and_how_long() {
    assert_eq!(line(0, 10, 1.0, "0 of 10 samples"), "0%  0 of 10 samples");
    assert_eq!(line(25, 100, 10.0, "x"), "25%  x  30 s left");
    assert_eq!(line(3, 0, 1.0, "more than there was"), "300%  more than there was  0.0 s left");
}
