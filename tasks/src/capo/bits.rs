//! Knowledge capacity in bits, from losses on names and values: "Physics of Language Models: Part 3.3", Definition 4.3,
//! with the sizes of the published lists.

use std::f64::consts::LN_2;

use super::biography::Attribute;

/// Number of full names: 400 * 400 * 1000.
pub const NAMES: f64 = 160_000_000.0;
/// Number of combined values of a person: gender, birth date, birth city, university, field and employer.
pub const VALUES: f64 = 2.0 * (12.0 * 28.0 * 200.0) * 200.0 * 300.0 * 100.0 * 263.0;

/// A model's knowledge of a population.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Lower bound on the bits the model has learnt.
    pub bits: f64,
    /// R: learnt bits per parameter.
    pub per_parameter: f64,
    /// R_max: R of a model that knows everything.
    pub most_per_parameter: f64,
}

/// The capacity for these losses: natural-log losses, summed over the tokens of each person's name or values, then
/// averaged over people. The caller guarantees at least one parameter.
pub fn capacity(people: u64, parameters: u64, name_loss: f64, value_loss: f64) -> Capacity {
    let people = people as f64;
    let (names, values) = (libm::log2(NAMES), libm::log2(VALUES));
    let bits = people * (names - name_loss / LN_2) + people * (values - value_loss / LN_2);
    let most = people * (names - libm::log2(people)) + people * values;
    Capacity {
        bits,
        per_parameter: bits / parameters as f64,
        most_per_parameter: most / parameters as f64,
    }
}

/// Accumulates losses, one biography at a time, into the means that [`capacity`] takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Losses {
    biographies: u64,
    name: f64,
    values: f64,
}

impl Losses {
    /// Adds a biography by the summed loss of each of its values, including the name.
    pub fn add(&mut self, values: impl IntoIterator<Item = (Attribute, f64)>) {
        self.biographies += 1;
        for (value, loss) in values {
            match value {
                Attribute::Name => self.name += loss,
                Attribute::BirthDate
                | Attribute::BirthCity
                | Attribute::University
                | Attribute::Field
                | Attribute::Employer
                | Attribute::Gender => self.values += loss,
            }
        }
    }

    /// Mean losses of names and of values; None before the first biography.
    pub fn means(&self) -> Option<(f64, f64)> {
        let count = self.biographies as f64;
        (self.biographies > 0).then(|| (self.name / count, self.values / count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_learnt_is_zero_bits_and_everything_is_the_most() {
        assert!((libm::log2(VALUES) - 47.59).abs() < 0.005);
        let (people, parameters) = (50_000, 1_000_000);
        // With nothing learnt, losses are those of guessing among all names and values.
        let nothing = capacity(people, parameters, libm::log(NAMES), libm::log(VALUES));
        assert!(nothing.bits.abs() < 1e-6);
        // With everything learnt, the only uncertainty left is which person it is.
        let all = capacity(people, parameters, libm::log(people as f64), 0.0);
        assert!((all.per_parameter - all.most_per_parameter).abs() < 1e-9);
        assert!((all.bits - all.per_parameter * 1e6).abs() < 1e-3);
        assert!((all.bits / 50_000.0 - (NAMES / 50_000.0).log2() - VALUES.log2()).abs() < 1e-9);
    }

    #[test]
    fn losses_are_means_over_people() {
        let mut losses = Losses::default();
        assert_eq!(losses.means(), None);
        losses.add([(Attribute::Name, 2.0), (Attribute::Gender, 1.0), (Attribute::Employer, 0.5)]);
        losses.add([(Attribute::Name, 4.0), (Attribute::BirthDate, 0.25)]);
        assert_eq!(losses.means(), Some((3.0, 0.875)));
    }
}
