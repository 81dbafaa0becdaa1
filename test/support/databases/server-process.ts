import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { findProgram } from '../foreign-program.ts';

const run = promisify(execFile);
const START_MS_MAX = 60_000;
const STOP_MS_MAX = 30_000;
const LOG_LINES_MAX = 40;

/** Servers refuse to run as root, or give their data to another user. */
export interface OrdinaryUser {
  readonly uid: number;
  readonly gid: number;
}

export interface ServerCommand {
  readonly program: string;
  readonly args: readonly string[];
  /** Undefined: this process's user. */
  readonly user?: OrdinaryUser | undefined;
  /** For chroot. */
  readonly root?: string | undefined;
}

export class ServerProcess {
  readonly #command: ServerCommand;
  readonly #name: string;
  readonly #log: string[] = [];
  #child: ChildProcess | undefined;

  constructor(name: string, command: ServerCommand) {
    this.#name = name;
    this.#command = command;
  }

  /** Resolves when a log line has `ready`; `moreArgs` are for this start only. */
  async start(ready: string, moreArgs: readonly string[] = []): Promise<void> {
    const child = spawnBound({ ...this.#command, args: [...this.#command.args, ...moreArgs] });
    this.#child = child;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const fail = (why: string) => reject(new Error(`${this.#name} ${why}:\n${this.logTail()}`));
    const timer = setTimeout(() => fail('did not start in time'), START_MS_MAX);
    child.once('error', error => fail(error.message));
    child.once('exit', (code, signal) => fail(`ended with ${code ?? signal}`));
    createInterface({ input: child.stderr! }).on('line', line => {
      this.#log.push(line);
      if (this.#log.length > LOG_LINES_MAX) this.#log.shift();
      if (line.includes(ready)) resolve();
    });
    try {
      await promise;
    } catch (error) {
      child.kill('SIGKILL');
      throw error;
    } finally {
      clearTimeout(timer);
    }
    child.unref();
    (child.stderr as unknown as { unref(): void }).unref();
  }

  get running(): boolean {
    const child = this.#child;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Also kills a frozen server. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  async stop(): Promise<void> {
    const timer = setTimeout(() => this.#child?.kill('SIGKILL'), STOP_MS_MAX);
    await this.#end('SIGTERM');
    clearTimeout(timer);
  }

  /** Connections stay, and new ones are accepted, but nothing is answered. */
  freeze(): void {
    if (this.running) this.#child?.kill('SIGSTOP');
  }

  logTail(): string {
    return this.#log.join('\n');
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || !this.running) return;
    child.ref();
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
  }
}

export async function runToEnd(command: ServerCommand): Promise<void> {
  const [program, args] = commandLine(command);
  await run(program, args, { maxBuffer: 16 * 1024 * 1024 });
}

/** Ends with this process, even if that is killed. */
function spawnBound(command: ServerCommand): ChildProcess {
  const [program, args] = commandLine(command);
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  // Exit handlers run in their order, and directories are removed later.
  const kill = () => child.kill('SIGKILL');
  process.prependOnceListener('exit', kill);
  child.once('exit', () => process.removeListener('exit', kill));
  return child;
}

/**
 * One process without children, so that its id is the server's. A change of user resets the
 * parent-death signal, so setpriv does both, in that order.
 */
function commandLine({ program, args, user, root }: ServerCommand): [string, string[]] {
  const setpriv = findProgram('setpriv');
  if (setpriv === undefined) {
    if (user !== undefined || root !== undefined) throw new Error('setpriv is not installed');
    return [program, [...args]];
  }
  const as =
    user === undefined
      ? []
      : [`--reuid=${user.uid}`, `--regid=${user.gid}`, '--clear-groups', '--no-new-privs'];
  const bound = [...as, '--pdeathsig', 'KILL', program, ...args];
  return root === undefined ? [setpriv, bound] : ['chroot', [root, 'setpriv', ...bound]];
}
