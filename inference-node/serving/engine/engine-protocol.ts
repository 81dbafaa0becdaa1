/**
 * Messages between a pool and an engine's process, as frames of serving/process/frames.ts.
 *
 *   pool                               engine
 *   init ─────────────────────────────► loads, warms up
 *        ◄──────────────────────────── ready | broken
 *   run + rgb ────────────────────────►
 *        ◄──────────────────────────── started    before native code blocks the engine's loop
 *        ◄──────────────────────────── done + alpha | failed
 *
 * One run at a time. An engine ends when its socket closes.
 */
import type { Size } from '@matting/proto/contract/finishing.ts';
import { printable } from '../models/model-error.ts';
import type { ExecutionProvider, PreparedModel } from '../models/prepared-model.ts';
import type { CInterface } from '../providers/c-interface.ts';

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
  /** Absolute. Undefined: `init` carries the graph's bytes, as for small probes. */
  readonly path: string | undefined;
  /** SHA-256 of the file at `path`, hexadecimal. Undefined: not checked. */
  readonly sha256: string | undefined;
  /** The session gets this provider alone: the graph runs on it, or the load fails. */
  readonly provider: ExecutionProvider;
  readonly intraOpThreads: number;
  readonly sharesCores: boolean;
  /**
   * False: the load fails if the provider lacks a kernel. Otherwise ONNX Runtime quietly runs such
   * nodes on the CPU, where models legitimately keep small shape nodes. Probes set false.
   */
  readonly allowCpuNodes: boolean;
  /** Undefined: by the binding, as added models always are. */
  readonly cInterface?: CInterface | undefined;
  /** Returns freed memory at once, which is slower, but needs less under a memory limit. */
  readonly keepsNoMemory?: boolean;
}

/** Most values of an answer: two classes at 4096x4096. Probes and engines refuse more. */
export const ANSWER_VALUES_MAX = 2 * 4096 ** 2;

export interface Answer<Alpha extends Uint8Array = Uint8Array> {
  readonly alpha: Alpha;
  readonly size: Size;
}

export type ToEngine =
  | { readonly kind: 'init'; readonly spec: SessionSpec }
  /**
   * One part: rgb. `size` is the picture's within the input (picture/matte/model-input.ts).
   * Undefined: the whole input.
   */
  | { readonly kind: 'run'; readonly id: number; readonly size?: Size | undefined };

export type FromEngine =
  | { readonly kind: 'ready'; readonly warmMs: number }
  /** `message` is one line. */
  | { readonly kind: 'broken'; readonly message: string }
  | { readonly kind: 'started'; readonly id: number }
  | { readonly kind: 'done'; readonly id: number; readonly size: Size }
  /** `ofPicture`: the picture is at fault. The engine continues, and another would fail too. */
  | {
      readonly kind: 'failed';
      readonly id: number;
      readonly message: string;
      readonly ofPicture: boolean;
    };

/** Such as "CUDA failure 100: no CUDA-capable device is detected", from a page of C++. */
const LIBRARY_FAILURE = /\bCU[A-Z_]* failure -?\d+: [^;]+/;
/** ONNX Runtime's arena says this if CUDA gives it no memory, perhaps after a C++ signature. */
const MEMORY_IS_SHORT = /\bFailed to allocate memory for requested buffer of size \d+/;
const SOURCE_LOCATIONS = [
  /\b(?:Exception from|Check '[^']{1,200}' failed at) src\/\S+:\d+:\s*/g,
  /\/\S+\.(?:cc|h):\d+ (?:[^()]{1,200}\([^()]*\) (?:const )?)?(?:[^"]{1,200}? was false\. )?/g,
  /\[ONNXRuntimeError\] : \d+ : \w+ : /g,
  /\b\w+\.cc:\d+ \w+ /g,
] as const;

/**
 * CUDA error codes of a device or driver, not of one run: not initialised (3), busy or unavailable
 * (46), no device (100), no such device (101), ECC error (214), system not ready (802), driver and
 * runtime do not fit (803, 804), unknown (999), such as a lost GPU.
 */
const DEVICE_FAILURES: ReadonlySet<number> = new Set([3, 46, 100, 101, 214, 802, 803, 804, 999]);

/** cuBLAS and cuDNN report a handle without memory as not initialised. */
const MEMORY_FAILURES: readonly RegExp[] = [
  MEMORY_IS_SHORT,
  /\bCU(?:DA|FFT) failure 2:/,
  /\bCUBLAS failure [13]:/,
  /\bCUDNN failure \d+: \w*(?:ALLOC|NOT_INITIALIZED)/,
  /\bCUDNN_FE failure \d+: \w+ \(\w*ALLOC/,
];
/** cuDNN's frontend names the step that failed first, then perhaps the cause. */
const FRONTEND_FAILURE = /\bCUDNN_FE failure -?\d+: \w+/;
const ALLOCATION_STATUS = /\bCUDNN_STATUS_\w*ALLOC\w*/;

export function shortenNativeError(message: string): string {
  const line = printable(message);
  const failure = (LIBRARY_FAILURE.exec(line) ?? MEMORY_IS_SHORT.exec(line))?.[0];
  const frontend = FRONTEND_FAILURE.exec(line)?.[0];
  const status = ALLOCATION_STATUS.exec(line)?.[0];
  if (frontend !== undefined && status !== undefined) return `${frontend} (${status})`;
  const cause = SOURCE_LOCATIONS.reduce((rest, location) => rest.replaceAll(location, ''), line);
  return (failure ?? cause.replace(/ failed:(?=\S)/, ' failed: ')).trim();
}

/** Tells whether device or driver failed, so that no process can use the GPU. */
export function saysDeviceIsGone(message: string): boolean {
  const code = /\bCUDA failure (\d+)/.exec(message)?.[1];
  return code !== undefined && DEVICE_FAILURES.has(Number(code));
}

const MEMORY_RAN_OUT =
  /Failed to allocate memory|bad_alloc|bad array new|heap out of memory|Array buffer allocation failed|Cannot allocate memory|Out of memory/i;

export function saysMemoryRanOut(message: string): boolean {
  return MEMORY_RAN_OUT.test(message);
}

export function saysMemoryIsShort(message: string): boolean {
  return MEMORY_FAILURES.some(failure => failure.test(message));
}
