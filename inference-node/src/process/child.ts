/**
 * A child process of the node: spawned with a socket pair on descriptor 3, ended with the parent
 * whatever way the parent goes. Engines and picture workers are made of it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { type Frame, FrameChannel } from './frames.ts';

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface SpawnChildOptions<Incoming> {
  /** Absolute path of the child's program (.ts). */
  readonly program: string;
  readonly args?: readonly string[];
  /** The child's whole environment: nothing is inherited but what is named here. */
  readonly env: Readonly<Record<string, string>>;
  readonly execArgv?: readonly string[];
  readonly onFrame: (frame: Frame<Incoming>) => void;
  /** Called once, after the last frame, however the child ended. */
  readonly onExit: (exit: ChildExit) => void;
}

export class Child<Incoming> {
  readonly #process: ChildProcess;
  readonly #channel: FrameChannel<Incoming>;
  #exited = false;

  constructor(options: SpawnChildOptions<Incoming>) {
    this.#process = spawn(
      process.execPath,
      [...(options.execArgv ?? []), options.program, ...(options.args ?? [])],
      // The terminal's Ctrl-C goes to the whole group; the parent decides when a child ends.
      { stdio: ['ignore', 'inherit', 'inherit', 'pipe'], env: { ...options.env }, detached: true },
    );
    const socket = this.#process.stdio[3] as Socket;
    // A child that dies resets its end of the pair; 'close' of the process tells the rest.
    socket.on('error', () => socket.destroy());
    this.#channel = new FrameChannel(socket, options.onFrame);
    const finish = (exit: ChildExit) => {
      if (this.#exited) return;
      this.#exited = true;
      socket.destroy();
      options.onExit(exit);
    };
    this.#process.once('close', (code, signal) => finish({ code, signal }));
    this.#process.once('error', () => finish({ code: null, signal: null }));
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get exited(): boolean {
    return this.#exited;
  }

  send(head: object, parts: readonly Uint8Array[] = []): void {
    this.#channel.send(head, parts);
  }

  /** The only way to stop native code: it has no cancel. */
  kill(): void {
    if (!this.#exited) this.#process.kill('SIGKILL');
  }
}
