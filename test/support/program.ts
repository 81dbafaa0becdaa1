/** A program as its supervisor sees it: output, log, exit code. */

import assert from 'node:assert/strict';
import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { BOUND } from './foreign-program.ts';
import { CHANNEL_ENV, closeChannel, STDIO_WITH_CHANNEL } from './ipc-channel.ts';
import { until } from './processes.ts';
import { STARTED_ENV } from './started-env.ts';

export const ROOT = path.resolve(import.meta.dirname, '../..');

const LINES_MAX = 20_000;
const LINE_MS_MAX = 120_000;
const OUTPUT_CHARACTERS_MAX = 1024 * 1024;

export type Env = Readonly<Record<string, string>>;

export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

export interface ProgramOptions {
  /** 'held': `disconnect` closes it, as if the parent died. */
  readonly channel?: 'held' | 'messages';
  /** `ulimit -n`; default: this process's. */
  readonly openFilesMax?: number | undefined;
  /** A prefix, such as a memory group's. */
  readonly within?: readonly string[] | undefined;
  /** Working directory; default: the project. */
  readonly root?: string;
  /** Default: this process's Node. */
  readonly command?: readonly string[];
}

/** They end before this process removes their directories. */
const RUNNING = new Set<ChildProcess>();
process.prependOnceListener('exit', () => {
  for (const child of RUNNING) child.kill('SIGKILL');
});

export class Program {
  readonly name: string;
  protected args: readonly string[];
  protected root: string;
  readonly #env: Env;
  readonly #options: ProgramOptions;
  #child: ChildProcess | undefined;
  #exited: Promise<number | null> = Promise.resolve(null);
  #lines: LogLine[] = [];
  /** Parsed on demand: a bench shares its cores with this process. */
  #unread: string[] = [];
  /** Standard error since the last start. */
  complaint = '';
  /** Both streams in order, since the last start. */
  output = '';

  /** @param args of Node: the program's file last */
  constructor(name: string, args: readonly string[], env: Env, options: ProgramOptions = {}) {
    this.name = name;
    this.args = args;
    this.root = options.root ?? ROOT;
    this.#env = { ...STARTED_ENV, ...env };
    this.#options = options;
  }

  static async run(args: readonly string[], env: Env, root = ROOT) {
    const program = new Program(path.basename(args[0] ?? ''), args, env, { root });
    program.start();
    const code = await program.exited;
    const { output, complaint } = program;
    return { code, output, complaint };
  }

  /** @param more variables for this start only */
  start(more: Env = {}): void {
    this.#lines = [];
    this.#unread = [];
    this.complaint = '';
    this.output = '';
    const { channel, openFilesMax, within = [], command = [process.execPath] } = this.#options;
    const limited = ['sh', '-c', `ulimit -n ${openFilesMax}; exec "$0" "$@"`];
    const limits = openFilesMax === undefined ? [] : limited;
    const [program = '', ...args] = [...BOUND, ...limits, ...within, ...command, ...this.args];
    const child = spawn(program, args, {
      cwd: this.root,
      env: { ...this.#env, ...(channel === 'held' && CHANNEL_ENV), ...more },
      stdio: stdioWith(channel),
    });
    RUNNING.add(child);
    this.#child = child;
    const output = createInterface({ input: child.stdout! });
    // Not the process's 'close': a child left behind would hold its pipes open.
    const ends = [once(child, 'exit'), once(output, 'close'), once(child.stderr!, 'end')] as const;
    this.#exited = Promise.all(ends).then(([[code, signal]]) => {
      RUNNING.delete(child);
      return signal === 'SIGKILL' ? 137 : (code as number | null);
    });
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        this.output += text;
        if (this.output.length > 2 * OUTPUT_CHARACTERS_MAX) {
          this.output = this.output.slice(-OUTPUT_CHARACTERS_MAX);
        }
        if (stream === child.stderr) this.complaint += text;
      });
    }
    output.on('line', line => {
      // A killed process leaves half a line, and other writers share the stream.
      if (!/^\{.*\}$/.test(line)) return;
      if (this.#unread.length === LINES_MAX) this.#unread.shift();
      this.#unread.push(line);
    });
  }

  /** The latest of its log since its start. */
  get lines(): readonly LogLine[] {
    const read = this.#unread.splice(0).map(line => JSON.parse(line) as LogLine);
    if (read.length > 0) this.#lines = [...this.#lines, ...read].slice(-LINES_MAX);
    return this.#lines;
  }

  get child(): ChildProcess {
    assert.ok(this.#child !== undefined, `${this.name} was never started`);
    return this.#child;
  }

  get pid(): number {
    const { pid } = this.child;
    assert.ok(pid !== undefined, `${this.name} could not be started`);
    return pid;
  }

  get running(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** 137 after SIGKILL. */
  get exited(): Promise<number | null> {
    return this.#exited;
  }

  /** False: it has ended. */
  signal(signal: NodeJS.Signals): boolean {
    return this.running && this.#child?.kill(signal) === true;
  }

  /** As if the parent had died. */
  disconnect(): void {
    closeChannel(this.child);
  }

  async kill(): Promise<void> {
    this.signal('SIGKILL');
    await this.#exited;
  }

  async stop(): Promise<number | null> {
    this.signal('SIGTERM');
    return await this.#exited;
  }

  async restart(more: Env = {}): Promise<void> {
    await this.stop();
    this.start(more);
  }

  /** Rejects if it ends before. */
  async firstLine(): Promise<string> {
    await this.#saying('a first line', () => this.output.includes('\n'));
    return this.output.slice(0, this.output.indexOf('\n'));
  }

  /** The first such line since the start. */
  async line<Fields = object>(
    msg: string | RegExp,
    fields: Readonly<Record<string, unknown>> = {},
  ): Promise<LogLine & Fields> {
    const isIt = (text: string) => (typeof msg === 'string' ? text === msg : msg.test(text));
    let found: LogLine | undefined;
    await this.#saying(String(msg), () => {
      found = this.lines.find(
        line =>
          isIt(line.msg) && Object.entries(fields).every(([name, value]) => line[name] === value),
      );
      return found !== undefined;
    });
    return found as LogLine & Fields;
  }

  async #saying(what: string, isSaid: () => boolean): Promise<void> {
    let ended = false;
    void this.#exited.then(() => {
      ended = true;
    });
    await until(() => isSaid() || ended, {
      timeoutMs: LINE_MS_MAX,
      what: `${this.name} says: ${what}`,
      detail: () => this.logTail(),
    });
    assert.ok(isSaid(), `${this.name} ended before it said: ${what}\n${this.logTail()}`);
  }

  count(msg: string): number {
    return this.lines.filter(line => line.msg === msg).length;
  }

  logTail(): string {
    const last = this.lines.slice(-15).map(line => JSON.stringify(line));
    return [`--- ${this.name}`, ...last, this.complaint].join('\n');
  }
}

function stdioWith(channel: ProgramOptions['channel']): StdioOptions {
  if (channel === 'held') return STDIO_WITH_CHANNEL;
  return ['ignore', 'pipe', 'pipe', ...(channel === 'messages' ? (['ipc'] as const) : [])];
}
