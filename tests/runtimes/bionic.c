/* What Android's C library, bionic, has and glibc has not, or has otherwise.

   Part of the program that loads an Android library under glibc (bionic.py, harness.c). Its symbols come before
   glibc's when the library is linked, so that each name here stands for bionic's. Everything else that the
   library imports is the same in both. */
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

/* bionic finds the guard of a function's stack 40 bytes behind the thread pointer, glibc has it elsewhere. On
   arm64 the program's own thread-local variables begin 16 bytes behind it: these keep the place, and its value.
   On x86_64 both use the same place. */
static _Thread_local volatile _Alignas(16) char stack_guard_place[64];

__attribute__((constructor)) static void keep_stack_guard_place(void) { stack_guard_place[0] = 0; }

/* bionic's stdin, stdout and stderr are the three elements, of 152 bytes each, of an array. */
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

/* glibc's strerror_r gives the text, bionic's the standard's number. */
int __xpg_strerror_r(int number, char *text, size_t size);
int standard_strerror_r(int number, char *text, size_t size) __asm__("strerror_r");
int standard_strerror_r(int number, char *text, size_t size) { return __xpg_strerror_r(number, text, size); }

size_t __strlen_chk(const char *text, size_t size) {
  size_t length = strlen(text);
  if (length >= size) abort();
  return length;
}

/* The x86_64 library asks for its kernels' parameters at less than the 64 bytes of a register of AVX-512, and then
   reads them with instructions that need these: with glibc it is luck whether they lie well. */
#define LEAST_ALIGNMENT 64

static size_t raised(size_t alignment) { return alignment < LEAST_ALIGNMENT ? LEAST_ALIGNMENT : alignment; }

void *memalign(size_t alignment, size_t size) { return GLIBC(memalign)(raised(alignment), size); }

int posix_memalign(void **place, size_t alignment, size_t size) {
  return GLIBC(posix_memalign)(place, raised(alignment), size);
}

/* The names of sysconf's values have other numbers in bionic. */
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
  fprintf(stderr, "sysconf(%d): bionic.c does not know this number of bionic's\n", name);
  errno = EINVAL;
  return -1;
}

/* Android's own. Of its system properties there is the one that TFLite's Java interpreter looks at before it uses
   XNNPACK; the log goes to stderr, from warnings on. */
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
