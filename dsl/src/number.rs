//! Exact decimals with checked arithmetic and one shortest printed form. No value depends on binary floating point.

use std::cmp::Ordering;
use std::fmt;

/// `mantissa * 10^exponent`, normalised: the mantissa has no trailing zero, zero is `0 * 10^0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    mantissa: i128,
    exponent: i32,
}

/// The reason why digits or an operation give no [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// Not a number.
    Malformed,
    /// More digits or a larger exponent than a [`Decimal`] holds.
    TooLarge,
    /// The quotient has no finite decimal expansion that fits.
    Inexact,
    /// The divisor is zero.
    DivisionByZero,
}

/// Mantissas stay below 10^30 and exponents within ±400, so that comparisons cannot overflow
/// silently and printing stays short.
const MAX_MANTISSA: i128 = 10i128.pow(30);
const MAX_EXPONENT: i32 = 400;

#[expect(clippy::should_implement_trait, reason = "checked: each returns a Result")]
impl Decimal {
    /// 0
    pub const ZERO: Decimal = Decimal { mantissa: 0, exponent: 0 };
    /// 1
    pub const ONE: Decimal = Decimal { mantissa: 1, exponent: 0 };

    /// `mantissa * 10^exponent`, normalised. Fails beyond 30 digits or a power of ten beyond ±400.
    pub fn new(mantissa: i128, exponent: i32) -> Result<Decimal, NumberError> {
        let (mut m, mut e) = (mantissa, exponent);
        if m == 0 {
            return Ok(Decimal::ZERO);
        }
        while m % 10 == 0 {
            m /= 10;
            e = e.checked_add(1).ok_or(NumberError::TooLarge)?;
        }
        if m.abs() >= MAX_MANTISSA || e.abs() > MAX_EXPONENT {
            return Err(NumberError::TooLarge);
        }
        Ok(Decimal { mantissa: m, exponent: e })
    }

    /// Reads `12`, `-0.5`, `1e-5`, `2.5E+3`, with `_` between digits.
    pub fn parse(text: &str) -> Result<Decimal, NumberError> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (body, exponent) = match digits.find(['e', 'E']) {
            Some(at) => {
                let (body, tail) = digits.split_at(at);
                let tail = tail.get(1..).unwrap_or("");
                let number = tail.strip_prefix('+').unwrap_or(tail);
                if number.is_empty() || number.len() > 5 {
                    return Err(NumberError::Malformed);
                }
                (body, number.parse::<i32>().map_err(|_| NumberError::Malformed)?)
            }
            None => (digits, 0),
        };
        let (integer, fraction) = body.split_once('.').unwrap_or((body, ""));
        let mut mantissa: i128 = 0;
        let mut seen = false;
        for c in integer.chars().chain(fraction.chars()) {
            if c == '_' {
                continue;
            }
            let digit = c.to_digit(10).ok_or(NumberError::Malformed)?;
            seen = true;
            mantissa = mantissa
                .checked_mul(10)
                .and_then(|m| m.checked_add(i128::from(digit)))
                .ok_or(NumberError::TooLarge)?;
        }
        if !seen {
            return Err(NumberError::Malformed);
        }
        let places = fraction.chars().filter(char::is_ascii_digit).count();
        let places = i32::try_from(places).map_err(|_| NumberError::TooLarge)?;
        let exponent = exponent.checked_sub(places).ok_or(NumberError::TooLarge)?;
        Decimal::new(if negative { -mantissa } else { mantissa }, exponent)
    }

    /// Mantissa and power of ten.
    pub fn parts(self) -> (i128, i32) {
        (self.mantissa, self.exponent)
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Whether it is zero.
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// The value as an integer, if it is one and fits.
    pub fn to_int(self) -> Option<i64> {
        if self.exponent < 0 {
            return None;
        }
        let scale = 10i128.checked_pow(self.exponent as u32)?;
        i64::try_from(self.mantissa.checked_mul(scale)?).ok()
    }

    /// The nearest f64: for kernels only, never for the value of a field.
    pub fn to_f64(self) -> f64 {
        // The shortest text is read back by the standard correctly rounded parser.
        format!("{}e{}", self.mantissa, self.exponent).parse().unwrap_or(f64::NAN)
    }

    fn aligned(self, other: Decimal) -> Result<(i128, i128, i32), NumberError> {
        let exponent = self.exponent.min(other.exponent);
        let lift = |d: Decimal| -> Option<i128> {
            let places = u32::try_from(d.exponent - exponent).ok()?;
            d.mantissa.checked_mul(10i128.checked_pow(places)?)
        };
        match (lift(self), lift(other)) {
            (Some(a), Some(b)) => Ok((a, b, exponent)),
            _ => Err(NumberError::TooLarge),
        }
    }

    /// The exact sum.
    pub fn add(self, other: Decimal) -> Result<Decimal, NumberError> {
        let (a, b, exponent) = self.aligned(other)?;
        Decimal::new(a.checked_add(b).ok_or(NumberError::TooLarge)?, exponent)
    }

    /// The number with the other sign.
    pub fn neg(self) -> Decimal {
        Decimal { mantissa: -self.mantissa, exponent: self.exponent }
    }

    /// The exact difference.
    pub fn sub(self, other: Decimal) -> Result<Decimal, NumberError> {
        self.add(other.neg())
    }

    /// The exact product.
    pub fn mul(self, other: Decimal) -> Result<Decimal, NumberError> {
        let m = self.mantissa.checked_mul(other.mantissa).ok_or(NumberError::TooLarge)?;
        Decimal::new(m, self.exponent + other.exponent)
    }

    /// Exact quotient; an infinite expansion is an error and is never rounded.
    pub fn div(self, other: Decimal) -> Result<Decimal, NumberError> {
        if other.is_zero() {
            return Err(NumberError::DivisionByZero);
        }
        let (mut m, mut e) = (self.mantissa, self.exponent - other.exponent);
        while m % other.mantissa != 0 {
            m = m.checked_mul(10).ok_or(NumberError::Inexact)?;
            e -= 1;
        }
        Decimal::new(m / other.mantissa, e)
    }

    /// Order by value, also where the two are too far apart to subtract.
    pub fn compare(self, other: Decimal) -> Ordering {
        match self.aligned(other) {
            Ok((a, b, _)) => a.cmp(&b),
            // Too far apart to align: signs first, then magnitudes by leading digit position.
            Err(_) => {
                let magnitude = |d: Decimal| {
                    d.exponent + d.mantissa.unsigned_abs().checked_ilog10().unwrap_or(0) as i32
                };
                match (self.mantissa.signum(), other.mantissa.signum()) {
                    (a, b) if a != b => a.cmp(&b),
                    (1, _) => magnitude(self).cmp(&magnitude(other)),
                    _ => magnitude(other).cmp(&magnitude(self)),
                }
            }
        }
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Decimal {
        let (mut m, mut e) = (i128::from(value), 0);
        while m != 0 && m % 10 == 0 {
            m /= 10;
            e += 1;
        }
        Decimal { mantissa: m, exponent: e }
    }
}

/// The shortest form: plain digits while that stays short (`0.0133`, `10000.0` as `10000`),
/// else scientific (`1e-5`).
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.mantissa.unsigned_abs().to_string();
        let sign = if self.mantissa < 0 { "-" } else { "" };
        let point = digits.len() as i32 + self.exponent;
        let plain = if self.exponent >= 0 {
            format!("{digits}{}", "0".repeat(self.exponent.clamp(0, 400) as usize))
        } else if point > 0 {
            let (integer, fraction) = digits.split_at(point as usize);
            format!("{integer}.{fraction}")
        } else {
            format!("0.{}{digits}", "0".repeat((-point).clamp(0, 400) as usize))
        };
        let scientific = {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{first}{dot}{rest}e{}", point - 1)
        };
        let text =
            if scientific.len() < plain.len().saturating_sub(2) { scientific } else { plain };
        write!(f, "{sign}{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_form_is_shortest_and_reads_back() {
        for (text, shown) in [
            ("1e-5", "1e-5"),
            ("0.00001", "1e-5"),
            ("10000.0", "10000"),
            ("0.0133", "0.0133"),
            ("-0.50", "-0.5"),
            ("1_000", "1000"),
            ("0.002", "0.002"),
        ] {
            let d = Decimal::parse(text).unwrap();
            assert_eq!(d.to_string(), shown);
            assert_eq!(Decimal::parse(shown).unwrap(), d);
        }
    }

    #[test]
    fn products_are_exact() {
        let d = |t| Decimal::parse(t).unwrap();
        let product = d("0.002").mul(d("0.02")).unwrap().mul(d("240000")).unwrap();
        assert_eq!(product.to_string(), "9.6");
        assert_eq!(d("1").div(d("16")).unwrap().to_string(), "0.0625");
        assert_eq!(d("1").div(d("3")), Err(NumberError::Inexact));
        assert_eq!(d("1e-300").compare(d("1e300")), Ordering::Less);
        assert_eq!(Decimal::parse("."), Err(NumberError::Malformed));
    }
}
