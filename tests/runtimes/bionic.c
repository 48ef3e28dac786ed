/* Functions of Android's C library, bionic, that glibc lacks or implements differently.

   Part of the program that loads an Android library under glibc (bionic.py, harness.c). When the library is
   linked, these symbols take precedence over glibc's. Everything else that the library imports is the same in
   both. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* glibc's own function of that name. */
#define GLIBC(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* bionic reads the stack guard 40 bytes after the thread pointer; glibc stores it elsewhere. On arm64 the
   program's own thread-local variables begin 16 bytes after the thread pointer: this one reserves those bytes and
   keeps their value. On x86_64 both libraries use the same address. */
static _Thread_local volatile _Alignas(16) char stack_guard_place[64];

__attribute__((constructor)) static void keep_stack_guard_place(void) { stack_guard_place[0] = 0; }

/* bionic's stdin, stdout and stderr are the elements of an array, of 152 bytes each. */
#define FILE_SIZE 152
char __sF[3 * FILE_SIZE];

static FILE *opened(FILE *file) {
  char *place = (char *)file;
  if (place == __sF) return stdin;
  if (place == __sF + FILE_SIZE) return stdout;
  if (place == __sF + 2 * FILE_SIZE) return stderr;
  return file;
}

int vfprintf(FILE *file, const char *format, va_list values) {
  return GLIBC(vfprintf)(opened(file), format, values);
}

int fprintf(FILE *file, const char *format, ...) {
  va_list values;
  va_start(values, format);
  int written = vfprintf(file, format, values);
  va_end(values);
  return written;
}

int fputc(int character, FILE *file) { return GLIBC(fputc)(character, opened(file)); }
int fflush(FILE *file) { return GLIBC(fflush)(opened(file)); }
int fclose(FILE *file) { return GLIBC(fclose)(opened(file)); }
int fileno(FILE *file) { return GLIBC(fileno)(opened(file)); }

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
  return GLIBC(fwrite)(data, size, count, opened(file));
}

size_t fread(void *data, size_t size, size_t count, FILE *file) {
  return GLIBC(fread)(data, size, count, opened(file));
}

int *__errno(void) { return &errno; }

/* glibc's strerror_r returns the text, bionic's a number, as POSIX requires. */
int __xpg_strerror_r(int number, char *text, size_t size);
int standard_strerror_r(int number, char *text, size_t size) __asm__("strerror_r");
int standard_strerror_r(int number, char *text, size_t size) { return __xpg_strerror_r(number, text, size); }

size_t __strlen_chk(const char *text, size_t size) {
  size_t length = strlen(text);
  if (length >= size) abort();
  return length;
}

/* The x86_64 library allocates its kernels' parameters with an alignment below 64 bytes, and then reads them with
   AVX-512 instructions that require 64: with glibc, whether they are aligned is a matter of luck. */
#define LEAST_ALIGNMENT 64

static size_t raised(size_t alignment) { return alignment < LEAST_ALIGNMENT ? LEAST_ALIGNMENT : alignment; }

void *memalign(size_t alignment, size_t size) { return GLIBC(memalign)(raised(alignment), size); }

int posix_memalign(void **place, size_t alignment, size_t size) {
  return GLIBC(posix_memalign)(place, raised(alignment), size);
}

/* bionic numbers the names of sysconf differently. */
long sysconf(int name) {
  switch (name) {
    case 0x27: /* _SC_PAGESIZE */
    case 0x28: /* _SC_PAGE_SIZE */
      return GLIBC(sysconf)(_SC_PAGESIZE);
    case 0x60:
      return GLIBC(sysconf)(_SC_NPROCESSORS_CONF);
    case 0x61:
      return GLIBC(sysconf)(_SC_NPROCESSORS_ONLN);
    case 0x62:
      return GLIBC(sysconf)(_SC_PHYS_PAGES);
    case 0x63:
      return GLIBC(sysconf)(_SC_AVPHYS_PAGES);
  }
  fprintf(stderr, "sysconf(%d): bionic.c does not support this bionic name\n", name);
  errno = EINVAL;
  return -1;
}

/* Functions that only Android has. The only system property is the one that TFLite's Java interpreter checks
   before it uses XNNPACK; log messages from warnings up go to stderr. */
int __system_property_get(const char *name, char *value) {
  strcpy(value, strcmp(name, "ro.build.version.sdk") ? "" : "34");
  return (int)strlen(value);
}

void android_set_abort_message(const char *message) { fprintf(stderr, "abort: %s\n", message); }

#define LOG_WARNING 5

int __android_log_vprint(int priority, const char *tag, const char *format, va_list values) {
  if (priority < LOG_WARNING) return 0;
  fprintf(stderr, "%c %s: ", "??VDIWEF"[priority & 7], tag);
  int written = vfprintf(stderr, format, values);
  fputc('\n', stderr);
  return written;
}
