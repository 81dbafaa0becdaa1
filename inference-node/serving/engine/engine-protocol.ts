/**
 * Defines the messages of a pool and an engine's process (serving/process/frames.ts carries them).
 *
 *   pool                               engine
 *   init ─────────────────────────────► loads, warms up
 *        ◄──────────────────────────── ready | broken
 *   run + rgb ────────────────────────►
 *        ◄──────────────────────────── started    before native code blocks the engine's loop
 *        ◄──────────────────────────── done + alpha | failed
 *
 * One run at a time. An engine ends when its socket closes; there is no other word for it.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { printable } from '../models/model-error.ts';
import type { ExecutionProvider, PreparedModel } from '../models/prepared-model.ts';

export interface SessionSpec
  extends Pick<
    PreparedModel,
    | 'data'
    | 'inputName'
    | 'outputName'
    | 'inputWidth'
    | 'inputHeight'
    | 'normalisation'
    | 'colourOrder'
    | 'activation'
    | 'form'
    | 'openvino'
  > {
  /**
   * The path is absolute. Undefined: the graph's bytes come with init, as those of small probes do.
   */
  readonly path: string | undefined;
  /** Digest of the file at `path`, hexadecimal: another is not loaded. Undefined: any is. */
  readonly sha256: string | undefined;
  /** The binding gets this provider only: the graph runs on it, or the load fails. */
  readonly provider: ExecutionProvider;
  readonly intraOpThreads: number;
  readonly sharesCores: boolean;
  /**
   * false: a node that the provider cannot run fails the load, where ONNX Runtime would quietly
   * give it to the CPU. For probes; models keep small shape nodes there rightly.
   */
  readonly allowCpuNodes: boolean;
  /** Gives freed memory back at once: slower, but what a bounded process has goes further. */
  readonly keepsNoMemory?: boolean;
}

/**
 * Values of an answer, of two classes at 4096x4096. A probe takes no larger one for a matte
 * (model-tools/probing), and an engine refuses it before it makes anything of it.
 */
export const ANSWER_VALUES_MAX = 2 * 4096 ** 2;

export interface Answer<Alpha extends Uint8Array = Uint8Array> {
  /** The plane has one byte a pixel. */
  readonly alpha: Alpha;
  readonly size: Size;
}

export type ToEngine =
  /** The message has one part if spec.path is undefined: the graph. */
  | { readonly kind: 'init'; readonly spec: SessionSpec }
  /**
   * One part: rgb. `size`: of the picture in the input (picture/matte/model-input.ts); absent: it
   * fills the input.
   */
  | { readonly kind: 'run'; readonly id: number; readonly size?: Size | undefined };

export type FromEngine =
  /** warmMs: time of the last warm-up run. */
  | { readonly kind: 'ready'; readonly warmMs: number }
  /** The model cannot be loaded here; one line. */
  | { readonly kind: 'broken'; readonly message: string }
  | { readonly kind: 'started'; readonly id: number }
  /** The message has one part: alpha, of `size`. */
  | { readonly kind: 'done'; readonly id: number; readonly size: Size }
  /** `ofPicture`: the engine is sound, and goes on; no other would do better. */
  | {
      readonly kind: 'failed';
      readonly id: number;
      readonly message: string;
      readonly ofPicture: boolean;
    };

/** The line that matters of what native libraries say when they fail. Pure. */

/** "CUDA failure 100: no CUDA-capable device is detected", out of a page of C++. */
const FAILURE_OF_A_LIBRARY = /\bCU[A-Z_]* failure -?\d+: [^;]+/;
/** The arena says this if CUDA gives it no memory, and may put a function's signature before it. */
const MEMORY_IS_SHORT = /\bFailed to allocate memory for requested buffer of size \d+/;
/**
 * Source file, function and assertion in ONNX Runtime's messages; the source file in OpenVINO's.
 */
const PLACES = [
  /\b(?:Exception from|Check '[^']{1,200}' failed at) src\/\S+:\d+:\s*/g,
  /\/\S+\.(?:cc|h):\d+ (?:[^()]{1,200}\([^()]*\) (?:const )?)?(?:[^"]{1,200}? was false\. )?/g,
  /\[ONNXRuntimeError\] : \d+ : \w+ : /g,
  /\b\w+\.cc:\d+ \w+ /g,
] as const;

/**
 * CUDA's codes of a device or its driver, not of one run: not initialised (3), busy or unavailable
 * (46), no device (100), no such device (101), memory errors (214), system not ready (802), driver
 * and runtime do not fit (803, 804), what the driver cannot say (999), as of a lost GPU.
 */
const DEVICE_FAILURES: ReadonlySet<number> = new Set([3, 46, 100, 101, 214, 802, 803, 804, 999]);

/** cuBLAS and cuDNN say of a handle without memory that they are not initialised. */
const MEMORY_FAILURES: readonly RegExp[] = [
  MEMORY_IS_SHORT,
  /\bCU(?:DA|FFT) failure 2:/,
  /\bCUBLAS failure [13]:/,
  /\bCUDNN failure \d+: \w*(?:ALLOC|NOT_INITIALIZED)/,
  /\bCUDNN_FE failure \d+: \w+ \(\w*ALLOC/,
];
/** cuDNN's frontend names the step that failed first, and the cause after it, if at all. */
const FRONTEND_FAILURE = /\bCUDNN_FE failure -?\d+: \w+/;
const ALLOCATION_STATUS = /\bCUDNN_STATUS_\w*ALLOC\w*/;

export function shortenNativeError(message: string): string {
  const line = printable(message);
  const failure = (FAILURE_OF_A_LIBRARY.exec(line) ?? MEMORY_IS_SHORT.exec(line))?.[0];
  const frontend = FRONTEND_FAILURE.exec(line)?.[0];
  const status = ALLOCATION_STATUS.exec(line)?.[0];
  if (frontend !== undefined && status !== undefined) return `${frontend} (${status})`;
  const cause = PLACES.reduce((rest, place) => rest.replaceAll(place, ''), line);
  return (failure ?? cause.replace(/ failed:(?=\S)/, ' failed: ')).trim();
}

/** The failure says that no process will get this device, as far as CUDA knows. */
export function saysDeviceIsGone(message: string): boolean {
  const code = /\bCUDA failure (\d+)/.exec(message)?.[1];
  return code !== undefined && DEVICE_FAILURES.has(Number(code));
}

/** The runtime, Node or the C library say this if the kernel gives no more memory. */
const MEMORY_RAN_OUT =
  /Failed to allocate memory|bad_alloc|bad array new|heap out of memory|Array buffer allocation failed|Cannot allocate memory|Out of memory/i;

/** Tells whether a process with bounded memory ran out of it. */
export function saysMemoryRanOut(message: string): boolean {
  return MEMORY_RAN_OUT.test(message);
}

/** Tells whether a GPU is short of memory. */
export function saysMemoryIsShort(message: string): boolean {
  return MEMORY_FAILURES.some(failure => failure.test(message));
}
