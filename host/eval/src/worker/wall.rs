//! The second wall around a candidate: from its first decision on, its process opens nothing and reaches no other process.
//!
//! The first wall is what the languages of candidates cannot say: there is no file, clock or socket in WebAssembly as it is linked
//! here, or in scripts. Should a defect of the interpreter or the compiler let a candidate out of it, it finds a process that
//!
//! * may not open, create, rename or run any file, or bind or connect TCP ports (Landlock, on the threads that simulate), and
//! * may only make the system calls of `allowed`: memory, threads of its own, clocks, and reading and writing of descriptors that are
//!   open already, which are the pipes to the process that started it (seccomp, on all threads).
//!
//! ```text
//! fork ─► arm ─► read and compile candidates, read ahead what the suite has in files ─► raise ─► simulate ─► result by pipe
//! ```
//!
//! Everything that needs a path comes before `raise`, and the process that started the worker writes what is kept afterwards. The
//! wall cannot be taken down. A worker that simulated behind it takes no candidate from a file, and no component, whose compiled code
//! is a file: those get a new one.
//!
//! A forbidden call fails with `EPERM`, so that a defect here is an error and no crash. Where the kernel lacks one of the two, the other
//! holds alone; [`support`] tells which, for status and documents.

use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

/// What the kernel of this machine has of the wall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WallSupport {
    /// Whether paths and TCP ports can be closed.
    pub landlock: bool,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
}

impl WallSupport {
    /// What is missing, in words; `None` if nothing is.
    #[must_use]
    pub fn missing(self) -> Option<&'static str> {
        match (self.landlock, self.seccomp) {
            (true, true) => None,
            (false, true) => Some("the kernel lacks Landlock: system calls are filtered alone"),
            (true, false) => Some("the kernel lacks seccomp: paths and TCP ports are closed alone"),
            (false, false) => Some("the kernel lacks Landlock and seccomp: the sandbox of the language stands alone"),
        }
    }
}

const DOWN: u8 = 0;
const ARMED: u8 = 1;
const UP: u8 = 2;

/// The wall of this process. A process that was not armed, such as a test, never raises it.
static WALL: AtomicU8 = AtomicU8::new(DOWN);

/// From now on [`raise`] raises the wall: for a process that only evaluates candidates.
pub(crate) fn arm() {
    let _ = WALL.compare_exchange(DOWN, ARMED, Ordering::SeqCst, Ordering::SeqCst);
}

/// Whether [`raise`] would raise the wall.
pub(crate) fn is_armed() -> bool {
    WALL.load(Ordering::SeqCst) == ARMED
}

/// Whether this process opens nothing any more.
pub(crate) fn is_up() -> bool {
    WALL.load(Ordering::SeqCst) == UP
}

/// Raises the wall around this process, if it is armed, on all threads of the current pool. Errors leave it as far up as the kernel
/// allows: [`support`] reports that.
pub(crate) fn raise() {
    if WALL.compare_exchange(ARMED, UP, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        linux::raise();
    }
}

/// What the kernel has of the wall.
#[must_use]
pub fn support() -> WallSupport {
    linux::support()
}

#[cfg(target_os = "linux")]
mod linux {
    #![allow(unsafe_code)] // two questions to the kernel that the crates do not ask

    use std::collections::BTreeMap;

    use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, Scope};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    use super::WallSupport;

    pub(super) fn support() -> WallSupport {
        // SAFETY: both only ask for what the kernel offers: no ruleset is made of nothing and the flag for the version, and the
        // action is read.
        let (landlock, seccomp) = unsafe {
            const VERSION: libc::c_ulong = 1;
            let action: u32 = libc::SECCOMP_RET_ERRNO;
            (
                libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) > 0,
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0_usize, &raw const action) == 0,
            )
        };
        WallSupport { landlock, seccomp: seccomp && filter().is_some() }
    }

    pub(super) fn raise() {
        // Threads of a pool that simulates; a thread outside one is the whole pool itself.
        if rayon::current_thread_index().is_some() {
            rayon::broadcast(|_| close_paths());
        } else {
            close_paths();
        }
        for filter in [no_clone3(), filter()].into_iter().flatten() {
            if let Err(error) = seccompiler::apply_filter_all_threads(&filter) {
                tracing::debug!("system calls are not filtered: {error}");
            }
        }
    }

    /// Landlock with no path and no port, on the current thread, as far as the kernel knows it.
    fn close_paths() {
        let abi = ABI::V6;
        let closed = Ruleset::default()
            .handle_access(AccessFs::from_all(abi))
            .and_then(|rules| rules.handle_access(AccessNet::from_all(abi)))
            .and_then(|rules| rules.scope(Scope::from_all(abi)))
            .and_then(|rules| rules.create()?.restrict_self());
        if let Err(error) = closed {
            tracing::debug!("paths are not closed: {error}");
        }
    }

    /// The calls that a simulation makes, its allocator, its threads, the code that the compiler writes, and the end of the process.
    fn allowed() -> Vec<(i64, Vec<SeccompRule>)> {
        let always = [
            // Pipes and what else is open.
            libc::SYS_read,
            libc::SYS_readv,
            libc::SYS_write,
            libc::SYS_writev,
            libc::SYS_close,
            libc::SYS_fstat,
            libc::SYS_pread64,
            libc::SYS_lseek,
            libc::SYS_ppoll,
            // Memory.
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_mprotect,
            libc::SYS_mremap,
            libc::SYS_madvise,
            libc::SYS_brk,
            // Threads of this process, without those that start them.
            libc::SYS_futex,
            libc::SYS_set_robust_list,
            libc::SYS_rseq,
            libc::SYS_sched_yield,
            libc::SYS_sched_getaffinity,
            libc::SYS_gettid,
            libc::SYS_getpid,
            libc::SYS_membarrier,
            libc::SYS_getcpu,
            // Signals to handlers: a trap of compiled code is one.
            libc::SYS_rt_sigaction,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
            libc::SYS_sigaltstack,
            libc::SYS_restart_syscall,
            // Clocks.
            libc::SYS_clock_gettime,
            libc::SYS_clock_nanosleep,
            libc::SYS_nanosleep,
            libc::SYS_gettimeofday,
            libc::SYS_getrusage,
            libc::SYS_getrandom,
            libc::SYS_getrlimit,
            libc::SYS_setrlimit,
            // Its C library takes `clone` instead: see `no_clone3`.
            libc::SYS_clone3,
            // The end.
            libc::SYS_exit,
            libc::SYS_exit_group,
        ];
        let mut rules: Vec<(i64, Vec<SeccompRule>)> = always.into_iter().map(|call| (call, Vec::new())).collect();
        #[cfg(target_arch = "x86_64")]
        rules.extend([libc::SYS_poll, libc::SYS_time].map(|call| (call, Vec::new())));
        let own = u64::from(std::process::id());
        let equal = |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        let mut with = |call, conditions: Vec<Result<SeccompCondition, _>>| {
            let conditions: Result<Vec<_>, seccompiler::BackendError> = conditions.into_iter().collect();
            if let Ok(rule) = conditions.and_then(SeccompRule::new) {
                rules.push((call, vec![rule]));
            }
        };
        // An abort is a signal to itself.
        with(libc::SYS_tgkill, vec![equal(0, own)]);
        // Its own limits, without those of other processes.
        with(libc::SYS_prlimit64, vec![equal(0, 0)]);
        // A thread, not a process.
        let thread = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
        let is_thread = SeccompCmpOp::MaskedEq(thread);
        with(libc::SYS_clone, vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, is_thread, thread)]);
        // Names of threads and of memory.
        const PR_SET_VMA: u64 = 0x5356_4d41;
        with(libc::SYS_prctl, vec![equal(0, libc::PR_SET_NAME as u64)]);
        if let Some((_, chain)) = rules.iter_mut().find(|(call, _)| *call == libc::SYS_prctl)
            && let Ok(rule) = equal(0, PR_SET_VMA).and_then(|condition| SeccompRule::new(vec![condition]))
        {
            chain.push(rule);
        }
        rules
    }

    /// `None` on a processor that the crate does not know.
    fn filter() -> Option<BpfProgram> {
        let rules: BTreeMap<i64, Vec<SeccompRule>> = allowed().into_iter().collect();
        let refuse = SeccompAction::Errno(libc::EPERM as u32);
        let architecture = std::env::consts::ARCH.try_into().ok()?;
        let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture).ok()?;
        filter.try_into().ok()
    }

    /// `clone3` has its flags in memory, where no filter sees them. Without it threads start by `clone`, whose flags are seen.
    fn no_clone3() -> Option<BpfProgram> {
        let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let architecture = std::env::consts::ARCH.try_into().ok()?;
        let missing = SeccompAction::Errno(libc::ENOSYS as u32);
        SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture).ok()?.try_into().ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use super::WallSupport;

    pub(super) fn support() -> WallSupport {
        WallSupport { landlock: false, seccomp: false }
    }

    pub(super) fn raise() {}
}
