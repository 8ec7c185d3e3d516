//! The only unsafe code, behind safe calls: the C++ shim (native/shim.h), memory of CPU tensors as slices and rows,
//! ATen's thread pool, and functions compiled for wider registers than the build's target. Preconditions are checked
//! here at run time.
//!
//! No panic unwinds into C++, and no C++ exception into Rust. Two threads never hold the same row mutably. A view is
//! taken, used and dropped inside one kernel call, which makes no tensor call meanwhile.
#![expect(unsafe_code, reason = "the one module that may; every block says why it is sound")]

mod cuda;
mod group;
mod heads;
#[cfg(test)]
pub(crate) mod shapes;
mod tiles;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use cuda::{
    CudaDriver, DeviceEvent, TimedEvent, flash_backward, flash_forward, forget, make_deterministic,
    reserved, use_device, uuid,
};
pub use group::{Group, Meeting, Network, Pending, Work};
pub(crate) use heads::{ByHead, HeadRows, parallel_heads};
use tch::{Device, Kind, Tensor};
pub(crate) use tiles::{
    Axis, Matrix, MatrixMut, Strip, TileSize, multiply_tile, parallel_columns, parallel_parts,
};

use super::{Isa, KernelError};

unsafe extern "C" {
    fn canonc_last_error() -> *const c_char;
    fn canonc_parallel_for(
        count: i64,
        grain: i64,
        context: *mut c_void,
        body: extern "C" fn(*mut c_void, i64, i64),
    ) -> c_int;
    fn canonc_cpu_capability() -> *const c_char;
    fn canonc_torch_version() -> *const c_char;
    fn canonc_build_config() -> *const c_char;
    fn canonc_library_folder() -> *const c_char;
    fn canonc_load_library(path: *const c_char) -> c_int;
    fn canonc_set_deterministic(on: c_int) -> c_int;
    fn canonc_is_deterministic() -> c_int;
}

/// The kernels that ATen has picked for this process: `DEFAULT`, `AVX2`, `AVX512`, ...
pub fn cpu_capability() -> String {
    // SAFETY: the shim returns a static, null-terminated string.
    text(unsafe { canonc_cpu_capability() })
}

/// The PyTorch version that this binary was compiled against, as `2.11.0`.
pub fn torch_version() -> String {
    // SAFETY: the shim returns a string literal.
    text(unsafe { canonc_torch_version() })
}

/// libtorch's description of its own build: compiler, BLAS, oneDNN, capability.
pub fn build_config() -> String {
    // SAFETY: the shim returns a static, null-terminated string.
    text(unsafe { canonc_build_config() })
}

/// The folder of the loaded libtorch_cpu.
pub fn library_folder() -> Result<PathBuf, KernelError> {
    // SAFETY: no arguments; the result is null or a static string.
    let folder = unsafe { canonc_library_folder() };
    if folder.is_null() { Err(last_error()) } else { Ok(PathBuf::from(text(folder))) }
}

/// Loads a shared library permanently, with its symbols visible to all.
pub(crate) fn load_library(path: &Path) -> Result<(), KernelError> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| KernelError::new(format!("the path {} has a zero byte", path.display())))?;
    // SAFETY: a null-terminated string that outlives the call.
    checked(unsafe { canonc_load_library(path.as_ptr()) })
}

/// Makes ops deterministic, or an error if they cannot be; no autotuning, no TF32.
pub fn set_deterministic(on: bool) -> Result<(), KernelError> {
    // SAFETY: a plain integer argument.
    checked(unsafe { canonc_set_deterministic(c_int::from(on)) })
}

/// Whether [`set_deterministic`] is on.
pub fn is_deterministic() -> bool {
    // SAFETY: no arguments.
    (unsafe { canonc_is_deterministic() }) != 0
}

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and every string of the shim is null-terminated and lives until this thread's next call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn last_error() -> KernelError {
    // SAFETY: no arguments; never null.
    KernelError::new(text(unsafe { canonc_last_error() }))
}

fn checked(status: c_int) -> Result<(), KernelError> {
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

/// Runs `body` over disjoint pieces of `0..count` on ATen's own threads, at least `grain` per piece. The pieces depend
/// on the number of threads, so results must not depend on them.
pub fn parallel_for(count: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
    struct Context<'a, F> {
        body: &'a F,
        panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
    }
    extern "C" fn call<F: Fn(Range<usize>) + Sync>(context: *mut c_void, begin: i64, end: i64) {
        // SAFETY: `context` is the Context<F> below, alive and only shared until canonc_parallel_for returns.
        let context = unsafe { &*context.cast::<Context<'_, F>>() };
        let piece = begin as usize..end as usize;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (context.body)(piece)))
            && let Ok(mut first) = context.panic.lock()
        {
            first.get_or_insert(panic);
        }
    }
    fn callback<F: Fn(Range<usize>) + Sync>(_: &F) -> extern "C" fn(*mut c_void, i64, i64) {
        call::<F>
    }
    let mut context = Context { body: &body, panic: Mutex::new(None) };
    // SAFETY: `call::<F>` casts back to this very type, never unwinds, and F is Sync.
    let status = unsafe {
        canonc_parallel_for(
            count as i64,
            grain.max(1) as i64,
            (&raw mut context).cast::<c_void>(),
            callback(&body),
        )
    };
    if let Ok(Some(panic)) = context.panic.into_inner() {
        resume_unwind(panic);
    }
    // `body` reports errors only by panicking, so this is a failure of OpenMP itself, and there is no way to continue.
    assert!(status == 0, "ATen's thread pool failed: {}", last_error());
}

/// All elements of a contiguous f32 CPU tensor.
pub(crate) fn slice(tensor: &Tensor) -> Result<&[f32], KernelError> {
    check_f32_cpu(tensor)?;
    let count = contiguous_len(tensor)?;
    // SAFETY: f32, on the CPU and contiguous (checked), so `count` floats are valid while `tensor` is borrowed;
    // libtorch returns null for empty tensors, which is replaced.
    Ok(unsafe { std::slice::from_raw_parts(base(tensor, count), count) })
}

/// All elements of a contiguous bf16 CPU tensor: the upper halves of f32 bits.
pub(crate) fn halves(tensor: &Tensor) -> Result<&[u16], KernelError> {
    check_cpu(tensor, Kind::BFloat16)?;
    let count = contiguous_len(tensor)?;
    // SAFETY: two bytes each, on the CPU and contiguous (checked), so `count` of them are valid while `tensor` is
    // borrowed; any bits are a u16.
    Ok(unsafe { std::slice::from_raw_parts(base(tensor, count).cast::<u16>(), count) })
}

/// All elements of a contiguous f32 CPU tensor, mutably. Must share no memory with tensors read meanwhile.
pub(crate) fn slice_mut<'a>(
    tensor: &'a mut Tensor,
    reads: &[&Tensor],
) -> Result<&'a mut [f32], KernelError> {
    check_f32_cpu(tensor)?;
    let count = contiguous_len(tensor)?;
    check_apart(tensor, reads)?;
    // SAFETY: as in `slice`; disjoint from the call's operands (checked), and see the module's rule.
    Ok(unsafe { std::slice::from_raw_parts_mut(base(tensor, count), count) })
}

/// All elements of a contiguous bf16 CPU tensor, mutably. Must share no memory with tensors read meanwhile.
pub(crate) fn halves_mut<'a>(
    tensor: &'a mut Tensor,
    reads: &[&Tensor],
) -> Result<&'a mut [u16], KernelError> {
    check_cpu(tensor, Kind::BFloat16)?;
    let count = contiguous_len(tensor)?;
    check_apart(tensor, reads)?;
    // SAFETY: as in `halves`; disjoint from the call's operands (checked), and see the module's rule.
    Ok(unsafe { std::slice::from_raw_parts_mut(base(tensor, count).cast::<u16>(), count) })
}

fn base(tensor: &Tensor, count: usize) -> *mut f32 {
    if count == 0 { std::ptr::NonNull::dangling().as_ptr() } else { tensor.data_ptr().cast() }
}

fn contiguous_len(tensor: &Tensor) -> Result<usize, KernelError> {
    if !tensor.is_contiguous() {
        return Err(KernelError::new(format!(
            "a contiguous tensor is expected, got shape {:?} with strides {:?}",
            tensor.size(),
            tensor.stride()
        )));
    }
    Ok(tensor.numel())
}

fn check_f32_cpu(tensor: &Tensor) -> Result<(), KernelError> {
    check_cpu(tensor, Kind::Float)
}

fn check_cpu(tensor: &Tensor, kind: Kind) -> Result<(), KernelError> {
    if tensor.device() == Device::Cpu && tensor.kind() == kind {
        return Ok(());
    }
    let wanted = if kind == Kind::Float { "an f32" } else { "a bf16" };
    Err(KernelError::new(format!(
        "{wanted} tensor on the CPU is expected, got {:?} on {:?}",
        tensor.kind(),
        tensor.device()
    )))
}

/// The layout of a [b, t, c] tensor's rows; c is dense, b and t may have any stride that keeps rows apart.
#[derive(Clone, Copy)]
struct Layout {
    pointer: *mut f32,
    sizes: [usize; 3],
    strides: [usize; 2],
}

impl Layout {
    fn from_tensor(tensor: &Tensor) -> Result<Self, KernelError> {
        check_f32_cpu(tensor)?;
        let (sizes, strides) = (tensor.size(), tensor.stride());
        let ([batch, time, channels], [over_batch, over_time, over_channels]) =
            (sizes.as_slice(), strides.as_slice())
        else {
            return Err(KernelError::new(format!("a [b, t, c] tensor is expected, got {sizes:?}")));
        };
        let wide = |stride: i64, width: i64, count: i64| count <= 1 || stride >= width;
        let over_rows = if *time <= 1 { *channels } else { over_time * (time - 1) + channels };
        if (*over_channels != 1 && *channels > 1)
            || !wide(*over_time, *channels, *time)
            || !wide(*over_batch, over_rows, *batch)
        {
            return Err(KernelError::new(format!(
                "rows of dense channels are expected, got shape {sizes:?} with strides {strides:?}"
            )));
        }
        let sizes = [*batch as usize, *time as usize, *channels as usize];
        // A size-1 dimension may carry any stride: it is never multiplied by more than 0.
        Ok(Self {
            pointer: base(tensor, sizes.iter().product()),
            sizes,
            strides: [*over_batch as usize, *over_time as usize],
        })
    }

    /// Pointer to row (b, t). Panics outside the tensor.
    fn row(&self, b: usize, t: usize) -> *mut f32 {
        let [batch, time, _] = self.sizes;
        assert!(b < batch && t < time, "row ({b}, {t}) of a [{batch}, {time}, c] tensor");
        // SAFETY: inside the tensor's storage, since b and t are inside its sizes.
        unsafe { self.pointer.add(b * self.strides[0] + t * self.strides[1]) }
    }

    /// Prefetches channel c of row (b, t), which may be outside the tensor, for reading or writing.
    #[inline(always)]
    fn prefetch(&self, b: usize, t: usize, c: usize) {
        let at = self.pointer.wrapping_add(b * self.strides[0] + t * self.strides[1] + c);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which touches no memory and fails for no address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// The rows of a [b, t, c] f32 CPU tensor, which may be a `narrow` of a packed one.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    layout: Layout,
    borrow: PhantomData<&'a [f32]>,
}

// SAFETY: reading floats from several threads.
unsafe impl Send for Rows<'_> {}
// SAFETY: as above.
unsafe impl Sync for Rows<'_> {}

impl<'a> Rows<'a> {
    pub(crate) fn from_tensor(tensor: &'a Tensor) -> Result<Self, KernelError> {
        Ok(Self { layout: Layout::from_tensor(tensor)?, borrow: PhantomData })
    }

    /// [batch, time, channels]
    pub(crate) fn sizes(&self) -> [usize; 3] {
        self.layout.sizes
    }

    pub(crate) fn row(&self, b: usize, t: usize) -> &'a [f32] {
        // SAFETY: `row` is inside the tensor (with dense channels), which is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts(self.layout.row(b, t), self.layout.sizes[2]) }
    }

    /// A hint that channel c of row (b, t), if there is one, is needed soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, b: usize, t: usize, c: usize) {
        self.layout.prefetch(b, t, c);
    }
}

/// Rows that a thread will write later, only to prefetch them.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<'a>(&'a Layout);

impl Ahead<'_> {
    /// A hint that channel c of row (b, t), if there is one, is needed soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, b: usize, t: usize, c: usize) {
        self.0.prefetch(b, t, c);
    }
}

/// The rows of a [b, t, c] f32 CPU tensor, mutably. Rows do not overlap (checked by the strides).
pub(crate) struct RowsMut<'a> {
    layout: Layout,
    borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: shared only by `parallel_blocks`, which gives each row to one thread.
unsafe impl Sync for RowsMut<'_> {}

impl<'a> RowsMut<'a> {
    /// `reads` are the tensors that the same kernel call reads. None may share memory with `tensor`.
    pub(crate) fn from_tensor(
        tensor: &'a mut Tensor,
        reads: &[&Tensor],
    ) -> Result<Self, KernelError> {
        let layout = Layout::from_tensor(tensor)?;
        check_apart(tensor, reads)?;
        Ok(Self { layout, borrow: PhantomData })
    }
}

fn check_apart(result: &Tensor, reads: &[&Tensor]) -> Result<(), KernelError> {
    let written = span(result);
    if reads
        .iter()
        .map(|read| span(read))
        .any(|read| written.start < read.end && read.start < written.end)
    {
        return Err(KernelError::new(
            "a kernel's result would overwrite one of its operands".to_owned(),
        ));
    }
    Ok(())
}

/// The addresses from a tensor's first to its last element.
fn span(tensor: &Tensor) -> Range<usize> {
    let start = tensor.data_ptr() as usize;
    if tensor.numel() == 0 {
        return start..start;
    }
    let last: i64 = tensor.size().iter().zip(tensor.stride()).map(|(n, s)| (n - 1) * s).sum();
    start..start + (last as usize + 1) * tensor.kind().elt_size_in_bytes()
}

/// Rows `times` of one batch item.
#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) batch: usize,
    pub(crate) times: Range<usize>,
}

/// The memory that one thread may write while it works on a block.
pub(crate) struct BlockMut<'a> {
    layout: &'a Layout,
    block: Block,
}

impl<'a> BlockMut<'a> {
    /// All rows of the tensor, to prefetch the next ones.
    pub(crate) fn ahead(&self) -> Ahead<'a> {
        Ahead(self.layout)
    }

    /// Rows `first..first + N` of the block's batch item; those past the block's end are empty slices.
    pub(crate) fn rows<const N: usize>(&mut self, first: usize) -> [&mut [f32]; N] {
        assert!(self.block.times.contains(&first), "row {first} outside {:?}", self.block.times);
        std::array::from_fn(|i| {
            if first + i >= self.block.times.end {
                return &mut [][..];
            }
            // SAFETY: inside the tensor; only one task gets this block, its rows are in no other block and do not
            // overlap, and `&mut self` excludes other borrows of them.
            unsafe {
                std::slice::from_raw_parts_mut(
                    self.layout.row(self.block.batch, first + i),
                    self.layout.sizes[2],
                )
            }
        })
    }
}

/// Number of blocks that [`parallel_blocks`] splits [batch, time] into.
pub(crate) fn block_count([batch, time, _]: [usize; 3], rows: usize) -> usize {
    batch * time.div_ceil(rows)
}

/// Splits `outs`, of one batch and time, into blocks of `rows` time steps, depending only on their shape, and processes
/// them on ATen's threads. Each call of `body` has exclusive access to its block's rows of `outs` and to
/// `partials[index]` (of `width` floats). `local` makes the data that a thread reuses from block to block.
pub(crate) fn parallel_blocks<L, const N: usize>(
    outs: [&mut RowsMut<'_>; N],
    rows: usize,
    partials: &mut [f32],
    width: usize,
    local: impl Fn() -> L + Sync,
    body: impl Fn(&mut L, &Block, [BlockMut<'_>; N], &mut [f32]) + Sync,
) {
    let sizes @ [batches, time, _] = outs[0].layout.sizes;
    let same = |out: &RowsMut<'_>| out.layout.sizes[..2] == [batches, time];
    assert!(outs.iter().all(|out| same(out)), "blocks of other batch or time");
    let channels: usize = outs.iter().map(|out| out.layout.sizes[2]).sum();
    let per_batch = time.div_ceil(rows);
    let count = block_count(sizes, rows);
    assert!(partials.len() == count * width, "{count} blocks of {width} in {}", partials.len());
    let partials = Shared(partials.as_mut_ptr());
    let outs = &outs.map(|out| &*out);
    // Below some 2^15 elements per thread, waking it costs more than it saves.
    let grain = (1 << 15) / (rows.min(time) * channels).max(1);
    parallel_for(count, grain, |piece| {
        let mut local = local();
        for index in piece {
            let (batch, first) = (index / per_batch, index % per_batch * rows);
            let block = Block { batch, times: first..time.min(first + rows) };
            let rows = outs.map(|out| BlockMut { layout: &out.layout, block: block.clone() });
            // SAFETY: `count * width` floats are there, and `index` is in one piece only.
            let partial =
                unsafe { std::slice::from_raw_parts_mut(partials.get().add(index * width), width) };
            body(&mut local, &block, rows, partial);
        }
    });
}

/// A mutable slice, split into pieces of `chunk` elements; the last one may be shorter.
pub(crate) struct Cut<'a, T> {
    pub(crate) data: &'a mut [T],
    pub(crate) chunk: usize,
}

/// Runs `body` for each of `count` chunks on ATen's threads, at least `grain` per thread. Each call has exclusive
/// access to its piece of every one of `outs`. The chunks do not depend on the threads.
pub(crate) fn parallel_cuts<T: Send, const N: usize>(
    count: usize,
    grain: usize,
    outs: [Cut<'_, T>; N],
    body: impl Fn(usize, [&mut [T]; N]) + Sync,
) {
    for Cut { data, chunk } in &outs {
        assert!(data.len().div_ceil((*chunk).max(1)) == count, "{count} cuts of {}", data.len());
    }
    let outs = outs.map(|Cut { data, chunk }| (Shared(data.as_mut_ptr()), data.len(), chunk));
    let outs = &outs;
    let run = |index: usize| {
        let pieces = std::array::from_fn(|i| {
            let (pointer, len, chunk) = &outs[i];
            let first = index * chunk;
            let count = len.saturating_sub(first).min(*chunk);
            // SAFETY: first < len, since there are exactly `count` cuts (asserted), so the piece is inside the slice;
            // pieces of other indices do not overlap it, and `index` is run once only: the cursor returns it once.
            unsafe { std::slice::from_raw_parts_mut(pointer.get().add(first), count) }
        });
        body(index, pieces);
    };
    parallel_indices(count, grain, run);
}

/// Runs `body` once for each index below `count` on ATen's threads, at least `grain` per thread. A thread that has done
/// its own takes some of the others', since the cores of a shared machine are not equally fast.
fn parallel_indices(count: usize, grain: usize, body: impl Fn(usize) + Sync) {
    let threads = usize::try_from(tch::get_num_threads()).unwrap_or(1);
    let parts = (count / grain.max(1)).clamp(1, threads.max(1));
    let first = |part: usize| part * count / parts;
    let cursors: Vec<AtomicUsize> = (0..parts).map(|part| AtomicUsize::new(first(part))).collect();
    parallel_for(parts, 1, |own| {
        for part in own {
            for (victim, cursor) in
                (0..parts).cycle().skip(part).zip(cursors.iter().cycle().skip(part)).take(parts)
            {
                loop {
                    // The chunks are independent, and the region's end orders their writes before what follows.
                    let index = cursor.fetch_add(1, Ordering::Relaxed);
                    if index >= first(victim + 1) {
                        break;
                    }
                    body(index);
                }
            }
        }
    });
}

struct Shared<T>(*mut T);

// SAFETY: `parallel_blocks` and `parallel_cuts` derive disjoint slices from it, one per thread.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// A method, so that closures capture the wrapper and not the bare pointer.
    fn get(&self) -> *mut T {
        self.0
    }
}

/// The sum of 16 floats, added pairwise: neighbours at distance 8, 4, 2, 1. With instructions that every x86-64 has,
/// since the compiler adds an array of constant length one by one.
#[inline(always)]
pub(crate) fn total(sums: &[f32; 16]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_ps, _mm_movehl_ps, _mm_shuffle_ps,
        };
        // SAFETY: every x86-64 has SSE, and four floats from 0, 4, 8 and 12 on are in the array.
        unsafe {
            let part = |at: usize| _mm_loadu_ps(sums.as_ptr().add(at));
            let four = _mm_add_ps(_mm_add_ps(part(0), part(8)), _mm_add_ps(part(4), part(12)));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut sums = *sums;
        for half in [8, 4, 2, 1] {
            for l in 0..half {
                sums[l] += sums[l + half];
            }
        }
        sums[0]
    }
}

/// Size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Prefetches an element, which may be past the slice's end, into the second-level cache.
#[inline(always)]
pub(crate) fn ask_for<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it reads nothing and fails at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(slice.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// Prefetches the cache lines of `count` elements from `first` on.
#[inline(always)]
pub(crate) fn ask_for_lines<T>(slice: &[T], first: usize, count: usize) {
    for at in (0..count).step_by(LINE / size_of::<T>()) {
        ask_for(slice, first + at);
    }
}

/// Work to compile for several instruction sets. `run` and everything called in its loops must be `#[inline(always)]`,
/// since other functions are compiled for the build's own target.
pub(crate) trait Vectorised {
    /// `FMA`: whether `mul_add` is one instruction here. `LANES`: floats per register.
    fn run<const FMA: bool, const LANES: usize>(self);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn on_avx2(work: impl Vectorised) {
    work.run::<true, 8>();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn on_avx512(work: impl Vectorised) {
    work.run::<true, 16>();
}

/// Runs `work` as compiled for `isa`. Panics if this CPU does not support it.
pub(crate) fn run_on(isa: Isa, work: impl Vectorised) {
    assert!(isa.is_available(), "{isa} kernels on a CPU without them");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has these features (asserted above).
        Isa::Avx512 => unsafe { on_avx512(work) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has these features (asserted above).
        Isa::Avx2 => unsafe { on_avx2(work) },
        #[cfg(not(target_arch = "x86_64"))]
        Isa::Avx512 | Isa::Avx2 => work.run::<false, 4>(), // never: `is_available` is false here
        Isa::Portable => work.run::<{ cfg!(target_arch = "aarch64") }, 4>(),
    }
}
