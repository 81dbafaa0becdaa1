/** Runs other codecs' programs under the kernel's limits. They die with their picture worker. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { FileHandle } from 'node:fs/promises';
import { type Budget, budgetFor, CPU_MS_BUDGET, RESIDENT_BYTES_BUDGET } from '../budgets.ts';
import { SETPRIV, SHELL } from '../makeable.ts';

/** The program reaches its first files by these paths. */
export const INPUT = '/proc/self/fd/3';
export const OUTPUT = '/proc/self/fd/4';
export const EXTRA_OUTPUT = '/proc/self/fd/5';

export interface ChildLimits {
  readonly memoryBytes: number;
  readonly cpuMs: number;
  /** Largest file that the child may write. */
  readonly fileBytes: number;
}

/** Holds four uncompressed channels of 16 bits. */
const FILE_BYTES_BUDGET: Budget = { base: 2 ** 24, perMegapixel: 9e6 };

export function limitsFor(pixels: number): ChildLimits {
  const megapixels = pixels / 1e6;
  return {
    memoryBytes: budgetFor(RESIDENT_BYTES_BUDGET, megapixels),
    cpuMs: budgetFor(CPU_MS_BUDGET, megapixels),
    fileBytes: budgetFor(FILE_BYTES_BUDGET, megapixels),
  };
}

/** The program has no capability, even as root or in a namespace, and dies with its parent. */
const UNPRIVILEGED = [
  SETPRIV,
  ...['--pdeathsig', 'KILL', '--no-new-privs', '--bounding-set=-all', '--inh-caps=-all'],
];
/** Files are counted in blocks of 512 bytes, memory in KiB. */
const LIMITED = 'ulimit "$1" "$2" && ulimit -t "$3" && ulimit -f "$4" && shift 4 && exec "$@"';
/** V8 reserves 512 MB for code, and takes 90 MB without running any (Node 24). */
const NODE_DATA_BYTES = 640e6;

const ERROR_LENGTH_MAX = 1000;

export interface LimitedRun {
  readonly command: readonly string[];
  /** Descriptors of the program from 3 on. */
  readonly files: readonly FileHandle[];
  readonly limits: ChildLimits;
  /** V8 and WebAssembly reserve unused addresses, so the bound is on writable memory. */
  readonly onNode?: boolean;
  /** Gets all output. Undefined: only errors are kept, for a failure's message. */
  readonly printed?: FileHandle;
  /** A command that starts the program, for example without a network. */
  readonly within?: readonly string[];
}

/** Returns undefined if the program succeeded. */
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

/** A program fails to write if less is free. */
const ROOM_BYTES = 2 ** 20;

/** A full disk is not the picture's fault. @throws Error ENOSPC */
export async function requireRoom(output: FileHandle): Promise<void> {
  const { size } = await output.stat();
  const zeros = Buffer.alloc(ROOM_BYTES);
  for (let at = 0; at < ROOM_BYTES; ) {
    const { bytesWritten } = await output.write(zeros, at, ROOM_BYTES - at, size + at);
    at += bytesWritten;
  }
}

/** @returns false if the file is shorter */
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

export async function readAll(handle: FileHandle): Promise<Buffer> {
  const bytes = Buffer.alloc((await handle.stat()).size);
  await readWhole(handle, bytes, 0);
  return bytes;
}
