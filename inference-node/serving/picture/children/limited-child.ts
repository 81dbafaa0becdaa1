/**
 * Programs of other codecs as children of a picture worker: under limits that the kernel enforces,
 * killed when their worker dies.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { FileHandle } from 'node:fs/promises';
import { type Budget, budgetFor, CPU_MS_BUDGET, RESIDENT_BYTES_BUDGET } from '../budgets.ts';
import { SETPRIV, SHELL } from '../makeable.ts';

/** The first files of a run have these paths, which a program can open. */
export const INPUT = '/proc/self/fd/3';
export const OUTPUT = '/proc/self/fd/4';
export const EXTRA_OUTPUT = '/proc/self/fd/5';

export interface ChildLimits {
  readonly memoryBytes: number;
  readonly cpuMs: number;
  /** The size limit of each file that the child writes. */
  readonly fileBytes: number;
}

/** Four channels of 16 bits, stored: more than a program makes of a picture. */
const FILE_BYTES_BUDGET: Budget = { base: 2 ** 24, perMegapixel: 9e6 };

/** Gives the limits of a picture's cost; they are the same in a worker. */
export function limitsFor(pixels: number): ChildLimits {
  const megapixels = pixels / 1e6;
  return {
    memoryBytes: budgetFor(RESIDENT_BYTES_BUDGET, megapixels),
    cpuMs: budgetFor(CPU_MS_BUDGET, megapixels),
    fileBytes: budgetFor(FILE_BYTES_BUDGET, megapixels),
  };
}

/**
 * The program has no capability either, even as root or in a namespace, and dies with its parent.
 */
const UNPRIVILEGED = [
  SETPRIV,
  ...['--pdeathsig', 'KILL', '--no-new-privs', '--bounding-set=-all', '--inh-caps=-all'],
];
/** Files are counted in blocks of 512 bytes, memory in KiB. */
const LIMITED = 'ulimit "$1" "$2" && ulimit -t "$3" && ulimit -f "$4" && shift 4 && exec "$@"';
/** V8 alone: it reserves 512 MB for code, and takes 90 without any (Node 24). */
const NODE_DATA_BYTES = 640e6;

const ERROR_LENGTH_MAX = 1000;

export interface LimitedRun {
  readonly command: readonly string[];
  /** Descriptors of the program from 3 on. */
  readonly files: readonly FileHandle[];
  readonly limits: ChildLimits;
  /**
   * The program runs on Node: V8 and WebAssembly reserve addresses that they never use, so the
   * bound is on writable memory.
   */
  readonly onNode?: boolean;
  /**
   * All of the program's output goes there. Undefined: its errors alone are kept, for a failure's
   * message.
   */
  readonly printed?: FileHandle;
  /** A program and its options that start what follows them, such as without a network. */
  readonly within?: readonly string[];
}

/** Returns undefined if it ended well. */
export async function runLimited(run: LimitedRun): Promise<Error | undefined> {
  const { command, files, limits, printed, onNode = false, within = [] } = run;
  const memoryBytes = limits.memoryBytes + (onNode ? NODE_DATA_BYTES : 0);
  const bounds = [memoryBytes / 1024, limits.cpuMs / 1000, limits.fileBytes / 512];
  const numbers = bounds.map(bound => String(Math.ceil(bound)));
  const limited = [SHELL, '-c', LIMITED, 'sh', onNode ? '-d' : '-v', ...numbers, ...command];
  const [program = SETPRIV, ...args] = [...within, ...UNPRIVILEGED, ...limited];
  const child = spawn(program, args, {
    env: {},
    stdio: ['ignore', printed?.fd ?? 'ignore', printed?.fd ?? 'pipe', ...files.map(({ fd }) => fd)],
  });
  let errorText = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    errorText = (errorText + text).slice(0, ERROR_LENGTH_MAX);
  });
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  return code === 0 ? undefined : new Error(`${signal ?? code}: ${errorText.trim()}`);
}

export async function writeAll(handle: FileHandle, ...parts: Uint8Array[]): Promise<void> {
  let position = 0;
  for (const part of parts) {
    for (let at = 0; at < part.length; ) {
      const { bytesWritten } = await handle.write(part, at, part.length - at, position);
      at += bytesWritten;
      position += bytesWritten;
    }
  }
}

/** Less than this is a full disk to a program that could not write. */
const ROOM_BYTES = 2 ** 20;

/**
 * Finds out after a failed run whether the disk is full: that is no fault of the picture. Rejects
 * with ENOSPC.
 */
export async function requireRoom(output: FileHandle): Promise<void> {
  const { size } = await output.stat();
  const zeros = Buffer.alloc(ROOM_BYTES);
  for (let at = 0; at < ROOM_BYTES; ) {
    const { bytesWritten } = await output.write(zeros, at, ROOM_BYTES - at, size + at);
    at += bytesWritten;
  }
}

/** @returns false: the file ends before. */
export async function readWhole(
  handle: FileHandle,
  into: Uint8Array,
  position: number,
): Promise<boolean> {
  for (let at = 0; at < into.length; ) {
    const { bytesRead } = await handle.read(into, at, into.length - at, position + at);
    if (bytesRead === 0) return false;
    at += bytesRead;
  }
  return true;
}

/** Reads from the first byte, whatever was read or written before. */
export async function readAll(handle: FileHandle): Promise<Buffer> {
  const bytes = Buffer.alloc((await handle.stat()).size);
  await readWhole(handle, bytes, 0);
  return bytes;
}
