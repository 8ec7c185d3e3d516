//! The three recurrences, token by token, with their states kept for the backward pass.

use super::tensor::Tensor;

/// One head's state, rows × columns.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    columns: usize,
    data: Vec<f64>,
}

impl Matrix {
    fn zeros(rows: usize, columns: usize) -> Matrix {
        Matrix { rows, columns, data: vec![0.0; rows * columns] }
    }

    fn each(&mut self, mut f: impl FnMut(usize, usize, &mut f64)) {
        for (n, x) in self.data.iter_mut().enumerate() {
            f(n / self.columns, n % self.columns, x);
        }
    }

    /// S + a bᵀ.
    fn add_outer(&mut self, a: &[f64], b: &[f64]) {
        self.each(|i, j, x| *x += a[i] * b[j]);
    }

    /// S b.
    fn times(&self, b: &[f64]) -> Vec<f64> {
        self.data.chunks(self.columns).map(|row| dot(row, b)).collect()
    }

    /// Sᵀ a.
    fn transposed_times(&self, a: &[f64]) -> Vec<f64> {
        (0..self.columns)
            .map(|j| (0..self.rows).map(|i| self.data[i * self.columns + j] * a[i]).sum())
            .collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn scaled(a: &[f64], by: f64) -> Vec<f64> {
    a.iter().map(|x| by * x).collect()
}

/// The vector or number of x at (b, t, h).
fn head(x: &Tensor, b: usize, t: usize, h: usize) -> &[f64] {
    let heads = x.dims[2];
    let width = x.dims.get(3).copied().unwrap_or(1);
    &x.data[((b * x.dims[1] + t) * heads + h) * width..][..width]
}

fn add(x: &mut Tensor, b: usize, t: usize, h: usize, values: &[f64]) {
    let heads = x.dims[2];
    let width = x.dims.get(3).copied().unwrap_or(1);
    let at = ((b * x.dims[1] + t) * heads + h) * width;
    for (x, value) in x.data[at..].iter_mut().zip(values) {
        *x += value;
    }
}

/// Runs `step(S, b, t, h) -> y` over every head of every sequence.
fn scan(
    like: &Tensor,
    (rows, columns): (usize, usize),
    initial: Option<&Tensor>,
    step: impl Fn(&mut Matrix, usize, usize, usize) -> Vec<f64>,
) -> (Vec<Tensor>, Vec<Matrix>) {
    let (batch, time, heads) = (like.dims[0], like.dims[1], like.dims[2]);
    let mut y = Tensor::zeros(like.dims.clone());
    let mut last = Tensor::zeros(vec![batch, heads, rows, columns]);
    let mut states = Vec::new();
    let size = rows * columns;
    for n in 0..batch * heads {
        let (b, h) = (n / heads, n % heads);
        let mut s = Matrix::zeros(rows, columns);
        if let Some(initial) = initial {
            s.data.copy_from_slice(&initial.data[n * size..][..size]);
        }
        for t in 0..time {
            states.push(s.clone());
            let out = step(&mut s, b, t, h);
            add(&mut y, b, t, h, &out);
        }
        states.push(s.clone());
        last.data[n * size..][..size].copy_from_slice(&s.data);
    }
    (vec![y, last], states)
}

fn exp(x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| libm::exp(*x)).collect()
}

fn read_out(q: &Tensor) -> f64 {
    1.0 / libm::sqrt(q.width() as f64)
}

fn gla_states(x: &[&Tensor], initial: Option<&Tensor>) -> (Vec<Tensor>, Vec<Matrix>) {
    let (q, k, v, g) = (x[0], x[1], x[2], x[3]);
    scan(v, (q.width(), v.width()), initial, |s, b, t, h| {
        let decay = exp(head(g, b, t, h));
        s.each(|i, _, x| *x *= decay[i]);
        s.add_outer(head(k, b, t, h), head(v, b, t, h));
        scaled(&s.transposed_times(head(q, b, t, h)), read_out(q))
    })
}

pub(super) fn gla(x: &[&Tensor], state: bool) -> Vec<Tensor> {
    gla_states(x, state.then(|| x[4])).0
}

/// Visits (b, h, t) from the last token back, with the states before and after it and dS.
fn reverse(
    dy: &Tensor,
    states: &[Matrix],
    mut step: impl FnMut(&Matrix, &Matrix, &mut Matrix, usize, usize, usize),
) {
    let (batch, time, heads) = (dy.dims[0], dy.dims[1], dy.dims[2]);
    for n in 0..batch * heads {
        let of = &states[n * (time + 1)..][..time + 1];
        let mut ds = Matrix::zeros(of[0].rows, of[0].columns);
        for t in (0..time).rev() {
            step(&of[t], &of[t + 1], &mut ds, n / heads, t, n % heads);
        }
    }
}

pub(super) fn gla_grad(x: &[&Tensor]) -> Vec<Tensor> {
    let (dy, q, k, v, g) = (x[0], x[1], x[2], x[3], x[4]);
    let (_, states) = gla_states(&x[1..], None);
    let [mut dq, mut dk, mut dv, mut dg] = [q, k, v, g].map(|x| Tensor::zeros(x.dims.clone()));
    let c = read_out(q);
    reverse(dy, &states, |before, after, ds, b, t, h| {
        let out = scaled(head(dy, b, t, h), c);
        ds.add_outer(head(q, b, t, h), &out);
        add(&mut dq, b, t, h, &after.times(&out));
        add(&mut dk, b, t, h, &ds.times(head(v, b, t, h)));
        add(&mut dv, b, t, h, &ds.transposed_times(head(k, b, t, h)));
        let decay = exp(head(g, b, t, h));
        ds.each(|i, _, x| *x *= decay[i]);
        let rows: Vec<f64> = before
            .data
            .chunks(before.columns)
            .zip(ds.data.chunks(ds.columns))
            .map(|(s, d)| dot(s, d))
            .collect();
        add(&mut dg, b, t, h, &rows);
    });
    vec![dq, dk, dv, dg]
}

fn delta_states(x: &[&Tensor], initial: Option<&Tensor>) -> (Vec<Tensor>, Vec<Matrix>) {
    let (q, k, v, beta, g) = (x[0], x[1], x[2], x[3], x[4]);
    scan(v, (q.width(), v.width()), initial, |s, b, t, h| {
        let decay = libm::exp(head(g, b, t, h)[0]);
        s.each(|_, _, x| *x *= decay);
        let k = head(k, b, t, h);
        let known = s.transposed_times(k);
        let error: Vec<f64> = head(v, b, t, h).iter().zip(known).map(|(v, s)| v - s).collect();
        s.add_outer(k, &scaled(&error, head(beta, b, t, h)[0]));
        scaled(&s.transposed_times(head(q, b, t, h)), read_out(q))
    })
}

pub(super) fn delta(x: &[&Tensor], state: bool) -> Vec<Tensor> {
    delta_states(x, state.then(|| x[5])).0
}

pub(super) fn delta_grad(x: &[&Tensor]) -> Vec<Tensor> {
    let (dy, q, k, v, beta, g) = (x[0], x[1], x[2], x[3], x[4], x[5]);
    let (_, states) = delta_states(&x[1..], None);
    let [mut dq, mut dk, mut dv, mut dbeta, mut dg] =
        [q, k, v, beta, g].map(|x| Tensor::zeros(x.dims.clone()));
    let c = read_out(q);
    reverse(dy, &states, |before, after, ds, b, t, h| {
        let out = scaled(head(dy, b, t, h), c);
        ds.add_outer(head(q, b, t, h), &out);
        add(&mut dq, b, t, h, &after.times(&out));
        let (k, beta, decay) =
            (head(k, b, t, h), head(beta, b, t, h)[0], libm::exp(head(g, b, t, h)[0]));
        let mut decayed = before.clone();
        decayed.each(|_, _, x| *x *= decay);
        let known = decayed.transposed_times(k);
        let u: Vec<f64> = head(v, b, t, h).iter().zip(known).map(|(v, s)| v - s).collect();
        let through = ds.transposed_times(k);
        add(&mut dbeta, b, t, h, &[dot(&through, &u)]);
        let e = scaled(&through, beta);
        add(&mut dv, b, t, h, &e);
        add(&mut dk, b, t, h, &scaled(&ds.times(&u), beta));
        add(&mut dk, b, t, h, &scaled(&decayed.times(&e), -1.0));
        ds.add_outer(&scaled(k, -1.0), &e);
        add(&mut dg, b, t, h, &[dot(&ds.data, &decayed.data)]);
        ds.each(|_, _, x| *x *= decay);
    });
    vec![dq, dk, dv, dbeta, dg]
}

fn ssd_states(x: &[&Tensor], initial: Option<&Tensor>) -> (Vec<Tensor>, Vec<Matrix>) {
    let (x, dt, a, bs, c, d) = (x[0], x[1], x[2], x[3], x[4], x[5]);
    let per_group = x.dims[2] / bs.dims[2];
    scan(x, (x.width(), bs.width()), initial, |s, b, t, h| {
        let dt = head(dt, b, t, h)[0];
        let decay = libm::exp(dt * a.data[h]);
        s.each(|_, _, x| *x *= decay);
        let x = head(x, b, t, h);
        s.add_outer(&scaled(x, dt), head(bs, b, t, h / per_group));
        let read = s.times(head(c, b, t, h / per_group));
        read.iter().zip(x).map(|(y, x)| y + d.data[h] * x).collect()
    })
}

pub(super) fn ssd(x: &[&Tensor], state: bool) -> Vec<Tensor> {
    ssd_states(x, state.then(|| x[6])).0
}

pub(super) fn ssd_grad(operands: &[&Tensor]) -> Vec<Tensor> {
    let (dy, x, dt, a, bs, c, d) =
        (operands[0], operands[1], operands[2], operands[3], operands[4], operands[5], operands[6]);
    let (_, states) = ssd_states(&operands[1..], None);
    let [mut dx, mut ddt, mut da, mut db, mut dc, mut dd] =
        [x, dt, a, bs, c, d].map(|x| Tensor::zeros(x.dims.clone()));
    let per_group = x.dims[2] / bs.dims[2];
    reverse(dy, &states, |before, after, ds, b, t, h| {
        let group = h / per_group;
        let (dy, x, step) = (head(dy, b, t, h), head(x, b, t, h), head(dt, b, t, h)[0]);
        let (bt, ct) = (head(bs, b, t, group), head(c, b, t, group));
        ds.add_outer(dy, ct);
        add(&mut dc, b, t, group, &after.transposed_times(dy));
        let written = ds.times(bt);
        add(&mut dx, b, t, h, &scaled(&written, step));
        add(&mut dx, b, t, h, &scaled(dy, d.data[h]));
        add(&mut db, b, t, group, &scaled(&ds.transposed_times(x), step));
        let decay = libm::exp(step * a.data[h]);
        let kept = decay * dot(&before.data, &ds.data);
        add(&mut ddt, b, t, h, &[a.data[h] * kept + dot(x, &written)]);
        da.data[h] += step * kept;
        dd.data[h] += dot(x, dy);
        ds.each(|_, _, x| *x *= decay);
    });
    vec![dx, ddt, da, db, dc, dd]
}
