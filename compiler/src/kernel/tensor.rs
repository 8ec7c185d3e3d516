//! Dense row-major tensors in f64, for the values of kernels in tests, and a random number generator.

/// Integers are also stored as f64, because they are small in tests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) dims: Vec<usize>,
    pub(crate) data: Vec<f64>,
}

impl Tensor {
    pub(crate) fn zeros(dims: Vec<usize>) -> Tensor {
        let count = dims.iter().product();
        Tensor { dims, data: vec![0.0; count] }
    }

    pub(crate) fn from_fn(dims: Vec<usize>, f: impl FnMut(usize) -> f64) -> Tensor {
        let count = dims.iter().product();
        Tensor { dims, data: (0..count).map(f).collect() }
    }

    pub(crate) fn number(x: f64) -> Tensor {
        Tensor { dims: Vec::new(), data: vec![x] }
    }

    pub(crate) fn like(&self, data: Vec<f64>) -> Tensor {
        assert_eq!(data.len(), self.data.len());
        Tensor { dims: self.dims.clone(), data }
    }

    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Tensor {
        self.like(self.data.iter().map(|x| f(*x)).collect())
    }

    /// The last extent.
    pub(crate) fn width(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Slices along the last axis.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks(self.width())
    }

    /// All extents but the last.
    pub(crate) fn outer(&self) -> Vec<usize> {
        self.dims.split_last().map_or(Vec::new(), |(_, outer)| outer.to_vec())
    }

    /// The extents with another last one.
    pub(crate) fn with_last(&self, last: usize) -> Vec<usize> {
        let mut dims = self.outer();
        dims.push(last);
        dims
    }

    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        self.data[self.offset(index)]
    }

    pub(crate) fn add_at(&mut self, index: &[usize], x: f64) {
        let at = self.offset(index);
        self.data[at] += x;
    }

    fn offset(&self, index: &[usize]) -> usize {
        assert_eq!(index.len(), self.dims.len(), "{index:?} in {:?}", self.dims);
        index.iter().zip(&self.dims).fold(0, |at, (i, d)| {
            assert!(i < d, "{index:?} in {:?}", self.dims);
            at * d + i
        })
    }

    /// Steps `from..to` of the time axis.
    pub(crate) fn times(&self, from: usize, to: usize) -> Tensor {
        let inner: usize = self.dims[2..].iter().product();
        let mut dims = self.dims.clone();
        dims[1] = to - from;
        let per_batch = self.dims[1] * inner;
        let rows = |b: usize| &self.data[b * per_batch + from * inner..b * per_batch + to * inner];
        let data = (0..self.dims[0]).flat_map(rows).copied().collect();
        Tensor { dims, data }
    }

    /// Concatenates along the time axis.
    pub(crate) fn append(&self, other: &Tensor) -> Tensor {
        let (a, b) =
            (self.data.len() / self.dims[0].max(1), other.data.len() / other.dims[0].max(1));
        let mut dims = self.dims.clone();
        dims[1] += other.dims[1];
        let mut data = Vec::with_capacity(self.data.len() + other.data.len());
        for n in 0..self.dims[0] {
            data.extend_from_slice(&self.data[n * a..(n + 1) * a]);
            data.extend_from_slice(&other.data[n * b..(n + 1) * b]);
        }
        Tensor { dims, data }
    }

    pub(crate) fn distance(&self, other: &Tensor) -> f64 {
        assert_eq!(self.dims, other.dims);
        self.data.iter().zip(&other.data).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }
}

/// Applies f to each pair of elements; the shorter tensor is broadcast over the longer's leading axes.
pub(crate) fn zip(a: &Tensor, b: &Tensor, f: impl Fn(f64, f64) -> f64) -> Tensor {
    let long = if b.dims.len() > a.dims.len() { b } else { a };
    let short = a.dims.len().min(b.dims.len());
    assert_eq!(a.dims[a.dims.len() - short..], b.dims[b.dims.len() - short..]);
    let at = |x: &Tensor, i: usize| x.data[i % x.data.len()];
    long.like((0..long.data.len()).map(|i| f(at(a, i), at(b, i))).collect())
}

/// Joins tensors along the last axis.
pub(crate) fn concat(xs: &[&Tensor]) -> Tensor {
    let rows = xs[0].rows().count();
    let row = |n: usize| xs.iter().flat_map(move |x| x.data[n * x.width()..][..x.width()].to_vec());
    let dims = xs[0].with_last(xs.iter().map(|x| x.width()).sum());
    Tensor { dims, data: (0..rows).flat_map(row).collect() }
}

pub(crate) fn silu(x: f64) -> f64 {
    x * logistic(x)
}

pub(crate) fn silu_slope(x: f64) -> f64 {
    logistic(x) * (1.0 + x * (1.0 - logistic(x)))
}

/// 1 / (1 + exp(−x)).
pub(crate) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// SplitMix64 (Steele et al. 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The sum of twelve uniforms: close enough to a normal for tests.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}
