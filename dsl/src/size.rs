//! Numbers in sentences: counts of things, ranges of numbers, and sizes in readable units.

const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A count with its noun: `1 step`, `1,366,460,416 steps`, `2 entries`. Nouns with other plurals are not supported.
pub fn counted<N: TryInto<i128>>(n: N, noun: &str) -> String {
    // No count is beyond 127 bits.
    let n = n.try_into().unwrap_or(i128::MAX);
    let ending = match noun.strip_suffix('y') {
        _ if n == 1 => return format!("1 {noun}"),
        // `entry`, but not `key`.
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => {
            return format!("{} {stem}ies", grouped(n));
        }
        Some(_) | None if ["tch", "sh", "x"].iter().any(|end| noun.ends_with(end)) => "es",
        Some(_) | None => "s",
    };
    format!("{} {noun}{ending}", grouped(n))
}

/// `1,366,460,416`
pub fn grouped(n: impl Into<i128>) -> String {
    let digits = n.into().to_string();
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |d| ("-", d));
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{sign}{text}")
}

/// Ascending numbers as the language writes ranges, ends excluded: `0..3`, `5`, `8..10`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end == n => *end = n + 1,
            Some(_) | None => ranges.push((n, n + 1)),
        }
    }
    let ranges = ranges.into_iter().map(|(start, end)| match end - start {
        1 => start.to_string(),
        _ => format!("{start}..{end}"),
    });
    ranges.collect()
}

/// A size in the largest unit that fits, with one digit after the point if needed.
pub fn size(bytes: u64) -> String {
    let Some((unit, scale)) = UNITS.iter().find(|(_, scale)| bytes >= *scale) else {
        return if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
    };
    let (units, rest) = (bytes / scale, bytes % scale);
    match rest * 10 / scale {
        tenth @ 1..=9 => format!("{units}.{tenth} {unit}"),
        _ => format!("{units} {unit}"),
    }
}

/// The message for a length above a limit: `1 TiB; at most 64 MiB are read`.
pub fn over(length: u64, most: u64) -> String {
    let (length, most) = (size(length), size(most));
    if length == most {
        format!("more than {most}; at most {most} are read")
    } else {
        format!("{length}; at most {most} are read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_never_a_plural() {
        for (n, noun, want) in [
            (0, "step", "0 steps"),
            (1, "step", "1 step"),
            (2, "step", "2 steps"),
            (-1_234_567, "step", "-1,234,567 steps"),
            (1, "entry", "1 entry"),
            (1000, "entry", "1,000 entries"),
            (2, "key", "2 keys"),
        ] {
            assert_eq!(counted(n, noun), want);
        }
        assert_eq!(counted(usize::MAX, "byte"), "18,446,744,073,709,551,615 bytes");
    }

    #[test]
    fn ranges_exclude_their_end() {
        let cases: [(&[u32], &[&str]); 4] = [
            (&[], &[]),
            (&[4], &["4"]),
            (&[0, 1, 2], &["0..3"]),
            (&[0, 1, 3, 5, 6], &["0..2", "3", "5..7"]),
        ];
        for (numbers, expected) in cases {
            assert_eq!(ranges(numbers.iter().copied()), expected);
        }
    }

    #[test]
    fn sizes_have_one_digit_after_the_point_at_most() {
        for (bytes, want) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (64 << 20, "64 MiB"),
            ((64 << 20) + 1, "64 MiB"),
            (3 << 19, "1.5 MiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (1 << 40, "1 TiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), want, "{bytes}");
        }
        assert_eq!(over(1 << 40, 64 << 20), "1 TiB; at most 64 MiB are read");
        assert_eq!(over((64 << 20) + 1, 64 << 20), "more than 64 MiB; at most 64 MiB are read");
    }
}
