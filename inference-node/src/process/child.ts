/**
 * A child process of the node: spawned with a socket pair on descriptor 3, ended with the parent
 * whatever way the parent goes. Engines and picture workers are made of it; it knows neither.
 *
 *   running ──► exited   its process is gone (onExit, once), or it could not be started
 *   A child whose socket closed, or that sent a malformed frame, is killed: nobody can reach it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { type Frame, FrameChannel, MalformedFrameError } from './frames.ts';

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Why it was ended or never ran, where known: a malformed frame, no process to be had. */
  readonly error?: Error;
}

export interface SpawnChildOptions<Incoming> {
  /** Absolute path of the child's program (.ts). It calls serveParent. */
  readonly program: string;
  readonly args?: readonly string[];
  /** The child's whole environment: nothing is inherited but what is named here. */
  readonly env: Readonly<Record<string, string>>;
  readonly execArgv?: readonly string[];
  /** Takes what the child writes to standard error; otherwise that goes where the parent's goes. */
  readonly onStderr?: (text: string) => void;
  readonly onFrame: (frame: Frame<Incoming>) => void;
  /** Called once, after the last frame, however the child ended; never from the constructor. */
  readonly onExit: (exit: ChildExit) => void;
}

/** An orderly exit closes the socket first; one that takes longer than this is stuck. */
const EXIT_AFTER_CLOSE_MAX_MS = 1000;

export class Child<Incoming> {
  readonly #process: ChildProcess | undefined;
  readonly #channel: FrameChannel<Incoming> | undefined;
  readonly #onExit: (exit: ChildExit) => void;
  #error: Error | undefined;
  #killTimer: NodeJS.Timeout | undefined;
  #exited = false;

  constructor(options: SpawnChildOptions<Incoming>) {
    this.#onExit = options.onExit;
    const args = [
      ...(options.execArgv ?? []),
      options.program,
      ...(options.args ?? []),
      // serveParent compares it with its real parent: the child may start after the parent's death.
      String(process.pid),
    ];
    let child: ChildProcess;
    try {
      child = spawn(process.execPath, args, {
        stdio: ['ignore', 'inherit', options.onStderr ? 'pipe' : 'inherit', 'pipe'],
        env: { ...options.env },
        // The terminal's Ctrl-C goes to the whole group; the parent decides when a child ends. It
        // also makes the child the leader of a group, so that kill() reaches what the child
        // started.
        detached: true,
      });
    } catch (error) {
      // Node reports most failures through 'error', but throws some, of which ENOMEM may pass.
      this.#error = error as Error;
      process.nextTick(() => this.#finish(null, null));
      return;
    }
    this.#process = child;
    child.once('close', (code, signal) => this.#finish(code, signal));
    child.once('exit', () => this.#killGroup());
    child.on('error', error => {
      this.#error ??= error;
      if (child.pid === undefined) this.#finish(null, null);
    });
    // Out of descriptors, Node gives a process without pipes and reports it through 'error'.
    const socket = child.stdio?.[3] as Socket | undefined;
    if (socket === undefined) return;
    socket.on('error', error => {
      // Resets are how a dying child's end looks; its exit says more.
      if (error instanceof MalformedFrameError) this.#error ??= error;
    });
    socket.once('close', () => {
      if (this.#error instanceof MalformedFrameError) return this.kill();
      this.#killTimer = setTimeout(() => this.kill(), EXIT_AFTER_CLOSE_MAX_MS);
    });
    if (options.onStderr !== undefined) {
      child.stderr?.setEncoding('utf8').on('data', options.onStderr);
    }
    this.#channel = new FrameChannel(socket, options.onFrame);
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  get exited(): boolean {
    return this.#exited;
  }

  /** As FrameChannel.send; to a child that is gone, nothing. */
  send(head: object, parts: readonly Uint8Array[] = []): Promise<void> {
    return this.#channel?.send(head, parts) ?? Promise.resolve();
  }

  /** The only way to stop native code: it has no cancel. Ends also what the child started. */
  kill(): void {
    if (this.#exited) return;
    this.#killGroup();
    this.#process?.kill('SIGKILL');
  }

  #killGroup(): void {
    const pid = this.pid;
    if (pid === undefined) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch (error) {
      // ESRCH: the group is empty, which is what was wanted.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }

  #finish(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exited) return;
    this.#exited = true;
    clearTimeout(this.#killTimer);
    this.#onExit({ code, signal, error: this.#error });
  }
}
