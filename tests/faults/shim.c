/* Faults of the disk for any program: LD_PRELOAD=shim.so, with
 *
 *   FAULT_UNDER=TEXT    the operations that count are those on paths with this text in them
 *   FAULT_AT=N          the N-th of them fails, from 1; 0 fails none
 *   FAULT_ERROR=NUMBER  with this errno; or `kill`: the process gets SIGKILL before it
 *   FAULT_COUNT=FILE    a byte for each operation that counted, so its size is their number
 *   FAULT_JOURNAL=FILE  what was written, renamed, deleted and synced, for power.py
 *
 * Operations: open, read, write, sync, rename, unlink, mkdir, rmdir, truncate, stat and list.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *under;
static long at;
static int error_number = EIO, kills, count_fd = -1, journal_fd = -1;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void begin(void) {
  under = getenv("FAULT_UNDER");
  const char *text = getenv("FAULT_AT");
  at = text ? atol(text) : 0;
  if ((text = getenv("FAULT_ERROR"))) {
    kills = !strcmp(text, "kill");
    error_number = kills ? EIO : atoi(text);
  }
  /* Above the numbers of the program's own files. */
  if ((text = getenv("FAULT_COUNT"))) count_fd = fcntl(REAL(open)(text, O_WRONLY | O_CREAT | O_APPEND, 0644), F_DUPFD_CLOEXEC, 900);
  if ((text = getenv("FAULT_JOURNAL"))) journal_fd = fcntl(REAL(open)(text, O_WRONLY | O_CREAT | O_APPEND, 0644), F_DUPFD_CLOEXEC, 900);
}

static const char *path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length < 0) return NULL;
  path[length] = 0;
  return path;
}

static const char *path_at(int folder, const char *name, char *path) {
  if (!name) return NULL;
  if (name[0] == '/') return name;
  if (folder == AT_FDCWD) {
    if (!getcwd(path, PATH_MAX)) return name;
  } else if (!path_of(folder, path)) {
    return name;
  }
  size_t length = strlen(path);
  snprintf(path + length, PATH_MAX - length, "/%s", name);
  return path;
}

static int counts(const char *path) { return under && path && strstr(path, under); }

/* Whether this operation fails; errno is set then. */
static int fails(const char *path) {
  pthread_once(&once, begin);
  if (!counts(path)) return 0;
  long number = 0;
  if (count_fd >= 0) {
    /* The file counts for all processes: its end says how many came before. */
    if (REAL(write)(count_fd, ".", 1) == 1) number = lseek(count_fd, 0, SEEK_CUR);
  }
  if (at == 0 || number != at) return 0;
  if (kills) {
    kill(getpid(), SIGKILL);
    pause();
  }
  errno = error_number;
  return 1;
}

/* A record: kind, lengths of path, second path and bytes, offset; then these. One write, so that processes do not mix. */
static void record(char kind, const char *path, const char *second, const void *bytes, size_t length, int64_t offset) {
  pthread_once(&once, begin);
  if (journal_fd < 0 || !(counts(path) || counts(second))) return;
  struct __attribute__((packed)) {
    char kind;
    uint32_t path, second, bytes;
    int64_t offset;
  } head = {kind, strlen(path), second ? strlen(second) : 0, length, offset};
  struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)second, head.second}, {(void *)bytes, length}};
  int saved = errno;
  if (REAL(writev)(journal_fd, parts, 4) < 0) abort();
  errno = saved;
}

static void wrote(int fd, const char *path, const void *bytes, ssize_t length, int64_t offset) {
  if (length <= 0) return;
  if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - length;
  record('w', path, NULL, bytes, length, offset);
}

ssize_t write(int fd, const void *bytes, size_t length) {
  char buffer[PATH_MAX];
  const char *path = path_of(fd, buffer);
  if (fails(path)) return -1;
  ssize_t written = REAL(write)(fd, bytes, length);
  if (counts(path)) wrote(fd, path, bytes, written, -1);
  return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  char buffer[PATH_MAX];
  const char *path = path_of(fd, buffer);
  if (!counts(path)) return REAL(writev)(fd, parts, count);
  /* A short write is allowed. */
  for (int part = 0; part < count; part++)
    if (parts[part].iov_len) return write(fd, parts[part].iov_base, parts[part].iov_len);
  return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  char buffer[PATH_MAX];
  const char *path = path_of(fd, buffer);
  if (fails(path)) return -1;
  ssize_t written = REAL(pwrite64)(fd, bytes, length, offset);
  if (counts(path)) wrote(fd, path, bytes, written, offset);
  return written;
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

/* Callers fall back to write. */
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t length, unsigned flags) {
  (void)from, (void)a, (void)to, (void)b, (void)length, (void)flags;
  errno = EXDEV;
  return -1;
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t length) {
  (void)to, (void)from, (void)offset, (void)length;
  errno = EINVAL;
  return -1;
}

#define READS(type, name, parameters, arguments)          \
  type name parameters {                                  \
    char buffer[PATH_MAX];                                \
    if (fails(path_of(fd, buffer))) return -1;            \
    return REAL(name) arguments;                          \
  }
READS(ssize_t, read, (int fd, void *bytes, size_t length), (fd, bytes, length))
READS(ssize_t, pread64, (int fd, void *bytes, size_t length, off64_t offset), (fd, bytes, length, offset))
READS(ssize_t, readv, (int fd, const struct iovec *parts, int count), (fd, parts, count))

#define SYNCS(name)                                       \
  int name(int fd) {                                      \
    char buffer[PATH_MAX];                                \
    const char *path = path_of(fd, buffer);               \
    if (fails(path)) return -1;                           \
    int result = REAL(name)(fd);                          \
    if (path && !result) record('s', path, NULL, NULL, 0, 0); \
    return result;                                        \
  }
SYNCS(fsync)
SYNCS(fdatasync)

#define TRUNCATES(name, type)                             \
  int name(int fd, type length) {                         \
    char buffer[PATH_MAX];                                \
    const char *path = path_of(fd, buffer);               \
    if (fails(path)) return -1;                           \
    int result = REAL(name)(fd, length);                  \
    if (path && !result) record('t', path, NULL, NULL, 0, length); \
    return result;                                        \
  }
TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

static int opened(int result, const char *path, int flags, int was_there) {
  if (result >= 0 && path) {
    if ((flags & O_CREAT) && !was_there) record('c', path, NULL, NULL, 0, 0);
    if (flags & O_TRUNC) record('t', path, NULL, NULL, 0, 0);
  }
  return result;
}

#define OPENS_AT(name)                                    \
  int name(int folder, const char *file, int flags, ...) { \
    va_list more;                                         \
    va_start(more, flags);                                \
    mode_t mode = va_arg(more, mode_t);                   \
    va_end(more);                                         \
    char buffer[PATH_MAX];                                \
    const char *path = path_at(folder, file, buffer);     \
    if (fails(path)) return -1;                           \
    int was_there = !counts(path) || !REAL(access)(path, F_OK); \
    return opened(REAL(name)(folder, file, flags, mode), path, flags, was_there); \
  }
OPENS_AT(openat)
OPENS_AT(openat64)

#define OPENS(name)                                       \
  int name(const char *file, int flags, ...) {            \
    va_list more;                                         \
    va_start(more, flags);                                \
    mode_t mode = va_arg(more, mode_t);                   \
    va_end(more);                                         \
    char buffer[PATH_MAX];                                \
    const char *path = path_at(AT_FDCWD, file, buffer);   \
    if (fails(path)) return -1;                           \
    int was_there = !counts(path) || !REAL(access)(path, F_OK); \
    return opened(REAL(name)(file, flags, mode), path, flags, was_there); \
  }
OPENS(open)
OPENS(open64)

int rename(const char *from, const char *to) {
  char one[PATH_MAX], two[PATH_MAX];
  const char *source = path_at(AT_FDCWD, from, one), *target = path_at(AT_FDCWD, to, two);
  if (fails(target)) return -1;
  int result = REAL(rename)(from, to);
  if (!result) record('r', source, target, NULL, 0, 0);
  return result;
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
  char one[PATH_MAX], two[PATH_MAX];
  const char *source = path_at(a, from, one), *target = path_at(b, to, two);
  if (fails(target)) return -1;
  int result = REAL(renameat2)(a, from, b, to, flags);
  if (!result) record('r', source, target, NULL, 0, 0);
  return result;
}

int link(const char *from, const char *to) {
  char one[PATH_MAX], two[PATH_MAX];
  const char *source = path_at(AT_FDCWD, from, one), *target = path_at(AT_FDCWD, to, two);
  if (fails(target)) return -1;
  int result = REAL(link)(from, to);
  if (!result) record('l', source, target, NULL, 0, 0);
  return result;
}

#define CHANGES(name, kind, parameters, folder, file, arguments) \
  int name parameters {                                   \
    char buffer[PATH_MAX];                                \
    const char *path = path_at(folder, file, buffer);     \
    if (fails(path)) return -1;                           \
    int result = REAL(name) arguments;                    \
    if (!result) record(kind, path, NULL, NULL, 0, 0);    \
    return result;                                        \
  }
CHANGES(unlink, 'u', (const char *file), AT_FDCWD, file, (file))
CHANGES(unlinkat, 'u', (int folder, const char *file, int flags), folder, file, (folder, file, flags))
CHANGES(rmdir, 'u', (const char *file), AT_FDCWD, file, (file))
CHANGES(mkdir, 'm', (const char *file, mode_t mode), AT_FDCWD, file, (file, mode))

#define LOOKS(name, parameters, folder, file, arguments)  \
  int name parameters {                                   \
    char buffer[PATH_MAX];                                \
    if (fails(path_at(folder, file, buffer))) return -1;  \
    return REAL(name) arguments;                          \
  }
LOOKS(stat64, (const char *file, struct stat64 *facts), AT_FDCWD, file, (file, facts))
LOOKS(lstat64, (const char *file, struct stat64 *facts), AT_FDCWD, file, (file, facts))
LOOKS(statx, (int folder, const char *file, int flags, unsigned mask, struct statx *facts), folder, file, (folder, file, flags, mask, facts))

DIR *opendir(const char *file) {
  char buffer[PATH_MAX];
  if (fails(path_at(AT_FDCWD, file, buffer))) return NULL;
  return REAL(opendir)(file);
}
