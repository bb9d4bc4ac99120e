// Loaded into the program by LD_PRELOAD (scripts/chaos.py): makes a disk slow or failing, kills the
// process at a chosen call, and moves the clock. It touches only files below VEIL_CHAOS_FOLDER, and
// does what the numbers in the file VEIL_CHAOS_CONTROL say at the moment, over all processes of a
// job.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { kNothing, kKill, kInputOutputError, kNoSpace };

// As tests/chaos/job.py packs it: numbers of 64 bits.
struct Control {
  _Atomic int64_t calls;        // that change a file, so far
  _Atomic int64_t act_at;       // the call at which `act` happens; 0: never
  _Atomic int64_t act;          // one of the above
  _Atomic int64_t act_for;      // so many calls from there on fail
  _Atomic int64_t delay_us;     // before each of them
  _Atomic int64_t clock_s;      // added to the time of day
  _Atomic int64_t skip_ledger;  // 1: ledger.json keeps its content, and nobody is told
  _Atomic int64_t acted;        // how often `act` happened
  _Atomic int64_t skip_sync;    // 1: nothing is forced to disk, and nobody is told
};

static struct Control* control;
static char folder[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("VEIL_CHAOS_CONTROL");
  const char* below = getenv("VEIL_CHAOS_FOLDER");
  if (!path || !below || strlen(below) >= sizeof(folder)) return;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* found = mmap(NULL, sizeof(struct Control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (found == MAP_FAILED) return;
  strcpy(folder, below);
  control = found;
}

// The function that this file stands before.
#define REAL(name)                                                \
  ({                                                              \
    static __typeof__(&name) real;                                \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    real;                                                         \
  })

static int is_ours(const char* path) {
  return control && path && strncmp(path, folder, strlen(folder)) == 0;
}

static int is_our_file(int file) {
  if (!control) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  const int kept = errno;
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  errno = kept;
  if (size <= 0) return 0;
  path[size] = '\0';
  return is_ours(path);
}

// What happens to this call: kNothing, or one of the others.
static int64_t fate(void) {
  const int64_t delay = control->delay_us;
  if (delay > 0) {
    const struct timespec wait = {delay / 1000000, delay % 1000000 * 1000};
    nanosleep(&wait, NULL);
  }
  const int64_t number = atomic_fetch_add(&control->calls, 1) + 1, at = control->act_at;
  if (at <= 0 || number < at || number >= at + control->act_for) return kNothing;
  atomic_fetch_add(&control->acted, 1);
  return control->act;
}

static int fails(void) {
  const int64_t act = fate();
  if (act == kKill) kill(getpid(), SIGKILL);
  if (act == kInputOutputError) errno = EIO;
  if (act == kNoSpace) errno = ENOSPC;
  return act != kNothing;
}

ssize_t write(int file, const void* bytes, size_t size) {
  if (!is_our_file(file)) return REAL(write)(file, bytes, size);
  const int64_t act = fate();
  if (act == kNothing) return REAL(write)(file, bytes, size);
  if (size > 1) {
    // half of it, as a crash or a full disk leaves it
    const ssize_t half = REAL(write)(file, bytes, size / 2);
    if (act == kNoSpace) return half;
  }
  if (act == kKill) kill(getpid(), SIGKILL);
  errno = act == kNoSpace ? ENOSPC : EIO;
  return -1;
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  if (is_our_file(file) && fails()) return -1;
  return REAL(writev)(file, parts, count);
}

int fsync(int file) {
  const int ours = is_our_file(file);
  if (ours && fails()) return -1;
  return ours && control->skip_sync ? 0 : REAL(fsync)(file);
}

int ftruncate(int file, off_t size) {
  if (is_our_file(file) && fails()) return -1;
  return REAL(ftruncate)(file, size);
}

int mkdir(const char* path, mode_t mode) {
  if (is_ours(path) && fails()) return -1;
  return REAL(mkdir)(path, mode);
}

int unlink(const char* path) {
  if (is_ours(path) && fails()) return -1;
  return REAL(unlink)(path);
}

int unlinkat(int place, const char* path, int flags) {
  if ((is_ours(path) || (path[0] != '/' && place >= 0 && is_our_file(place))) && fails()) return -1;
  return REAL(unlinkat)(place, path, flags);
}

int rename(const char* from, const char* to) {
  if (is_ours(to)) {
    const size_t size = strlen(to);
    if (control->skip_ledger && size > 12 && strcmp(to + size - 12, "/ledger.json") == 0)
      return REAL(unlink)(from);
    if (fails()) return -1;
  }
  return REAL(rename)(from, to);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if ((flags & O_CREAT) && is_ours(path) && fails()) return -1;
  return REAL(open)(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | O_TMPFILE)) {
    va_list more;
    va_start(more, flags);
    mode = va_arg(more, mode_t);
    va_end(more);
  }
  if ((flags & O_CREAT) && is_ours(path) && fails()) return -1;
  return REAL(open64)(path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int failed = REAL(clock_gettime)(clock, now);
  if (!failed && control && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += control->clock_s;
  return failed;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  const int failed = REAL(gettimeofday)(now, zone);
  if (!failed && control) now->tv_sec += control->clock_s;
  return failed;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
