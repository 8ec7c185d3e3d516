//! Evaluates the grid sizes in the manifest, such as `rows * cdiv(width, BLOCK), heads`: the blocks along x, y, z.
//! Arithmetic on i64 is checked for overflow, and a name without a value is an error.

/// The blocks of a grid with up to three axes; axes that are not written have one.
pub(crate) fn blocks(text: &str, value: &dyn Fn(&str) -> Option<i64>) -> Result<[i64; 3], String> {
    let wrong = |problem: String| format!("the grid `{text}`: {problem}");
    let mut parser = GridParser { rest: text, value };
    let mut grid = [1; 3];
    for (axis, blocks) in grid.iter_mut().enumerate() {
        if axis > 0 && !parser.takes(",") {
            break;
        }
        *blocks = parser.sum().map_err(wrong)?;
    }
    match parser.rest.trim() {
        "" => Ok(grid),
        rest => Err(wrong(format!("`{rest}` is left"))),
    }
}

struct GridParser<'a> {
    rest: &'a str,
    value: &'a dyn Fn(&str) -> Option<i64>,
}

impl GridParser<'_> {
    fn takes(&mut self, word: &str) -> bool {
        match self.rest.trim_start().strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expects(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) {
            Ok(())
        } else {
            Err(format!("`{word}` is expected at `{}`", self.rest))
        }
    }

    fn sum(&mut self) -> Result<i64, String> {
        let mut left = self.product()?;
        loop {
            left = if self.takes("+") {
                left.checked_add(self.product()?)
            } else if self.takes("-") {
                left.checked_sub(self.product()?)
            } else {
                return Ok(left);
            }
            .ok_or("overflow")?;
        }
    }

    fn product(&mut self) -> Result<i64, String> {
        let mut left = self.atom()?;
        loop {
            left = if self.takes("*") {
                left.checked_mul(self.atom()?).ok_or("overflow")?
            } else if self.takes("//") {
                // The same as Python's, for numbers that are not negative.
                left.checked_div(self.atom()?).ok_or("division by zero")?
            } else {
                return Ok(left);
            };
        }
    }

    fn atom(&mut self) -> Result<i64, String> {
        if self.takes("(") {
            let inner = self.sum()?;
            self.expects(")")?;
            return Ok(inner);
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return word.parse().map_err(|_| format!("`{word}` is not a number"));
        }
        if matches!(word, "cdiv" | "min" | "max") {
            self.expects("(")?;
            let first = self.sum()?;
            self.expects(",")?;
            let second = self.sum()?;
            self.expects(")")?;
            return match word {
                "min" => Ok(first.min(second)),
                "max" => Ok(first.max(second)),
                _ if first < 0 || second <= 0 => Err(format!("cdiv({first}, {second})")),
                _ => Ok(first / second + i64::from(first % second > 0)),
            };
        }
        (self.value)(word).ok_or_else(|| format!("`{word}` has no value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(text: &str) -> Result<[i64; 3], String> {
        blocks(text, &|name| match name {
            "rows" => Some(7),
            "width" => Some(1025),
            "BLOCK" => Some(1024),
            _ => None,
        })
    }

    #[test]
    fn grids_are_computed_as_python_would() {
        assert_eq!(grid("rows * cdiv(width, BLOCK)"), Ok([14, 1, 1]));
        assert_eq!(grid("rows, 2, width // 4"), Ok([7, 2, 256]));
        assert_eq!(grid("(rows + 1) * 2 - 3 * 4"), Ok([4, 1, 1]));
        assert_eq!(grid("min(rows, 4) + max(rows, 4)"), Ok([11, 1, 1]));
        assert_eq!(grid("cdiv(width - 1, BLOCK)"), Ok([1, 1, 1]));
    }

    #[test]
    fn errors_name_what_cannot_be_computed() {
        for (text, problem) in [
            ("rows * heads", "`heads` has no value"),
            ("rows rows", "`rows` is left"),
            ("cdiv(rows, 0)", "cdiv(7, 0)"),
            ("rows // 0", "division by zero"),
            ("(rows", "`)` is expected at ``"),
            ("1, 2, 3, 4", "`, 4` is left"),
            ("9223372036854775807 + rows", "overflow"),
        ] {
            assert_eq!(grid(text), Err(format!("the grid `{text}`: {problem}")));
        }
    }
}
