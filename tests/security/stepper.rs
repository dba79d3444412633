//! Runs a command under ptrace and does something at its n-th system call that concerns files: what an attacker with perfect
//! timing could do.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// System calls that concern files.
const WATCHED: [libc::c_long; 22] = [
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchown,
    libc::SYS_fchmod,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_lseek,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_connect,
];

const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;

/// The part of `struct ptrace_syscall_info` that is read.
#[repr(C)]
#[derive(Default)]
struct Info {
    op: u8,
    _pad: [u8; 3],
    _arch: u32,
    _instruction_pointer: u64,
    _stack_pointer: u64,
    number: u64,
    _arguments: [u64; 6],
}

fn ptrace(request: libc::c_uint, pid: i32, address: usize, data: usize) -> i64 {
    // SAFETY: `pid` is a stopped tracee of this thread, and `data` is a number or points to memory of `address` bytes.
    unsafe { libc::ptrace(request, pid, address, data) }
}

/// True when the tracee stopped before a watched system call.
fn at_watched_entry(pid: i32) -> bool {
    let mut info = Info::default();
    ptrace(GET_SYSCALL_INFO, pid, std::mem::size_of::<Info>(), (&raw mut info) as usize);
    info.op == ENTRY && WATCHED.iter().any(|n| *n as u64 == info.number)
}

/// The process, which `step` waits for.
#[allow(clippy::zombie_processes)]
fn spawn(command: &mut Command) -> i32 {
    // SAFETY: only an async-signal-safe call is made after the fork.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    command.spawn().unwrap().id() as i32
}

/// Runs `command`; `act` is called when the watched system call number `n` (from 0) is about to be made. Returns how many there
/// were, and the exit status.
pub fn step(command: &mut Command, n: usize, act: impl FnOnce()) -> (usize, ExitStatus) {
    let first = spawn(command);
    let (mut act, mut count, mut started, mut result) = (Some(act), 0, false, None);
    let mut status = 0;
    loop {
        // SAFETY: the status is written to a local; only children of this thread are waited for.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid < 0 {
            break;
        }
        if !libc::WIFSTOPPED(status) {
            if pid == first {
                result = Some(ExitStatus::from_raw(status));
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let mut deliver = 0;
        if !started && pid == first {
            // The stop of exec.
            started = true;
            let options = libc::PTRACE_O_TRACESYSGOOD
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_EXITKILL;
            ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize);
        } else if signal == libc::SIGTRAP | 0x80 {
            if at_watched_entry(pid) {
                if count == n
                    && let Some(act) = act.take()
                {
                    act();
                }
                count += 1;
            }
        } else if signal != libc::SIGTRAP && signal != libc::SIGSTOP {
            deliver = signal as usize;
        }
        ptrace(libc::PTRACE_SYSCALL, pid, 0, deliver);
    }
    (count, result.expect("the command ended"))
}
