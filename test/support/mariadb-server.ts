/**
 * Private MariaDB servers for one test process: Debian's `mariadbd` on a temporary directory and a
 * Unix socket, killed when the process ends, however it ends. The tests of a process share one,
 * which starts when the first asks; who kills its server has its own.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const run = promisify(execFile);
const START_MS_MAX = 60_000;

const SMALL = ['--innodb-buffer-pool-size=32M', '--innodb-log-file-size=16M'];
/** What a crash of the machine does to it is not tested here; one of the server loses nothing. */
const WITHOUT_FSYNC = [
  '--innodb-flush-log-at-trx-commit=2',
  '--innodb-doublewrite=0',
  '--innodb-flush-method=nosync',
  '--skip-sync-frm',
];

export interface MariadbOptions {
  /** For measurements: commits survive a crash, as in production. */
  readonly durable?: boolean;
}

/** Undefined: this machine has no MariaDB server. */
export function findMariadb(): { readonly server: string; readonly installer: string } | undefined {
  const server = findProgram('mariadbd');
  const installer = findProgram('mariadb-install-db');
  return server === undefined || installer === undefined ? undefined : { server, installer };
}

let started: Promise<MariadbServer> | undefined;

/** The server's socket. One server a process, shared by all that ask, as the first asked for it. */
export async function startMariadb(options: MariadbOptions = {}): Promise<string> {
  started ??= MariadbServer.create(options);
  return (await started).socket;
}

export class MariadbServer {
  readonly #program: string;
  readonly #options: readonly string[];
  readonly socket: string;
  #child: ChildProcess | undefined;

  private constructor(program: string, options: readonly string[], socket: string) {
    this.#program = program;
    this.#options = options;
    this.socket = socket;
  }

  /** One of the caller's own, running. */
  static async create({ durable = false }: MariadbOptions = {}): Promise<MariadbServer> {
    const programs = findMariadb();
    if (programs === undefined) throw new Error('mariadbd is not installed');
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-mariadb-'));
    const options = [
      '--no-defaults',
      `--datadir=${path.join(directory, 'data')}`,
      // Servers that are installed at once would meet in the machine's own.
      `--tmpdir=${directory}`,
      ...(process.getuid?.() === 0 ? ['--user=root'] : []),
      ...SMALL,
      ...(durable ? [] : WITHOUT_FSYNC),
    ];
    process.once('exit', () => rmSync(directory, { recursive: true, force: true, maxRetries: 5 }));
    await run(programs.installer, [
      ...options,
      '--auth-root-authentication-method=normal',
      '--skip-test-db',
    ]);
    const server = new MariadbServer(programs.server, options, path.join(directory, 's'));
    await server.start();
    return server;
  }

  /** Resolves when it answers. */
  async start(): Promise<void> {
    this.#child = spawnBound(this.#program, [
      ...this.#options,
      '--skip-networking',
      `--socket=${this.socket}`,
      '--innodb-fast-shutdown=2',
      '--max-connections=300',
      // A client on a machine that stands still for a while is not to be given up.
      '--connect-timeout=600',
    ]);
    await untilReady(this.#child);
  }

  /** Resolves when it is gone; `start` brings it back with what was committed. */
  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  }
}

/** Ends with this process: by our own hand, or where we are killed by the kernel's. */
function spawnBound(program: string, options: readonly string[]): ChildProcess {
  const bind = findProgram('setpriv');
  const child =
    bind === undefined
      ? spawn(program, options, { stdio: ['ignore', 'ignore', 'pipe'] })
      : spawn(bind, ['--pdeathsig', 'KILL', program, ...options], {
          stdio: ['ignore', 'ignore', 'pipe'],
        });
  // Before the directory is removed: handlers run in the order they were added, so this goes first.
  process.prependOnceListener('exit', () => child.kill('SIGKILL'));
  return child;
}

function untilReady(child: ChildProcess): Promise<void> {
  const log: string[] = [];
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      child.kill('SIGKILL');
      reject(new Error(`mariadbd ${why}:\n${log.slice(-20).join('\n')}`));
    };
    const timer = setTimeout(() => fail('did not start in time'), START_MS_MAX);
    child.once('error', error => fail(error.message));
    child.once('exit', code => fail(`ended with ${code}`));
    createInterface({ input: child.stderr! }).on('line', line => {
      log.push(line);
      if (!line.includes('ready for connections')) return;
      clearTimeout(timer);
      child.removeAllListeners('exit');
      // Neither the server nor its log keeps the test process alive.
      child.unref();
      (child.stderr as unknown as { unref(): void }).unref();
      resolve();
    });
  });
}

function findProgram(name: string): string | undefined {
  const directories = [...(process.env.PATH ?? '').split(path.delimiter), '/usr/sbin', '/usr/bin'];
  return directories
    .map(directory => path.join(directory, name))
    .find(file => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
