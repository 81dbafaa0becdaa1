/**
 * A child process of the node: spawned with a socket pair on descriptor 3, ended with the parent
 * whatever way the parent goes. Engines and picture workers are made of it; it knows neither. What
 * the child starts belongs to it: it is gone when the last of them is.
 *
 *   state    entered                                                  left
 *   running  the constructor                                          kill(), its own end -> dying
 *   dying    SIGKILL was sent to what is left of it                   all gone -> exited;
 *                                                                     KILL_WAIT_MAX_MS -> stuck
 *   stuck    it does not die (onStuck, once): in an uninterruptible   all gone -> exited
 *            sleep, behind a GPU's driver or a file system that hangs
 *   exited   its processes are gone (onExit, once), or it could not   never
 *            be started
 *
 * A child whose socket closed, or that sent a malformed frame, is killed: nobody can reach it.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { type Frame, FrameChannel, MalformedFrameError } from './frames.ts';
import { findMember, killGroup } from './process-group.ts';

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Why it was ended or never ran, where known: a malformed frame, no process to be had. */
  readonly error?: Error | undefined;
}

export interface SpawnChildOptions<Incoming> {
  /** Absolute path of the child's program (.ts). It calls serveParent. */
  readonly program: string;
  readonly args?: readonly string[];
  /** The child's whole environment: nothing is inherited but what is named here. */
  readonly env: Readonly<Record<string, string>>;
  readonly execArgv?: readonly string[];
  /** Takes what the child writes to standard output and error. */
  readonly onOutput: (text: string) => void;
  readonly onFrame: (frame: Frame<Incoming>) => void;
  /** Called once, after the last frame, however the child ended; never from the constructor. */
  readonly onExit: (exit: ChildExit) => void;
  /** Called at most once, before onExit, which may never come: see the states. */
  readonly onStuck?: () => void;
  /** KILL_WAIT_MAX_MS where absent. */
  readonly killWaitMaxMs?: number | undefined;
}

/** An orderly exit closes the socket first; one that takes longer than this is stuck. */
const EXIT_AFTER_CLOSE_MAX_MS = 1000;
/**
 * From SIGKILL until the process counts as stuck. A healthy one is gone within milliseconds; to
 * free some GB of memory on a machine that swaps, or a GPU's, may take seconds.
 */
export const KILL_WAIT_MAX_MS = 10_000;
/** While it is dying. Counted in looks: a machine that stands still has not waited. */
const LOOK_INTERVAL_MS = 50;
const LOOK_INTERVAL_STUCK_MS = 1000;

export class Child<Incoming> {
  readonly #options: SpawnChildOptions<Incoming>;
  readonly #process: ChildProcess | undefined;
  readonly #channel: FrameChannel<Incoming> | undefined;
  #error: Error | undefined;
  #killTimer: NodeJS.Timeout | undefined;
  #lookTimer: NodeJS.Timeout | undefined;
  #looks = 0;
  /** Of its own process: what it started may live on. */
  #end: Pick<ChildExit, 'code' | 'signal'> | undefined;
  /** Of its group, that its own process left behind. */
  #member: number | undefined;
  #stuck = false;
  #exited = false;

  constructor(options: SpawnChildOptions<Incoming>) {
    this.#options = options;
    let child: ChildProcess;
    try {
      child = spawnProcess(options);
    } catch (error) {
      // Node reports most failures through 'error', but throws some, of which ENOMEM may pass.
      this.#error = error as Error;
      process.nextTick(() => this.#finish(null, null));
      return;
    }
    this.#process = child;
    child.once('exit', () => this.#onProcessEnd());
    child.once('close', (code, signal) => {
      this.#end = { code, signal };
      this.#look();
    });
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
      if (this.#exited || this.#stuck) return;
      if (this.#error instanceof MalformedFrameError) return this.kill();
      this.#killTimer = setTimeout(() => this.kill(), EXIT_AFTER_CLOSE_MAX_MS);
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', options.onOutput);
    }
    this.#channel = new FrameChannel(socket, options.onFrame);
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  get exited(): boolean {
    return this.#exited;
  }

  /** It was killed and does not die. Nobody should wait for it. */
  get stuck(): boolean {
    return this.#stuck && !this.#exited;
  }

  /** As FrameChannel.send; to a child that is gone, nothing. */
  send(head: object, parts: readonly Uint8Array[] = []): Promise<void> {
    return this.#channel?.send(head, parts) ?? Promise.resolve();
  }

  /**
   * The only way to stop native code: it has no cancel. Ends also what the child started. Within
   * the bound onExit follows, or onStuck.
   */
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
    this.#lookTimer ??= setInterval(() => this.#look(), LOOK_INTERVAL_MS);
  }

  /** All of it is gone, it is stuck, or it is waited for. */
  #look(): void {
    const { pid } = this;
    if (this.#exited || pid === undefined) return;
    if (this.#end !== undefined) {
      this.#member = findMember(pid, this.#member);
      if (this.#member === undefined) {
        this.#finish(this.#end.code, this.#end.signal);
        return;
      }
    }
    this.#looks += 1;
    const { killWaitMaxMs = KILL_WAIT_MAX_MS } = this.#options;
    if (!this.#stuck && this.#looks * LOOK_INTERVAL_MS > killWaitMaxMs) this.#becomeStuck();
  }

  #becomeStuck(): void {
    this.#stuck = true;
    clearTimeout(this.#killTimer);
    clearInterval(this.#lookTimer);
    // Nor must it keep a program from its end.
    this.#lookTimer = setInterval(() => this.#look(), LOOK_INTERVAL_STUCK_MS).unref();
    this.#process?.unref();
    // What waits to be sent to it, up to a whole file, is let go.
    this.#closePipes();
    this.#options.onStuck?.();
  }

  #finish(code: number | null, signal: NodeJS.Signals | null): void {
    if (this.#exited) return;
    this.#exited = true;
    clearTimeout(this.#killTimer);
    clearInterval(this.#lookTimer);
    this.#options.onExit({ code, signal, error: this.#error });
  }
}

function spawnProcess<Incoming>({
  execArgv = [],
  program,
  args = [],
  env,
}: SpawnChildOptions<Incoming>): ChildProcess {
  // serveParent compares it with its real parent: the child may start after the parent's death.
  const own = String(process.pid);
  return spawn(process.execPath, [...execArgv, program, ...args, own], {
    stdio: ['ignore', 'pipe', 'pipe', 'pipe'],
    env: { ...env },
    // The terminal's Ctrl-C goes to the whole group; the parent decides when a child ends. It also
    // makes the child the leader of a group, so that kill() reaches what the child started.
    detached: true,
  });
}
