/** A database server that a test can kill, freeze and start; it ends with the test. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { findProgram } from '../foreign-program.ts';

const run = promisify(execFile);
const START_MS_MAX = 60_000;
/** A server that does not end by itself in this time after SIGTERM is killed. */
const STOP_MS_MAX = 30_000;
const LOG_LINES_MAX = 40;

/** An ordinary user: servers refuse to run as root, or hand data on as somebody else. */
export interface OrdinaryUser {
  readonly uid: number;
  readonly gid: number;
}

export interface ServerCommand {
  readonly program: string;
  readonly args: readonly string[];
  /** Undefined: it runs as the user of this process. */
  readonly user?: OrdinaryUser | undefined;
  /** The program and its files lie in this directory as in a system of its own. */
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

  /** Resolves when a line of its log has `ready`; `moreArgs` are for this start only. */
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
    // Neither the server nor its log keeps the test process alive.
    child.unref();
    (child.stderr as unknown as { unref(): void }).unref();
  }

  get running(): boolean {
    const child = this.#child;
    return child !== undefined && child.exitCode === null && child.signalCode === null;
  }

  /** Kills it as a crash would. Resolves when it is gone; one that is frozen dies as well. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Stops it as its administrator would. */
  async stop(): Promise<void> {
    const timer = setTimeout(() => this.#child?.kill('SIGKILL'), STOP_MS_MAX);
    await this.#end('SIGTERM');
    clearTimeout(timer);
  }

  /** Until it is killed the server holds its connections and takes new ones, and answers nothing. */
  freeze(): void {
    if (this.running) this.#child?.kill('SIGSTOP');
  }

  /** Gives the log's last lines for a failure's message. */
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

/** A program of the server's family that ends by itself: to install the first data. */
export async function runToEnd(command: ServerCommand): Promise<void> {
  const [program, args] = commandLine(command);
  await run(program, args, { maxBuffer: 16 * 1024 * 1024 });
}

/** Ends with this process: by our own hand, or where we are killed by the kernel's. */
function spawnBound(command: ServerCommand): ChildProcess {
  const [program, args] = commandLine(command);
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  // Before directories are removed: handlers run in the order they were added.
  const kill = () => child.kill('SIGKILL');
  process.prependOnceListener('exit', kill);
  child.once('exit', () => process.removeListener('exit', kill));
  return child;
}

/**
 * One process from here to the server, so that its id is the server's. A change of user makes the
 * kernel forget whom a process follows, so both are setpriv's work, which does them in that order.
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
