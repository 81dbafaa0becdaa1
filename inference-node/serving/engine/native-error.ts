/** The line that matters of what native libraries say when they fail. Pure. */

/** "CUDA failure 100: no CUDA-capable device is detected", out of a page of C++. */
const FAILURE_OF_A_LIBRARY = /\bCU[A-Z_]* failure -?\d+: [^;]+/;
/** Of the arena, which asks CUDA for memory: behind the signature of a function too. */
const MEMORY_IS_SHORT = /\bFailed to allocate memory for requested buffer of size \d+/;
/** ONNX Runtime's assertions begin with their place in its source. */
const PLACE_OF_AN_ASSERTION = /^\/\S+:\d+ .* was false\. /;

/**
 * CUDA's codes that speak of a device or its driver, not of one run: not initialised (3), all
 * devices busy or unavailable (46), no device (100), no such device (101), memory errors that could
 * not be corrected (214), system not ready (802), driver and runtime do not fit (803, 804), and
 * what the driver cannot say (999), as of a GPU that the bus lost.
 */
const DEVICE_FAILURES: ReadonlySet<number> = new Set([3, 46, 100, 101, 214, 802, 803, 804, 999]);

/**
 * Memory of a GPU that is short, as the runtime's arena and NVIDIA's libraries say it: cuBLAS and
 * cuDNN say of a handle for which there is none that they are not initialised.
 */
const MEMORY_FAILURES: readonly RegExp[] = [
  MEMORY_IS_SHORT,
  /\bCUDA failure 2:/,
  /\bCUBLAS failure [13]:/,
  /\bCUDNN failure \d+: \w*(?:ALLOC|NOT_INITIALIZED)/,
];

/** One line. */
export function shortenNativeError(message: string): string {
  const line = message.replaceAll(/\s*\n\s*/g, ' ');
  const failure = (FAILURE_OF_A_LIBRARY.exec(line) ?? MEMORY_IS_SHORT.exec(line))?.[0];
  return (failure ?? line.replace(PLACE_OF_AN_ASSERTION, '')).trim();
}

/** The failure says that no process will get this device, as far as CUDA knows. */
export function saysDeviceIsGone(message: string): boolean {
  const code = /\bCUDA failure (\d+)/.exec(message)?.[1];
  return code !== undefined && DEVICE_FAILURES.has(Number(code));
}

export function saysMemoryIsShort(message: string): boolean {
  return MEMORY_FAILURES.some(failure => failure.test(message));
}
