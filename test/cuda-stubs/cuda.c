/* The driver's library, of which the provider takes one function; built as libcuda.so.1. */
int cuTensorMapEncodeTiled(void) { return 0; }
