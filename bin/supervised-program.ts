/**
 * A program of the stack as a child, with a log file, restarted if it dies unexpectedly.
 *
 * | state    | entered                                  | left                                        |
 * |----------|------------------------------------------|---------------------------------------------|
 * | running  | spawn                                    | exit                                        |
 * | waiting  | an unexpected exit, after `keepUp`       | after the back-off: running; stop: stopped  |
 * | stopped  | exit after stop, or before `keepUp`; a   | never                                       |
 * |          | stop that even SIGKILL does not end      |                                             |
 *
 * The child has its own process group, so that Ctrl-C reaches only the supervisor. Its IPC channel
 * closes when the supervisor dies, and then it ends.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, renameSync, statSync, writeSync } from 'node:fs';
import path from 'node:path';
import { type ChildEnd, endOf, KILL_MAX_MS, killWithin, withinMs } from './child-end.ts';

export interface ProgramExit extends ChildEnd {
  /** The end of stderr. */
  readonly lastWords: string;
}

export interface SupervisedProgramOptions {
  /** Such as "control plane". */
  readonly name: string;
  /** Absolute. */
  readonly main: string;
  readonly env: Readonly<Record<string, string>>;
  readonly logFile: string;
  /** Shows a line to the user. */
  readonly say: (line: string) => void;
  readonly timeouts?: Partial<StopTimeouts>;
}

/** Waits for a program that should end. */
export interface StopTimeouts {
  readonly stopMs: number;
  /** After a second request. */
  readonly hurriedStopMs: number;
  /** After SIGKILL. */
  readonly killMs: number;
}

const BACKOFF_MS = [250, 1000, 2000, 5000, 10_000];
/** After this time the back-off starts over. */
const STABLE_AFTER_MS = 60_000;
const LAST_WORDS_CHARACTERS_MAX = 4096;
/** At a start a larger log is renamed to `.1`. */
const LOG_BYTES_MAX = 50 * 1024 * 1024;
const STOP_TIMEOUTS: StopTimeouts = {
  // The programs finish admitted work within 130 s and close within 20 s.
  stopMs: 150_000,
  hurriedStopMs: 5000,
  killMs: KILL_MAX_MS,
};

export class SupervisedProgram {
  readonly #options: SupervisedProgramOptions;
  readonly #timeouts: StopTimeouts;
  readonly #log: number;
  #child: ChildProcess | undefined;
  #end: Promise<ChildEnd> | undefined;
  #keepUp = false;
  #stopping = false;
  #restarts = 0;
  #startedAtMs = 0;
  #lastWords = '';
  #logOpen = true;
  /** It ignores SIGKILL. */
  #givenUp = false;
  readonly #left = Promise.withResolvers<void>();
  readonly #firstExit: Promise<ProgramExit>;
  #resolveFirstExit: (exit: ProgramExit) => void = () => undefined;

  constructor(options: SupervisedProgramOptions) {
    this.#options = options;
    this.#timeouts = { ...STOP_TIMEOUTS, ...options.timeouts };
    this.#log = openLog(options.logFile);
    this.#firstExit = new Promise(resolve => {
      this.#resolveFirstExit = resolve;
    });
    this.#spawn();
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /**
   * Resolves when the first process ends. If that is before `keepUp`, the program could not start.
   */
  get firstExit(): Promise<ProgramExit> {
    return this.#firstExit;
  }

  /** Restarts it after each unexpected exit from now on. */
  keepUp(): void {
    this.#keepUp = true;
  }

  /** Kills it if it does not end in time. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#endWithin(this.#timeouts.stopMs);
    this.#closeLog();
  }

  /** A second request to end. */
  async hurry(): Promise<void> {
    await this.#endWithin(this.#timeouts.hurriedStopMs);
  }

  /** Resolves when it is gone, or ignores SIGKILL. */
  async #endWithin(maxMs: number): Promise<void> {
    const child = this.#child;
    const end = this.#end;
    if (child === undefined || end === undefined || this.#givenUp) return;
    if (!hasEnded(child)) child.kill('SIGTERM');
    const over = Promise.race([end, this.#left.promise]);
    if ((await withinMs(maxMs, over)) || this.#givenUp) return;
    const { name, say } = this.#options;
    say(`the ${name} did not stop in time; killed it`);
    if (await killWithin(child, end, this.#timeouts.killMs)) return;
    if (this.#givenUp) return;
    this.#givenUp = true;
    this.#left.resolve();
    say(`the ${name} (process ${child.pid}) does not end after SIGKILL; check this process`);
  }

  #spawn(): void {
    this.#startedAtMs = Date.now();
    this.#lastWords = '';
    const child = spawn(process.execPath, [this.#options.main], {
      env: this.#options.env,
      detached: true,
      stdio: ['ignore', this.#log, 'pipe', 'ipc'],
    });
    this.#child = child;
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#lastWords = (this.#lastWords + text).slice(-LAST_WORDS_CHARACTERS_MAX);
      this.#writeLog(text);
    });
    child.once('error', error => {
      this.#lastWords = `cannot start: ${error.message}`;
    });
    this.#end = endOf(child);
    void this.#end.then(end => this.#ended({ ...end, lastWords: this.#lastWords }));
  }

  #ended(exit: ProgramExit): void {
    this.#resolveFirstExit(exit);
    if (this.#stopping || !this.#keepUp) return;
    if (Date.now() - this.#startedAtMs > STABLE_AFTER_MS) this.#restarts = 0;
    const waitMs = BACKOFF_MS[Math.min(this.#restarts, BACKOFF_MS.length - 1)];
    this.#restarts += 1;
    const how = exit.signal ?? `exit code ${exit.code}`;
    this.#options.say(`the ${this.#options.name} ended (${how}); restarting it`);
    setTimeout(() => {
      if (!this.#stopping) this.#spawn();
    }, waitMs);
  }

  #writeLog(text: string): void {
    if (!this.#logOpen) return;
    try {
      writeSync(this.#log, text);
    } catch {
      // A full disk must not end the supervisor.
    }
  }

  #closeLog(): void {
    if (!this.#logOpen) return;
    this.#logOpen = false;
    closeSync(this.#log);
  }
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null || child.pid === undefined;
}

function openLog(file: string): number {
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > LOG_BYTES_MAX) {
    renameSync(file, path.join(path.dirname(file), `${path.basename(file)}.1`));
  }
  return openSync(file, 'a', 0o600);
}
