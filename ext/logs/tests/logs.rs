//! Logs of other programs: what is read of each, how it agrees with a lock, and files that are refused.

mod logs {
    mod agreement;
    mod programs;
    mod refused;
    mod samples;
}
