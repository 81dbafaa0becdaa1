/* The driver's library, built as libcuda.so.1: what the provider and the C interface take of it. */
#include <stdio.h>
#include <stdlib.h>

int cuTensorMapEncodeTiled(void) { return 0; }
int cuInit(unsigned flags) { return flags; }

/* CUDA_STUB_FLAGS names a file that gets the device and its flags. */
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  const char *name = getenv("CUDA_STUB_FLAGS");
  FILE *file = name ? fopen(name, "w") : NULL;
  if (file == NULL) return 0;
  fprintf(file, "%d %u", device, flags);
  return fclose(file);
}
