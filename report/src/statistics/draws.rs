//! A stream of keyed random numbers: the n-th number of a key is the same on every machine.
//!
//! Generator: the Philox of `init::philox`; normal numbers by the quantile of `init::normal`.

use records::init::normal;
use records::init::philox::Philox;

const BUFFER: usize = 64;

pub(crate) struct Draws {
    philox: Philox,
    buffer: [f64; BUFFER],
    next: u64,
}

impl Draws {
    pub(crate) fn new(key: &str) -> Draws {
        let philox = Philox::new(&blake3::hash(key.as_bytes()));
        Draws { philox, buffer: [0.0; BUFFER], next: 0 }
    }

    /// A number strictly between 0 and 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        let at = self.next as usize % BUFFER;
        if at == 0 {
            self.philox.uniforms(self.next, &mut self.buffer);
        }
        self.next += 1;
        self.buffer[at]
    }

    /// A normal number with mean 0 and standard deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        normal::quantile(self.uniform())
    }
}
