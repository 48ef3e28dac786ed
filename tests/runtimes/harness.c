/* Runs a .tflite file on the library of TFLite's Android package, through its C API.

   usage: harness LIBRARY MODEL xnnpack|plain < REQUESTS > RESULTS

   With "xnnpack" the XNNPACK delegate runs the operations that it supports, which is the default of Android's
   Interpreter; with "plain" the library's other kernels run all of them.

   The line "repeat COUNT" runs the signature COUNT times without a result.

   A request consists of a line for each input of the file's first signature, "input TYPE BYTES NAME", followed by
   the input's bytes, and the line "run". The result consists of a line for each output, "output TYPE BYTES RANK
   SIZE... NAME", followed by the output's bytes, and the line "done". TYPE is a number of TfLiteType. Errors are
   printed to stderr. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/lite/c/c_api.h>
#include <tensorflow/lite/c/c_api_experimental.h>

/* From the delegate's header, which the Android package does not contain. */
TfLiteDelegate *TfLiteXNNPackDelegateCreate(const void *options);

static void fail(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vfprintf(stderr, format, values);
  va_end(values);
  fputc('\n', stderr);
  exit(1);
}

static void *library;

static void *symbol(const char *name) {
  void *found = dlsym(library, name);
  if (!found) fail("the library has no %s", name);
  return found;
}

/* A function of the library, with the type that the header gives it. */
#define TFLITE(name) ((__typeof__(&name))symbol(#name))

/* Reads the bytes of one input, whose line up to TYPE has been read. */
static void read_input(TfLiteSignatureRunner *runner) {
  int type;
  size_t size;
  char name[1024];
  if (scanf("%d %zu %1023[^\n]", &type, &size, name) != 3 || getchar() != '\n') fail("a line cannot be read");
  TfLiteTensor *tensor = TFLITE(TfLiteSignatureRunnerGetInputTensor)(runner, name);
  if (!tensor) fail("the signature has no input %s", name);
  int own_type = TFLITE(TfLiteTensorType)(tensor);
  size_t own_size = TFLITE(TfLiteTensorByteSize)(tensor);
  if (type != own_type || size != own_size)
    fail("input %s has type %d and %zu bytes, given were type %d and %zu bytes", name, own_type, own_size, type,
         size);
  char *data = malloc(size ? size : 1);
  if (!data || fread(data, 1, size, stdin) != size) fail("input %s is truncated", name);
  if (TFLITE(TfLiteTensorCopyFromBuffer)(tensor, data, size) != kTfLiteOk) fail("input %s cannot be set", name);
  free(data);
}

static void write_outputs(TfLiteSignatureRunner *runner) {
  size_t count = TFLITE(TfLiteSignatureRunnerGetOutputCount)(runner);
  for (size_t i = 0; i < count; i++) {
    const char *name = TFLITE(TfLiteSignatureRunnerGetOutputName)(runner, i);
    const TfLiteTensor *tensor = TFLITE(TfLiteSignatureRunnerGetOutputTensor)(runner, name);
    size_t size = TFLITE(TfLiteTensorByteSize)(tensor);
    int rank = TFLITE(TfLiteTensorNumDims)(tensor);
    printf("output %d %zu %d", TFLITE(TfLiteTensorType)(tensor), size, rank);
    for (int axis = 0; axis < rank; axis++) printf(" %d", TFLITE(TfLiteTensorDim)(tensor, axis));
    printf(" %s\n", name);
    fwrite(TFLITE(TfLiteTensorData)(tensor), 1, size, stdout);
  }
  puts("done");
}

/* Like Android's Interpreter, continues without the delegate if it cannot be used for this file. */
static void use_xnnpack(TfLiteInterpreter *interpreter) {
  TfLiteDelegate *delegate = TFLITE(TfLiteXNNPackDelegateCreate)(NULL);
  if (!delegate) fail("the XNNPACK delegate does not run on this processor");
  TfLiteStatus status = TFLITE(TfLiteInterpreterModifyGraphWithDelegate)(interpreter, delegate);
  if (status != kTfLiteOk) fprintf(stderr, "the XNNPACK delegate returns %d for this file\n", status);
  if (status == kTfLiteError) exit(1);
}

static void repeat(TfLiteSignatureRunner *runner) {
  int count;
  if (scanf("%d", &count) != 1) fail("the number of runs cannot be read");
  while (count--)
    if (TFLITE(TfLiteSignatureRunnerInvoke)(runner) != kTfLiteOk) fail("the file cannot be run");
}

int main(int argc, char **argv) {
  if (argc != 4) fail("usage: harness LIBRARY MODEL xnnpack|plain < REQUESTS > RESULTS");
  library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail("%s", strdup(dlerror())); /* a copy: looking up glibc's functions overwrites it */
  TfLiteModel *model = TFLITE(TfLiteModelCreateFromFile)(argv[2]);
  if (!model) fail("%s cannot be read", argv[2]);
  TfLiteInterpreterOptions *options = TFLITE(TfLiteInterpreterOptionsCreate)();
  TFLITE(TfLiteInterpreterOptionsSetNumThreads)(options, 1);
  TfLiteInterpreter *interpreter = TFLITE(TfLiteInterpreterCreate)(model, options);
  if (!interpreter) fail("%s is rejected", argv[2]);
  if (!strcmp(argv[3], "xnnpack")) use_xnnpack(interpreter);
  if (TFLITE(TfLiteInterpreterGetSignatureCount)(interpreter) < 1) fail("%s has no signature", argv[2]);
  const char *key = TFLITE(TfLiteInterpreterGetSignatureKey)(interpreter, 0);
  TfLiteSignatureRunner *runner = TFLITE(TfLiteInterpreterGetSignatureRunner)(interpreter, key);
  if (!runner || TFLITE(TfLiteSignatureRunnerAllocateTensors)(runner) != kTfLiteOk)
    fail("%s cannot be prepared", argv[2]);

  char word[16];
  while (scanf("%15s", word) == 1) {
    if (!strcmp(word, "input")) {
      read_input(runner);
    } else if (!strcmp(word, "run")) {
      if (TFLITE(TfLiteSignatureRunnerInvoke)(runner) != kTfLiteOk) fail("%s cannot be run", argv[2]);
      write_outputs(runner);
    } else if (!strcmp(word, "repeat")) {
      repeat(runner);
    } else {
      fail("unknown request %s", word);
    }
  }
  return 0;
}
