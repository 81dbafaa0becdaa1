/**
 * A child process of the node: spawned with a socket pair on descriptor 3, ended with the parent
 * however the parent ends, with all that it started. Engines and picture workers are built on it.
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
  /** Why the child was ended or never ran, if known: a malformed frame, or no process. */
  readonly error?: Error | undefined;
}

export interface SpawnChildOptions<Incoming> {
  /** Absolute path of the child's program (.ts). It calls serveParent. */
  readonly program: string;
  readonly args?: readonly string[];
  /** The child's whole environment: it inherits nothing else. */
  readonly env: Readonly<Record<string, string>>;
  readonly execArgv?: readonly string[];
  /**
   * The kernel gives the process no more memory of its own than this (RLIMIT_DATA). The limit is
   * not on address space, of which V8 reserves far more than it uses.
   */
  readonly dataBytesMax?: number | undefined;
  readonly onOutput: (text: string) => void;
  readonly onFrame: (frame: Frame<Incoming>) => void;
  /**
   * The bound of all parts of one of its frames: a larger frame is malformed. Undefined: the bound
   * of every frame.
   */
  readonly partsBytesMax?: number | undefined;
  /** The parts of its frames go into these buffers. Undefined: into new memory. */
  readonly buffers?: BufferPool | undefined;
  /** Called once, after the last frame, however the child ended; never from the constructor. */
  readonly onExit: (exit: ChildExit) => void;
  /** Called at most once, before onExit, which may never come: see the states. */
  readonly onStuck?: () => void;
  readonly killWaitMaxMs?: number | undefined;
}

/** An orderly exit closes the socket first; a child that takes longer than this is stuck. */
const EXIT_AFTER_CLOSE_MAX_MS = 1000;
/**
 * The wait begins at SIGKILL. A healthy child is gone within milliseconds; freeing some GB may take
 * seconds.
 */
export const KILL_WAIT_MAX_MS = 10_000;
/**
 * The interval between polls of a dying child. Its wait is counted in polls: a standstill is no
 * waiting.
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
  /** The end of its own process: processes that it started may still live. */
  #end: Pick<ChildExit, 'code' | 'signal'> | undefined;
  /** Pid of a process of its group that outlived its own process. */
  #member: number | undefined;
  #stuck = false;
  #exited = false;

  constructor(options: SpawnChildOptions<Incoming>) {
    this.#options = options;
    let child: ChildProcess;
    try {
      child = spawnProcess(options);
    } catch (error) {
      // Node reports most failures through 'error', but throws some; of these ENOMEM may pass.
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
    // Out of descriptors, Node gives a process without pipes and reports it through 'error'.
    const pipe = child.stdio?.[3] as Socket | undefined;
    if (pipe === undefined) return;
    const { onFrame, buffers, partsBytesMax } = options;
    this.#channel = new FrameChannel({ pipe }, onFrame, { buffers, partsBytesMax });
    const { socket } = this.#channel;
    socket.on('error', error => {
      // The socket of a dying child is reset; its exit says more.
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

  /** Native code has no cancel. Ends also what the child started; onExit follows, or onStuck. */
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

  /** Finds out whether all of it is gone, or it is stuck. */
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
    // Nor must it keep a program from its end.
    this.#pollTimer = setInterval(() => this.#poll(), POLL_INTERVAL_STUCK_MS).unref();
    this.#process?.unref();
    // Frees what waits to be sent to it, up to a whole file.
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
  // serveParent compares it with its real parent: the child may start after the parent's death.
  const own = String(process.pid);
  const command = [process.execPath, ...execArgv, program, ...args, own];
  if (dataBytesMax !== undefined) {
    command.unshift('/bin/sh', '-c', LIMITED, 'sh', String(Math.floor(dataBytesMax / 1024)));
  }
  const [executable = process.execPath, ...rest] = command;
  return spawn(executable, rest, {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env: { ...env },
    // Ctrl-C goes to the terminal's group; the parent decides. kill() reaches the whole group of
    // it.
    detached: true,
  });
}

/** Sends SIGKILL to every member. A group without members is already gone. */
export function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * Finds a member that runs, stopped and uninterruptible ones included. Zombies do not count:
 * without an init process they stay for ever. The `known` one comes first: a search takes 30 us a
 * process.
 */
export function findMember(group: number, known: number | undefined): number | undefined {
  try {
    process.kill(-group, 0);
  } catch (error) {
    // EPERM: it is there, and has become another user's.
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? undefined : group;
  }
  if (known !== undefined && isMember(known, group)) return known;
  const pids = listPids();
  // Without /proc no more is known.
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

/** A process that has ended since the listing is not a member. */
function isMember(pid: number, group: number): boolean {
  const [state, , processGroup] = readStat(pid);
  return Number(processGroup) === group && state !== 'Z' && state !== 'X';
}

/** A child's standard output and error, in lines for the log; of a flood only their number. */

/** The rest of a line is left out. */
const LINE_CHARACTERS_MAX = 1000;
/** Lines of one child that are logged in a window; further ones are counted. */
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

  /** The child is gone: its last output may lack a line feed. */
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
