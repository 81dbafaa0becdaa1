/*
 * A CUDA runtime without a GPU, for tests: memory is the host's, kernels do nothing. Built as
 * libcudart.so.13; ONNX Runtime's real provider runs on it, all but the arithmetic.
 *
 *   CUDA_STUB_DEVICES  how many devices there are; 1. With 0 every call that needs one ends as it
 *                      does under a driver without a device
 *   CUDA_STUB_LOST     a file: devices whose identifier (CUDA_VISIBLE_DEVICES) is a line of it
 *                      are gone from then on
 *   CUDA_STUB_COUNTS   a file of COUNTERS 64-bit numbers that are counted up, see below
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { NO_DEVICE = 100, LAUNCH_FAILURE = 719 };
enum { COPIES_TO, BYTES_TO, COPIES_FROM, BYTES_FROM, LAUNCHES, DEVICES_SET, COUNTERS };
enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

typedef int Status;
static uint64_t *counts;
static int last;

static void count(int which, uint64_t by) {
  if (counts == NULL) {
    static uint64_t nowhere[COUNTERS];
    const char *file = getenv("CUDA_STUB_COUNTS");
    int descriptor = file ? open(file, O_RDWR) : -1;
    void *shared = descriptor < 0 ? MAP_FAILED
        : mmap(NULL, sizeof nowhere, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    counts = shared == MAP_FAILED ? nowhere : shared;
  }
  __atomic_add_fetch(&counts[which], by, __ATOMIC_RELAXED);
}

static int devices(void) {
  const char *said = getenv("CUDA_STUB_DEVICES");
  return said ? atoi(said) : 1;
}

static int lost(void) {
  const char *file = getenv("CUDA_STUB_LOST"), *own = getenv("CUDA_VISIBLE_DEVICES");
  FILE *lines = file && own ? fopen(file, "r") : NULL;
  char line[256];
  int found = 0;
  while (lines && fgets(line, sizeof line, lines)) {
    line[strcspn(line, "\n")] = 0;
    found |= strcmp(line, own) == 0;
  }
  if (lines) fclose(lines);
  return found;
}

static Status alive(void) {
  if (devices() == 0) return last = NO_DEVICE;
  if (lost()) return last = LAUNCH_FAILURE;
  return 0;
}

const char *cudaGetErrorString(Status status) {
  if (status == NO_DEVICE) return "no CUDA-capable device is detected";
  if (status == LAUNCH_FAILURE) return "unspecified launch failure";
  return status == 0 ? "no error" : "an error of the stub";
}
const char *cudaGetErrorName(Status status) { return cudaGetErrorString(status); }
Status cudaGetLastError(void) { Status was = last; last = 0; return was; }
Status cudaPeekAtLastError(void) { return last; }

/* A fresh process finds a lost device gone, as CUDA tells it. */
Status cudaSetDevice(int device) {
  (void)device;
  count(DEVICES_SET, 1);
  if (devices() == 0 || lost()) return last = NO_DEVICE;
  return 0;
}
Status cudaGetDevice(int *device) { *device = 0; return 0; }
Status cudaGetDeviceCount(int *number) {
  *number = devices();
  return *number == 0 ? (last = NO_DEVICE) : 0;
}

/* Offsets of CUDA 13's cudaDeviceProp. */
enum { TOTAL_MEMORY = 288, SHARED = 296, REGISTERS = 304, WARP = 308, THREADS = 320, THREADS_DIM = 324,
       GRID = 336, MAJOR = 360, MINOR = 364, PROCESSORS = 384, PROPERTIES = 800 };
static void put(char *at, int value) { memcpy(at, &value, sizeof value); }
Status cudaGetDeviceProperties(char *properties, int device) {
  (void)device;
  uint64_t memory = 80000000000ull, shared = 49152;
  memset(properties, 0, PROPERTIES);
  strcpy(properties, "a stub");
  memcpy(properties + TOTAL_MEMORY, &memory, sizeof memory);
  memcpy(properties + SHARED, &shared, sizeof shared);
  put(properties + REGISTERS, 65536); put(properties + WARP, 32); put(properties + THREADS, 1024);
  for (int i = 0; i < 3; i++) { put(properties + THREADS_DIM + 4 * i, 1024); put(properties + GRID + 4 * i, 65535); }
  put(properties + MAJOR, 9); put(properties + MINOR, 0);
  put(properties + PROCESSORS, 132); put(properties + PROCESSORS + 4, 132);
  return alive();
}
Status cudaDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  /* 75, 76: the compute capability; 16: processors; 10: the warp. */
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 16 ? 132 : attribute == 10 ? 32 : 1024;
  return 0;
}

static Status allocate(void **memory, size_t bytes) {
  Status status = alive();
  if (status) return status;
  *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
  if (*memory) memset(*memory, 0, bytes);
  return *memory ? 0 : 2;
}
Status cudaMalloc(void **memory, size_t bytes) { return allocate(memory, bytes); }
Status cudaMallocHost(void **memory, size_t bytes) { return allocate(memory, bytes); }
Status cudaHostAlloc(void **memory, size_t bytes, unsigned flags) { (void)flags; return allocate(memory, bytes); }
Status cudaFree(void *memory) { free(memory); return 0; }
Status cudaFreeHost(void *memory) { free(memory); return 0; }
Status cudaFreeAsync(void *memory, void *stream) { (void)stream; free(memory); return 0; }
Status cudaMallocFromPoolAsync(void **memory, size_t bytes, void *pool, void *stream) {
  (void)pool; (void)stream;
  return allocate(memory, bytes);
}
Status cudaMemGetInfo(size_t *left, size_t *all) { *left = 70000000000ull; *all = 80000000000ull; return 0; }

static Status copy(void *to, const void *from, size_t bytes, int kind) {
  Status status = alive();
  if (status) return status;
  if (kind == HOST_TO_DEVICE) { count(COPIES_TO, 1); count(BYTES_TO, bytes); }
  if (kind == DEVICE_TO_HOST) { count(COPIES_FROM, 1); count(BYTES_FROM, bytes); }
  memmove(to, from, bytes);
  return 0;
}
Status cudaMemcpy(void *to, const void *from, size_t bytes, int kind) { return copy(to, from, bytes, kind); }
Status cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  (void)stream;
  return copy(to, from, bytes, kind);
}
Status cudaMemset(void *to, int value, size_t bytes) { memset(to, value, bytes); return alive(); }
Status cudaMemsetAsync(void *to, int value, size_t bytes, void *stream) {
  (void)stream;
  return cudaMemset(to, value, bytes);
}

static Status make(void **handle) { *handle = malloc(64); return alive(); }
Status cudaStreamCreate(void **handle) { return make(handle); }
Status cudaStreamCreateWithFlags(void **handle, unsigned flags) { (void)flags; return make(handle); }
Status cudaEventCreate(void **handle) { return make(handle); }
Status cudaEventCreateWithFlags(void **handle, unsigned flags) { (void)flags; return make(handle); }
Status cudaStreamDestroy(void *handle) { free(handle); return 0; }
Status cudaEventDestroy(void *handle) { free(handle); return 0; }
Status cudaEventElapsedTime(float *ms, void *from, void *to) { (void)from; (void)to; *ms = 1; return 0; }
Status cudaStreamSynchronize(void *stream) { (void)stream; return alive(); }
Status cudaDeviceSynchronize(void) { return alive(); }
Status cudaStreamIsCapturing(void *stream, int *is) { (void)stream; *is = 0; return 0; }
Status cudaDriverGetVersion(int *version) { *version = 13000; return 0; }
Status cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }
Status cudaFuncGetAttributes(char *attributes, const void *function) {
  (void)function;
  memset(attributes, 0, 64);
  put(attributes + 24, 1024);
  return 0;
}
Status cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks) { *blocks = 1; return 0; }
Status cudaPointerGetAttributes(char *attributes, const void *memory) {
  (void)memory;
  memset(attributes, 0, 32);
  put(attributes, 2);
  return 0;
}

static Status launch(void) { count(LAUNCHES, 1); return alive(); }
Status cudaLaunchKernel(void) { return launch(); }
Status cudaLaunchKernelExC(void) { return launch(); }
Status cudaLaunchCooperativeKernel(void) { return launch(); }
Status __cudaLaunchKernel(void) { return launch(); }
Status __cudaGetKernel(void **kernel) { *kernel = (void *)1; return 0; }
unsigned __cudaPushCallConfiguration(void) { return 0; }
Status __cudaPopCallConfiguration(void) { return 0; }
void **__cudaRegisterFatBinary(void) { static void *handle[8]; return handle; }
void __cudaRegisterFatBinaryEnd(void) {}
void __cudaUnregisterFatBinary(void) {}
void __cudaRegisterFunction(void) {}
void __cudaRegisterVar(void) {}

/* Never reached by the graphs of the tests, or of no effect here. */
#define NOTHING(name) Status name(void) { return 0; }
NOTHING(cudaEventRecord) NOTHING(cudaEventSynchronize) NOTHING(cudaStreamWaitEvent) NOTHING(cudaFuncSetAttribute)
NOTHING(cudaGetDriverEntryPointByVersion) NOTHING(cudaGraphDestroy) NOTHING(cudaGraphExecDestroy)
NOTHING(cudaGraphInstantiate) NOTHING(cudaGraphLaunch) NOTHING(cudaKernelSetAttributeForDevice)
NOTHING(cudaLaunchHostFunc) NOTHING(cudaLibraryGetKernel) NOTHING(cudaLibraryLoadData) NOTHING(cudaLibraryUnload)
NOTHING(cudaMemPoolCreate) NOTHING(cudaMemPoolDestroy) NOTHING(cudaMemPoolGetAttribute) NOTHING(cudaMemPoolSetAttribute)
NOTHING(cudaMemPoolTrimTo) NOTHING(cudaMemcpy2DAsync) NOTHING(cudaMemcpyFromSymbol) NOTHING(cudaStreamBeginCapture)
NOTHING(cudaStreamEndCapture)
