/** A process's tests share one server, which ends with the process. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runToEnd, ServerProcess } from './databases/server-process.ts';
import { findProgram } from './foreign-program.ts';

const SMALL = ['--innodb-buffer-pool-size=32M', '--innodb-log-file-size=16M'];
/** Tests crash the server, never the machine. */
export const WITHOUT_FSYNC: readonly string[] = [
  '--innodb-flush-log-at-trx-commit=2',
  '--innodb-doublewrite=0',
  '--innodb-flush-method=nosync',
  '--skip-sync-frm',
];

export interface MariadbOptions {
  /** Commits survive a crash, as in production; for measurements. */
  readonly durable?: boolean;
  readonly listen?: { readonly host: string; readonly port: number };
  readonly options?: readonly string[];
}

export function findMariadb(): { readonly server: string; readonly installer: string } | undefined {
  const server = findProgram('mariadbd');
  const installer = findProgram('mariadb-install-db');
  return server === undefined || installer === undefined ? undefined : { server, installer };
}

let started: Promise<MariadbServer> | undefined;

/** Gives the socket. The first caller's options hold for all of a process. */
export async function startMariadb(options: MariadbOptions = {}): Promise<string> {
  started ??= MariadbServer.create(options);
  return (await started).socket;
}

export class MariadbServer {
  readonly #process: ServerProcess;
  readonly socket: string;

  private constructor(program: string, options: readonly string[], socket: string) {
    const args = [
      ...options,
      `--socket=${socket}`,
      '--innodb-fast-shutdown=2',
      '--max-connections=300',
      // A loaded machine may leave a client silent for long.
      '--connect-timeout=600',
    ];
    this.#process = new ServerProcess('mariadbd', { program, args });
    this.socket = socket;
  }

  static async create({
    durable = false,
    listen,
    options: further = [],
  }: MariadbOptions = {}): Promise<MariadbServer> {
    const programs = findMariadb();
    if (programs === undefined) throw new Error('mariadbd is not installed');
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-mariadb-'));
    const options = [
      '--no-defaults',
      `--datadir=${path.join(directory, 'data')}`,
      // Servers that are installed at once would collide in the system's own.
      `--tmpdir=${directory}`,
      ...(process.getuid?.() === 0 ? ['--user=root'] : []),
      ...SMALL,
      ...(durable ? [] : WITHOUT_FSYNC),
    ];
    process.once('exit', () => rmSync(directory, { recursive: true, force: true, maxRetries: 5 }));
    const install = [...options, '--auth-root-authentication-method=normal', '--skip-test-db'];
    await runToEnd({ program: programs.installer, args: install });
    const network =
      listen === undefined
        ? ['--skip-networking']
        : [`--bind-address=${listen.host}`, `--port=${listen.port}`];
    const socket = path.join(directory, 's');
    const server = new MariadbServer(programs.server, [...options, ...network, ...further], socket);
    await server.start();
    return server;
  }

  start(): Promise<void> {
    return this.#process.start('ready for connections');
  }

  kill(): Promise<void> {
    return this.#process.kill();
  }
}
