/** A program of the service as its supervisor sees it: its log, its exit code, its last words. */

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { BOUND } from './foreign-program.ts';
import { CHANNEL_ENV, closeChannel, STDIO_WITH_CHANNEL } from './ipc-channel.ts';
import { until } from './processes.ts';
import { STARTED_ENV } from './started-env.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');

const LINES_MAX = 20_000;
const LINE_MS_MAX = 120_000;

export type Env = Readonly<Record<string, string>>;

export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export interface ProgramOptions {
  /** Gives it a parent's channel, which `disconnect` closes. */
  readonly channel?: boolean;
  /** `ulimit -n`; that of this process where absent. */
  readonly openFilesMax?: number | undefined;
  /** A command behind which it starts, such as a memory group's. */
  readonly within?: readonly string[] | undefined;
}

export class Program {
  readonly name: string;
  readonly #args: readonly string[];
  readonly #env: Env;
  readonly #options: ProgramOptions;
  #child: ChildProcess | undefined;
  #exited: Promise<number | null> = Promise.resolve(null);
  /** The last of its log, since its start. */
  lines: LogLine[] = [];
  /** Standard error since the last start. */
  complaint = '';

  /** @param args of Node: the program's file last */
  constructor(name: string, args: readonly string[], env: Env, options: ProgramOptions = {}) {
    this.name = name;
    this.#args = args;
    this.#env = { ...STARTED_ENV, ...env };
    this.#options = options;
  }

  /** @param more variables of this start alone */
  start(more: Env = {}): void {
    this.lines = [];
    this.complaint = '';
    const { channel, openFilesMax, within = [] } = this.#options;
    const limited = ['sh', '-c', `ulimit -n ${openFilesMax}; exec "$0" "$@"`];
    const limits = openFilesMax === undefined ? [] : limited;
    const [program = '', ...args] = [
      ...BOUND,
      ...limits,
      ...within,
      process.execPath,
      ...this.#args,
    ];
    const child = spawn(program, args, {
      cwd: ROOT,
      env: { ...this.#env, ...(channel && CHANNEL_ENV), ...more },
      stdio: channel ? STDIO_WITH_CHANNEL : ['ignore', 'pipe', 'pipe'],
    });
    const kill = () => child.kill('SIGKILL');
    process.prependOnceListener('exit', kill);
    this.#child = child;
    this.#exited = new Promise(resolve => {
      child.once('close', (code, signal) => {
        process.removeListener('exit', kill);
        resolve(signal === 'SIGKILL' ? 137 : code);
      });
    });
    child.stderr!.setEncoding('utf8').on('data', text => {
      this.complaint += text;
    });
    createInterface({ input: child.stdout! }).on('line', line => {
      // A process that is killed leaves its last line unfinished.
      if (!line.endsWith('}')) return;
      if (this.lines.length === LINES_MAX) this.lines.shift();
      this.lines.push(JSON.parse(line));
    });
  }

  get pid(): number {
    const pid = this.#child?.pid;
    assert.ok(pid !== undefined, `${this.name} was never started`);
    return pid;
  }

  get running(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** The exit code; 137 after SIGKILL. */
  get exited(): Promise<number | null> {
    return this.#exited;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** Closes the channel, as if the program's parent had died. */
  disconnect(): void {
    if (this.#child !== undefined) closeChannel(this.#child);
  }

  async kill(): Promise<void> {
    if (this.running) this.signal('SIGKILL');
    await this.#exited;
  }

  async stop(): Promise<number | null> {
    if (this.running) this.signal('SIGTERM');
    return await this.#exited;
  }

  /** @param more as of `start` */
  async restart(more: Env = {}): Promise<void> {
    await this.stop();
    this.start(more);
  }

  /** The first line of its log with this message, and these fields, since its start. */
  async line<Fields = object>(
    msg: string | RegExp,
    fields: Readonly<Record<string, unknown>> = {},
  ): Promise<LogLine & Fields> {
    const isIt = (text: string) => (typeof msg === 'string' ? text === msg : msg.test(text));
    let found: LogLine | undefined;
    await until(
      () => {
        found = this.lines.find(
          line =>
            isIt(line.msg) && Object.entries(fields).every(([name, value]) => line[name] === value),
        );
        return found !== undefined;
      },
      { timeoutMs: LINE_MS_MAX, what: `${this.name} says: ${msg}`, detail: () => this.logTail() },
    );
    return found as LogLine & Fields;
  }

  count(msg: string): number {
    return this.lines.filter(line => line.msg === msg).length;
  }

  logTail(): string {
    const last = this.lines.slice(-15).map(line => JSON.stringify(line));
    return [`--- ${this.name}`, ...last, this.complaint].join('\n');
  }
}
