//! Exact numbers of configuration, and initial distributions. No value depends on binary floating point.

use std::cmp::Ordering;
use std::fmt;

use dsl::Decimal;

/// An exact fraction in lowest terms with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Numerator, with the sign.
    pub num: i128,
    /// Denominator, above zero.
    pub den: i128,
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.abs().max(1) } else { gcd(b, a % b) }
}

#[expect(
    clippy::should_implement_trait,
    reason = "checked: these return `None` where operators would overflow"
)]
impl Ratio {
    /// The fraction in lowest terms; None for a zero denominator or beyond 127 bits.
    pub fn new(num: i128, den: i128) -> Option<Ratio> {
        if den == 0 || num == i128::MIN || den == i128::MIN {
            return None;
        }
        let g = gcd(num, den) * den.signum();
        Some(Ratio { num: num / g, den: den / g })
    }

    /// The same number as a fraction; None if it does not fit.
    pub fn from_decimal(d: Decimal) -> Option<Ratio> {
        let (mantissa, exponent) = d.parts();
        let scale = 10i128.checked_pow(exponent.unsigned_abs())?;
        if exponent >= 0 {
            Ratio::new(mantissa.checked_mul(scale)?, 1)
        } else {
            Ratio::new(mantissa, scale)
        }
    }

    /// The exact product; None if it does not fit.
    pub fn mul(self, other: Ratio) -> Option<Ratio> {
        Ratio::new(self.num.checked_mul(other.num)?, self.den.checked_mul(other.den)?)
    }

    /// The exact quotient; None at zero or if it does not fit.
    pub fn div(self, other: Ratio) -> Option<Ratio> {
        Ratio::new(self.num.checked_mul(other.den)?, self.den.checked_mul(other.num)?)
    }

    /// The exact sum; None if it does not fit.
    pub fn add(self, other: Ratio) -> Option<Ratio> {
        let a = self.num.checked_mul(other.den)?;
        let b = other.num.checked_mul(self.den)?;
        Ratio::new(a.checked_add(b)?, self.den.checked_mul(other.den)?)
    }

    /// The number with the other sign.
    pub fn neg(self) -> Ratio {
        Ratio { num: -self.num, den: self.den }
    }

    /// The largest integer that is not above it.
    pub fn floor(self) -> i128 {
        self.num.div_euclid(self.den)
    }

    /// Compares exactly, for all fractions: whole parts first, then the reciprocals of the remainders.
    pub fn compare(self, other: Ratio) -> Ordering {
        let (mut a, mut b) = (self, other);
        let mut turned = false;
        loop {
            let (x, y) = (a.floor(), b.floor());
            let (left, right) = (a.num - x * a.den, b.num - y * b.den);
            let order = match (x.cmp(&y), left, right) {
                (Ordering::Equal, 0, 0) => Ordering::Equal,
                (Ordering::Equal, 0, _) => Ordering::Less,
                (Ordering::Equal, _, 0) => Ordering::Greater,
                (Ordering::Equal, _, _) => {
                    a = Ratio { num: a.den, den: left };
                    b = Ratio { num: b.den, den: right };
                    turned = !turned;
                    continue;
                }
                (order, _, _) => order,
            };
            return if turned { order.reverse() } else { order };
        }
    }

    /// The exact power; None if it does not fit.
    pub fn pow(self, n: u32) -> Option<Ratio> {
        Ratio::new(self.num.checked_pow(n)?, self.den.checked_pow(n)?)
    }

    /// Numerator and denominator rounded to f64, then divided: for kernels, never for the value of a field.
    pub fn to_f64(self) -> f64 {
        // i128 to f64 rounds to nearest and IEEE division is exact-rounded on every platform.
        self.num as f64 / self.den as f64
    }

    /// The value as a finite decimal, if it is one.
    pub(crate) fn to_decimal(self) -> Option<Decimal> {
        Decimal::new(self.num, 0).ok()?.div(Decimal::new(self.den, 0).ok()?).ok()
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.den == 1 {
            write!(f, "{}", self.num)
        } else {
            write!(f, "{}/{}", self.num, self.den)
        }
    }
}

/// The root of degree 1, 2 or 4 of the radicand's absolute value, with the radicand's sign: radicand -2
/// and degree 2 mean -sqrt(2). In lowest degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The number under the root, with the sign of the whole.
    pub radicand: Ratio,
    /// 1, 2 or 4.
    pub degree: u32,
}

fn exact_sqrt(n: i128) -> Option<i128> {
    let root = n.checked_isqrt()?;
    (root * root == n).then_some(root)
}

#[expect(
    clippy::should_implement_trait,
    reason = "checked: these return `None` where operators would overflow"
)]
impl Root {
    /// The number 1.
    pub const ONE: Root = Root { radicand: Ratio { num: 1, den: 1 }, degree: 1 };

    /// A fraction as a root of degree 1.
    pub fn rational(radicand: Ratio) -> Root {
        Root { radicand, degree: 1 }
    }

    /// The square root of this; `None` for negatives and beyond fourth roots.
    pub fn sqrt(self) -> Option<Root> {
        if self.radicand.num < 0 || self.degree > 2 {
            return None;
        }
        Some(Root { radicand: self.radicand, degree: self.degree * 2 }.reduced())
    }

    fn reduced(mut self) -> Root {
        while self.degree > 1 {
            let Ratio { num, den } = self.radicand;
            match (num.checked_abs().and_then(exact_sqrt), exact_sqrt(den)) {
                (Some(size), Some(den)) => {
                    let num = size * num.signum();
                    self = Root { radicand: Ratio { num, den }, degree: self.degree / 2 };
                }
                _ => break,
            }
        }
        self
    }

    /// The radicand of the same root at a higher degree. Keeps the sign, which an even power would lose.
    fn raised(self, degree: u32) -> Option<Ratio> {
        let Ratio { num, den } = self.radicand.pow(degree / self.degree)?;
        Ratio::new(num.checked_abs()?.checked_mul(self.radicand.num.signum())?, den)
    }

    /// The number with the other sign.
    pub fn neg(self) -> Root {
        Root { radicand: self.radicand.neg(), degree: self.degree }
    }

    /// The exact product; None if it does not fit.
    pub fn mul(self, other: Root) -> Option<Root> {
        let degree = self.degree.max(other.degree);
        let radicand = self.raised(degree)?.mul(other.raised(degree)?)?;
        Some(Root { radicand, degree }.reduced())
    }

    /// The exact quotient; None at zero or if it does not fit.
    pub fn div(self, other: Root) -> Option<Root> {
        let degree = self.degree.max(other.degree);
        let radicand = self.raised(degree)?.div(other.raised(degree)?)?;
        Some(Root { radicand, degree }.reduced())
    }

    /// Whether this is less than the other; `None` if the comparison overflows.
    pub fn less(self, other: Root) -> Option<bool> {
        // If the signs differ, nothing can overflow.
        if self.radicand.num.signum() != other.radicand.num.signum() {
            return Some(self.radicand.num < other.radicand.num);
        }
        let degree = self.degree.max(other.degree);
        let order = self.raised(degree)?.compare(other.raised(degree)?);
        Some(order == Ordering::Less)
    }

    /// The value for kernels and initial values. Uses libm, so it is equal on every platform.
    pub fn to_f64(self) -> f64 {
        if let (1, Some(decimal)) = (self.degree, self.radicand.to_decimal()) {
            return decimal.to_f64();
        }
        let signed = self.radicand.to_f64();
        let mut size = signed.abs();
        let mut degree = self.degree;
        while degree > 1 {
            size = libm::sqrt(size);
            degree /= 2;
        }
        if signed < 0.0 { -size } else { size }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.degree {
            1 => match self.radicand.to_decimal() {
                Some(d) => write!(f, "{d}"),
                None => write!(f, "{}", self.radicand),
            },
            _ if self.radicand.num < 0 => write!(f, "-{}", self.neg()),
            2 => write!(f, "sqrt({})", Root::rational(self.radicand)),
            _ => write!(f, "sqrt(sqrt({}))", Root::rational(self.radicand)),
        }
    }
}

/// A parameter's initial distribution. Scales are exact; [`InitRule::to_f64`] rounds them, to draw from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitRule<Number = Root> {
    /// Every element is 1.
    Ones,
    /// Every element is 0.
    Zeros,
    /// Sets every element to this value.
    Constant(Number),
    /// N(0, std²).
    Normal {
        /// Standard deviation.
        std: Number,
    },
    /// N(0, std²) truncated to ±bound·std.
    TruncNormal {
        /// Standard deviation before truncation.
        std: Number,
        /// Largest absolute value, in standard deviations.
        bound: Number,
    },
    /// U(−limit, limit).
    Uniform {
        /// Largest absolute value.
        limit: Number,
    },
    /// ln U(lo, hi), the decay rates of Mamba2 and Gated DeltaNet.
    LogUniform {
        /// Lower end, before the logarithm.
        lo: Number,
        /// Upper end, before the logarithm.
        hi: Number,
    },
    /// The inverse softplus of max(exp U(ln lo, ln hi), floor), the time steps of Mamba2.
    TimeStep {
        /// Lower end of the time steps.
        lo: Number,
        /// Upper end of the time steps.
        hi: Number,
        /// Smallest time step.
        floor: Number,
    },
}

impl InitRule {
    /// The rules' names in the language.
    pub const NAMES: [&'static str; 8] = [
        "ones",
        "zeros",
        "constant",
        "normal",
        "trunc_normal",
        "uniform",
        "log_uniform",
        "time_step",
    ];

    /// Builds the rule called `name`. `Err` is the number of arguments it takes.
    pub fn build(name: &str, args: &[Root]) -> Option<Result<InitRule, usize>> {
        let rule = match (name, args) {
            ("ones", []) => InitRule::Ones,
            ("zeros", []) => InitRule::Zeros,
            ("constant", [value]) => InitRule::Constant(*value),
            ("normal", [std]) => InitRule::Normal { std: *std },
            ("trunc_normal", [std, bound]) => InitRule::TruncNormal { std: *std, bound: *bound },
            ("uniform", [limit]) => InitRule::Uniform { limit: *limit },
            ("log_uniform", [lo, hi]) => InitRule::LogUniform { lo: *lo, hi: *hi },
            ("time_step", [lo, hi, floor]) => {
                InitRule::TimeStep { lo: *lo, hi: *hi, floor: *floor }
            }
            ("ones" | "zeros", _) => return Some(Err(0)),
            ("constant" | "normal" | "uniform", _) => return Some(Err(1)),
            ("trunc_normal" | "log_uniform", _) => return Some(Err(2)),
            ("time_step", _) => return Some(Err(3)),
            _ => return None,
        };
        Some(Ok(rule))
    }

    /// The rule with every number as an f64.
    pub fn to_f64(&self) -> InitRule<f64> {
        match self {
            InitRule::Ones => InitRule::Ones,
            InitRule::Zeros => InitRule::Zeros,
            InitRule::Constant(value) => InitRule::Constant(value.to_f64()),
            InitRule::Normal { std } => InitRule::Normal { std: std.to_f64() },
            InitRule::TruncNormal { std, bound } => {
                InitRule::TruncNormal { std: std.to_f64(), bound: bound.to_f64() }
            }
            InitRule::Uniform { limit } => InitRule::Uniform { limit: limit.to_f64() },
            InitRule::LogUniform { lo, hi } => {
                InitRule::LogUniform { lo: lo.to_f64(), hi: hi.to_f64() }
            }
            InitRule::TimeStep { lo, hi, floor } => {
                InitRule::TimeStep { lo: lo.to_f64(), hi: hi.to_f64(), floor: floor.to_f64() }
            }
        }
    }

    /// Why this rule cannot be sampled, if so.
    pub fn problem(&self) -> Option<&'static str> {
        let positive = |r: &Root| r.radicand.num > 0;
        match self {
            InitRule::Ones | InitRule::Zeros | InitRule::Constant(_) => None,
            InitRule::Normal { std } => (!positive(std)).then_some("its std must be above 0"),
            InitRule::TruncNormal { std, bound } => {
                (!positive(std) || !positive(bound)).then_some("its std and bound must be above 0")
            }
            InitRule::Uniform { limit } => {
                (!positive(limit)).then_some("its limit must be above 0")
            }
            InitRule::LogUniform { lo, hi } => (lo.radicand.num < 0 || lo.less(*hi) != Some(true))
                .then_some("it needs 0 <= lo < hi"),
            InitRule::TimeStep { lo, hi, floor } => {
                (!positive(lo) || !positive(floor) || lo.less(*hi) != Some(true))
                    .then_some("it needs 0 < lo < hi and a floor above 0")
            }
        }
    }
}

impl<Number: fmt::Display> fmt::Display for InitRule<Number> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InitRule::Ones => write!(f, "ones"),
            InitRule::Zeros => write!(f, "zeros"),
            InitRule::Constant(value) => write!(f, "constant({value})"),
            InitRule::Normal { std } => write!(f, "normal({std})"),
            InitRule::TruncNormal { std, bound } => write!(f, "trunc_normal({std}, {bound})"),
            InitRule::Uniform { limit } => write!(f, "uniform({limit})"),
            InitRule::LogUniform { lo, hi } => write!(f, "log_uniform({lo}, {hi})"),
            InitRule::TimeStep { lo, hi, floor } => write!(f, "time_step({lo}, {hi}, {floor})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

    use super::*;

    fn ratio(num: i128, den: i128) -> Root {
        Root::rational(Ratio::new(num, den).unwrap())
    }

    #[test]
    fn roots_reduce_and_print_exactly() {
        assert_eq!(ratio(1, 2048).sqrt().unwrap().to_string(), "sqrt(0.00048828125)");
        assert_eq!(ratio(1, 3072).sqrt().unwrap().to_string(), "sqrt(1/3072)");
        assert_eq!(ratio(1, 4).sqrt().unwrap().to_string(), "0.5");
        // sqrt(0.02) / 16^(1/4), the low-rank rule of GLA and Gated DeltaNet
        let std = ratio(2, 100).sqrt().unwrap().div(ratio(16, 1).sqrt().unwrap().sqrt().unwrap());
        assert_eq!(std.unwrap().to_string(), "sqrt(0.005)");
        assert!((std.unwrap().to_f64() - 0.0707106781).abs() < 1e-9);
    }

    #[test]
    fn roots_keep_their_sign() {
        let two = ratio(2, 1).sqrt().unwrap();
        let fourth = two.sqrt().unwrap();
        for (got, text, value) in [
            (ratio(-1, 2).mul(two), "-sqrt(0.5)", -FRAC_1_SQRT_2),
            (two.mul(ratio(-3, 1)), "-sqrt(18)", -4.242640687119285),
            (two.div(ratio(-2, 1)), "-sqrt(0.5)", -FRAC_1_SQRT_2),
            (ratio(-1, 1).div(two), "-sqrt(0.5)", -FRAC_1_SQRT_2),
            (two.neg().mul(two.neg()), "2", 2.0),
            (two.neg().mul(two), "-2", -2.0),
            (two.neg().mul(fourth), "-sqrt(sqrt(8))", -1.681792830507429),
            (ratio(-3, 1).mul(fourth), "-sqrt(sqrt(162))", -3.567621345008164),
            (fourth.neg().mul(fourth.neg()), "sqrt(2)", SQRT_2),
            (fourth.mul(ratio(0, 1)), "0", 0.0),
            (ratio(-1, 3).mul(two), "-sqrt(2/9)", -0.47140452079103173),
        ] {
            let got = got.unwrap();
            assert_eq!(got.to_string(), text);
            assert!((got.to_f64() - value).abs() < 1e-14, "{text}: {}", got.to_f64());
        }
        assert!(two.neg().sqrt().is_none());
        let order = [ratio(-3, 1), two.neg(), fourth.neg(), ratio(0, 1), fourth, two, ratio(3, 1)];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(a.less(*b), Some(i < j), "{a} < {b}");
            }
        }
        assert!(InitRule::Normal { std: two.neg() }.problem().is_some());
        assert!(InitRule::Uniform { limit: fourth.neg() }.problem().is_some());
        assert!(InitRule::LogUniform { lo: two.neg(), hi: two }.problem().is_some());
    }

    #[test]
    fn comparison_is_exact_where_products_overflow() {
        let big = 10i128.pow(37);
        let (a, b) = (Ratio::new(big + 1, big).unwrap(), Ratio::new(big + 2, big + 1).unwrap());
        // 1 + 1/n and 1 + 1/(n + 1)
        assert_eq!(a.compare(b), Ordering::Greater);
        assert_eq!(b.compare(a), Ordering::Less);
        assert_eq!(a.compare(a), Ordering::Equal);
        assert_eq!(
            Ratio::new(-1, 3).unwrap().compare(Ratio::new(-1, 2).unwrap()),
            Ordering::Greater
        );
        assert_eq!(ratio(2, 1).sqrt().unwrap().less(ratio(3, 2)), Some(true));
        assert_eq!(ratio(3, 2).less(ratio(2, 1).sqrt().unwrap()), Some(false));
    }
}
