/* Lets a JVM on the desktop load the library of TFLite's Android package.

   A JVM agent (-agentpath) that is linked with bionic.c. It has the name of Android's liblog.so, the only library
   that the Android library still depends on (jvm_library.py). It loads the Android library first, which therefore
   resolves its imports here and then in glibc, while the JVM itself uses only glibc. System.loadLibrary later finds
   the library already loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libtensorflowlite_jni.so"

/* The signature that the JVM calls: (JavaVM *, char *options, void *reserved). */
int Agent_OnLoad(void *machine, char *options, void *reserved) {
  (void)machine, (void)options, (void)reserved;
  Dl_info own;
  char path[4096];
  if (!dladdr((void *)Agent_OnLoad, &own)) return 1;
  const char *slash = strrchr(own.dli_fname, '/');
  int folder = slash ? (int)(slash - own.dli_fname) + 1 : 0;
  int length = snprintf(path, sizeof path, "%.*s%s", folder, own.dli_fname, LIBRARY);
  if (length < 0 || length >= (int)sizeof path) return 1;
  if (!dlopen(path, RTLD_NOW | RTLD_DEEPBIND)) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  return 0;
}
