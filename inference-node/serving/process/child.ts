/**
 * A child process with a socket pair on descriptor 3. It ends with its parent, however the parent
 * ends, and so does everything that it started.
 *
 *   state    entered                                                  left
 *   running  the constructor                                          kill(), its own end -> dying
 *   dying    SIGKILL was sent to what is left of it                   all gone -> exited; in time
 *                                                                     not -> stuck
 *   stuck    it does not die (onStuck, once): it sleeps in the kernel  all gone -> exited
 *   exited   its processes are gone (onExit, once), or none started    never
 *
 * A child whose socket closed, or that sent a malformed frame, is killed.
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync } from 'node:fs';
import type { Socket } from 'node:net';
import type { BufferPool } from './buffer-pool.ts';
import { FrameChannel } from './frame-channel.ts';
import { type Frame, MalformedFrameError } from './frames.ts';
import { readStat } from './proc-files.ts';

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** If known: a malformed frame, or why no process started. */
  readonly error?: Error | undefined;
}

export interface SpawnChildOptions<Incoming> {
  /** Absolute path of a .ts program that calls serveParent. */
  readonly program: string;
  readonly args?: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly execArgv?: readonly string[];
  /** RLIMIT_DATA. It does not limit address space, of which V8 reserves far more than it uses. */
  readonly dataBytesMax?: number | undefined;
  readonly onOutput: (text: string) => void;
  readonly onFrame: (frame: Frame<Incoming>) => void;
  /** Limit of all parts of a frame; a larger frame is malformed. Undefined: PARTS_BYTES_MAX. */
  readonly partsBytesMax?: number | undefined;
  readonly buffers?: BufferPool | undefined;
  /** Called once, after the last frame, however the child ended; never from the constructor. */
  readonly onExit: (exit: ChildExit) => void;
  /** Called at most once, before onExit, which may never come. */
  readonly onStuck?: () => void;
  readonly killWaitMaxMs?: number | undefined;
}

/** An orderly exit closes the socket first. A child that takes longer afterwards is killed. */
const EXIT_AFTER_CLOSE_MAX_MS = 1000;
/**
 * From SIGKILL on. A healthy child is gone within milliseconds; freeing some GB may take seconds.
 */
export const KILL_WAIT_MAX_MS = 10_000;
/**
 * The wait for a dying child is counted in polls, so that a standstill of this process does not
 * count.
 */
const POLL_INTERVAL_MS = 50;
const POLL_INTERVAL_STUCK_MS = 1000;

export class Child<Incoming> {
  readonly #options: SpawnChildOptions<Incoming>;
  readonly #process: ChildProcess | undefined;
  readonly #channel: FrameChannel<Incoming> | undefined;
  #error: Error | undefined;
  #killTimer: NodeJS.Timeout | undefined;
  #pollTimer: NodeJS.Timeout | undefined;
  #polls = 0;
  /** End of its own process. Processes that it started may still live. */
  #end: Pick<ChildExit, 'code' | 'signal'> | undefined;
  #member: number | undefined;
  #stuck = false;
  #exited = false;

  constructor(options: SpawnChildOptions<Incoming>) {
    this.#options = options;
    let child: ChildProcess;
    try {
      child = spawnProcess(options);
    } catch (error) {
      // Node reports most failures by 'error' but throws some, such as an ENOMEM that may pass.
      this.#error = error as Error;
      process.nextTick(() => this.#finish(null, null));
      return;
    }
    this.#process = child;
    child.once('exit', () => this.#onProcessEnd());
    child.once('close', (code, signal) => {
      this.#end = { code, signal };
      this.#poll();
    });
    child.on('error', error => {
      this.#error ??= error;
      if (child.pid === undefined) this.#finish(null, null);
    });
    // Out of descriptors, Node returns a process without pipes and reports that through 'error'.
    const pipe = child.stdio?.[3] as Socket | undefined;
    if (pipe === undefined) return;
    const { onFrame, buffers, partsBytesMax } = options;
    this.#channel = new FrameChannel({ pipe }, onFrame, { buffers, partsBytesMax });
    const { socket } = this.#channel;
    socket.on('error', error => {
      if (error instanceof MalformedFrameError) this.#error ??= error;
    });
    socket.once('close', () => {
      if (this.#exited || this.#stuck) return;
      if (this.#error instanceof MalformedFrameError) return this.kill();
      this.#killTimer = setTimeout(() => this.kill(), EXIT_AFTER_CLOSE_MAX_MS);
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', options.onOutput);
    }
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  get exited(): boolean {
    return this.#exited;
  }

  get stuck(): boolean {
    return this.#stuck && !this.#exited;
  }

  send(head: object, parts: readonly Uint8Array[] = []): Promise<void> {
    return this.#channel?.send(head, parts) ?? Promise.resolve();
  }

  /** Native code has no cancel. Kills also what the child started; onExit follows, or onStuck. */
  kill(): void {
    const { pid } = this;
    if (this.#exited || pid === undefined) return;
    killGroup(pid);
    this.#process?.kill('SIGKILL');
    this.#watchDeath();
  }

  #onProcessEnd(): void {
    const { pid } = this;
    if (pid !== undefined) killGroup(pid);
    this.#watchDeath();
    // 'close' waits for the ends of its pipes, which a process that does not die may hold.
    clearTimeout(this.#killTimer);
    this.#killTimer = setTimeout(() => this.#closePipes(), EXIT_AFTER_CLOSE_MAX_MS);
  }

  #closePipes(): void {
    for (const stream of this.#process?.stdio ?? []) stream?.destroy();
  }

  #watchDeath(): void {
    if (this.#exited) return;
    this.#pollTimer ??= setInterval(() => this.#poll(), POLL_INTERVAL_MS);
  }

  #poll(): void {
    const { pid } = this;
    if (this.#exited || pid === undefined) return;
    if (this.#end !== undefined) {
      this.#member = findMember(pid, this.#member);
      if (this.#member === undefined) {
        this.#finish(this.#end.code, this.#end.signal);
        return;
      }
    }
    this.#polls += 1;
    const { killWaitMaxMs = KILL_WAIT_MAX_MS } = this.#options;
    if (!this.#stuck && this.#polls * POLL_INTERVAL_MS > killWaitMaxMs) this.#becomeStuck();
  }

  #becomeStuck(): void {
    this.#stuck = true;
    clearTimeout(this.#killTimer);
    clearInterval(this.#pollTimer);
    this.#pollTimer = setInterval(() => this.#poll(), POLL_INTERVAL_STUCK_MS).unref();
    this.#process?.unref();
    this.#closePipes();
    this.#options.onStuck?.();
  }

  #finish(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exited) return;
    this.#exited = true;
    clearTimeout(this.#killTimer);
    clearInterval(this.#pollTimer);
    this.#options.onExit({ code, signal, error: this.#error });
  }
}

const LIMITED = 'ulimit -d "$1" && shift && exec "$@"';

function spawnProcess<Incoming>({
  execArgv = [],
  program,
  args = [],
  env,
  dataBytesMax,
}: SpawnChildOptions<Incoming>): ChildProcess {
  // serveParent compares it with its real parent: this process may die before the child starts.
  const own = String(process.pid);
  const command = [process.execPath, ...execArgv, program, ...args, own];
  if (dataBytesMax !== undefined) {
    command.unshift('/bin/sh', '-c', LIMITED, 'sh', String(Math.floor(dataBytesMax / 1024)));
  }
  const [executable = process.execPath, ...rest] = command;
  return spawn(executable, rest, {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env: { ...env },
    // Ctrl-C then reaches the parent alone, and kill() the child's whole group.
    detached: true,
  });
}

export function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * Finds a living member, also a stopped or uninterruptible one. Zombies do not count: without an
 * init process they stay forever. `known` is tested first, since a search takes 30 us a process.
 */
export function findMember(group: number, known: number | undefined): number | undefined {
  try {
    process.kill(-group, 0);
  } catch (error) {
    // EPERM: it lives, as another user's.
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? undefined : group;
  }
  if (known !== undefined && isMember(known, group)) return known;
  const pids = listPids();
  return pids === undefined ? group : pids.find(pid => isMember(pid, group));
}

function listPids(): number[] | undefined {
  try {
    return readdirSync('/proc').filter(isDecimal).map(Number);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function isDecimal(name: string): boolean {
  return /^\d+$/.test(name);
}

function isMember(pid: number, group: number): boolean {
  const [state, , processGroup] = readStat(pid);
  return Number(processGroup) === group && state !== 'Z' && state !== 'X';
}

/** Logs output by lines. From a flood it logs only their number. */

const LINE_CHARACTERS_MAX = 1000;
const LINES_MAX = 100;
const WINDOW_MS = 60_000;

export class OutputLines {
  readonly #onLine: (line: string) => void;
  #partial = '';
  #cut = false;
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #logged = 0;
  #leftOut = 0;

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  push(text: string): void {
    const pieces = text.split('\n');
    for (const [index, piece] of pieces.entries()) {
      this.#append(piece);
      if (index < pieces.length - 1) this.#endLine();
    }
  }

  /** The last output may lack a line feed. */
  end(): void {
    this.#endLine();
    this.#logLeftOut();
  }

  #append(piece: string): void {
    if (this.#cut) return;
    this.#partial += piece.slice(0, LINE_CHARACTERS_MAX - this.#partial.length);
    this.#cut = this.#partial.length === LINE_CHARACTERS_MAX;
  }

  #endLine(): void {
    const line = this.#partial.trimEnd();
    this.#partial = '';
    this.#cut = false;
    if (line === '') return;
    const nowMs = performance.now();
    if (nowMs - this.#windowStartMs >= WINDOW_MS) {
      this.#windowStartMs = nowMs;
      this.#logged = 0;
      this.#logLeftOut();
    }
    if (this.#logged >= LINES_MAX) {
      this.#leftOut += 1;
      return;
    }
    this.#logged += 1;
    this.#onLine(line);
  }

  #logLeftOut(): void {
    if (this.#leftOut === 0) return;
    this.#onLine(`${this.#leftOut} more lines were left out`);
    this.#leftOut = 0;
  }
}
