//! File sizes in readable units.
//!
//! In: a number of bytes. Out: `5 bytes`, `64 MiB`, `1.5 GiB`. Must stay true: a size over a limit never looks equal to
//! that limit.

const UNITS: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A size in the largest unit that fits, with one digit after the point if needed.
pub fn size(bytes: u64) -> String {
    let Some((unit, scale)) = UNITS.iter().find(|(_, scale)| bytes >= *scale) else {
        return if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
    };
    let (whole, rest) = (bytes / scale, bytes % scale);
    match rest * 10 / scale {
        tenth @ 1..=9 => format!("{whole}.{tenth} {unit}"),
        _ => format!("{whole} {unit}"),
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
    fn sizes_are_read_at_a_glance() {
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
