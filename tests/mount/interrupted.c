/* Loaded before the C library (LD_PRELOAD): system calls on files that are interrupted or do less than was asked for.
 *
 * Of every four calls of a kind one fails with EINTR and does nothing, and one, if it has bytes, does half of them. The file named
 * by INTERRUPTED gets a line for each, "KIND EINTR" and "KIND short", and "KIND again" when the call that was interrupted is the
 * next of its kind that the thread makes, with the same descriptor. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PREAD, PWRITE, FDATASYNC, FSYNC, FTRUNCATE, FALLOCATE, KINDS };
static const char *const names[] = {"pread", "pwrite", "fdatasync", "fsync", "ftruncate", "fallocate"};
static atomic_uint counts[KINDS];
/* Descriptors, plus one, of the calls that were interrupted last. */
static _Thread_local int missed[KINDS];

static void tell(int kind, const char *what) {
    const char *path = getenv("INTERRUPTED");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    char line[64];
    int n = snprintf(line, sizeof line, "%s %s\n", names[kind], what);
    if (fd < 0 || syscall(SYS_write, fd, line, n) != n) abort();
    close(fd);
}

/* Bytes to do of `len`; -1: interrupted. */
static ssize_t fate(int kind, int fd, size_t len) {
    struct stat s;
    if (fstat(fd, &s) != 0 || !(S_ISREG(s.st_mode) || S_ISDIR(s.st_mode))) return len;
    if (missed[kind] == fd + 1) tell(kind, "again");
    missed[kind] = 0;
    unsigned n = atomic_fetch_add(&counts[kind], 1) % 4;
    if (n == 2 && len > 1) return tell(kind, "short"), len / 2;
    if (n != 0) return len;
    tell(kind, "EINTR");
    missed[kind] = fd + 1;
    errno = EINTR;
    return -1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread64(int fd, void *bytes, size_t len, off64_t at) {
    ssize_t n = fate(PREAD, fd, len);
    return n < 0 ? -1 : NEXT(pread64)(fd, bytes, n, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    ssize_t n = fate(PWRITE, fd, len);
    return n < 0 ? -1 : NEXT(pwrite64)(fd, bytes, n, at);
}

int fdatasync(int fd) { return fate(FDATASYNC, fd, 0) < 0 ? -1 : NEXT(fdatasync)(fd); }

int fsync(int fd) { return fate(FSYNC, fd, 0) < 0 ? -1 : NEXT(fsync)(fd); }

int ftruncate64(int fd, off64_t len) { return fate(FTRUNCATE, fd, 0) < 0 ? -1 : NEXT(ftruncate64)(fd, len); }

int fallocate(int fd, int mode, off_t at, off_t len) { return fate(FALLOCATE, fd, 0) < 0 ? -1 : NEXT(fallocate)(fd, mode, at, len); }
