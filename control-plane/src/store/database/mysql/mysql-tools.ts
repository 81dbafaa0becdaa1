/**
 * The engine's own programs for a dump and for what reads one. The password goes by the environment,
 * which other users of the machine cannot see, never as an argument, which they can.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { DatabaseCopyError } from '../copy-error.ts';
import { parseMysqlUrl } from './mysql-url.ts';

/** What a program says when it fails: its first lines. */
const SAID_BYTES_MAX = 4096;
/** Of the process that waits for such a program. */
const ENDING = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

export type MysqlTool = 'dump' | 'client';

/** In the order they are looked for: the names of MariaDB's and of MySQL's. */
const NAMES: Readonly<Record<MysqlTool, readonly [mariadb: string, mysql: string]>> = {
  dump: ['mariadb-dump', 'mysqldump'],
  client: ['mariadb', 'mysql'],
};

export interface ToolPlace {
  readonly databaseUrl: string;
  /** Whether the server is of MariaDB's kind. */
  readonly mariadb: boolean;
  /** PATH. */
  readonly searchPath: string;
}

/**
 * Writes a dump of one state of the whole database into a new file, readable by its owner alone.
 * Resolves when it is durable. @throws DatabaseCopyError
 */
export async function dumpMysql(place: ToolPlace, file: string): Promise<void> {
  const program = await findTool('dump', place);
  const into = await open(file, 'wx', 0o600);
  try {
    await run(program, place, dumpOptions(program), { stdout: into });
    await into.sync();
  } finally {
    await into.close();
  }
}

/** Runs the statements of a dump on an empty database. @throws DatabaseCopyError */
export async function loadMysql(place: ToolPlace, file: string): Promise<void> {
  const program = await findTool('client', place);
  const from = await open(file, constants.O_RDONLY);
  try {
    await run(program, place, ['--batch', '--default-character-set=utf8mb4'], { stdin: from });
  } finally {
    await from.close();
  }
}

/**
 * One snapshot without a lock; nothing that would remove a table, so that a dump that is read into
 * the wrong database fails instead.
 */
function dumpOptions({ isMariadb }: Tool): readonly string[] {
  return [
    '--single-transaction',
    '--quick',
    '--hex-blob',
    '--no-tablespaces',
    '--skip-lock-tables',
    '--skip-add-locks',
    '--skip-add-drop-table',
    '--default-character-set=utf8mb4',
    ...(isMariadb ? [] : ['--set-gtid-purged=OFF', '--column-statistics=0']),
  ];
}

interface Tool {
  readonly file: string;
  /** By its own word: MariaDB installs its programs under MySQL's names, too. */
  readonly isMariadb: boolean;
}

async function findTool(kind: MysqlTool, { mariadb, searchPath }: ToolPlace): Promise<Tool> {
  const [first, second] = NAMES[kind];
  const names = mariadb ? [first, second] : [second, first];
  for (const name of names) {
    for (const directory of searchPath.split(path.delimiter)) {
      const file = path.join(directory, name);
      if (directory !== '' && isProgram(file)) {
        return { file, isMariadb: /mariadb/i.test(await versionOf(file)) };
      }
    }
  }
  throw new DatabaseCopyError(
    `neither ${names.join(' nor ')} is in the PATH: install the database's client programs, or ` +
      'leave the database out (--no-database) and dump it with what you have',
  );
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

async function versionOf(file: string): Promise<string> {
  const child = spawn(file, ['--version'], { stdio: ['ignore', 'pipe', 'ignore'] });
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text;
  });
  await ended(child, file);
  return said;
}

interface Streams {
  readonly stdin?: FileHandle;
  readonly stdout?: FileHandle;
}

async function run(
  tool: Tool,
  { databaseUrl, searchPath }: ToolPlace,
  options: readonly string[],
  { stdin, stdout }: Streams,
): Promise<void> {
  const { args, password, database } = connectionOf(databaseUrl, tool);
  let said = '';
  const start = () => {
    // Nobody's ~/.my.cnf decides what is dumped.
    const child = spawn(tool.file, ['--no-defaults', ...args, ...options, database], {
      env: { PATH: searchPath, MYSQL_PWD: password },
      stdio: [stdin?.fd ?? 'ignore', stdout?.fd ?? 'ignore', 'pipe'],
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      if (said.length < SAID_BYTES_MAX) said += text;
    });
    return child;
  };
  const { code, signal } = await withSignals(start, child => ended(child, tool.file));
  if (signal !== undefined) {
    throw new DatabaseCopyError(`${path.basename(tool.file)} was interrupted (${signal})`);
  }
  if (code === 0) return;
  const lines = said.trim().replaceAll(/\s*\n\s*/g, '; ');
  throw new DatabaseCopyError(`${path.basename(tool.file)} failed (${code}): ${lines}`);
}

/**
 * What ends this process ends the program first, which would go on with the database alone; the
 * process itself is ended by whoever asked for the copy, which is not whole.
 */
async function withSignals(
  start: () => ChildProcess,
  end: (child: ChildProcess) => Promise<number | string>,
) {
  let child: ChildProcess | undefined;
  let signal: NodeJS.Signals | undefined;
  const onSignal = (received: NodeJS.Signals) => {
    signal = received;
    child?.kill('SIGKILL');
  };
  // Before the program is there: a signal that comes while it starts waits for the next turn.
  for (const name of ENDING) process.on(name, onSignal);
  try {
    child = start();
    const code = await end(child);
    return { code, signal };
  } finally {
    for (const name of ENDING) process.off(name, onSignal);
  }
}

/** @returns the exit code, or the name of the signal that ended it */
async function ended(child: ChildProcess, file: string): Promise<number | string> {
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
    return code ?? signal ?? 'unknown';
  } catch (error) {
    throw new DatabaseCopyError(`${file} cannot be run`, error);
  }
}

/** As mysql-url.ts reads the URL, for these programs. */
function connectionOf(databaseUrl: string, { isMariadb }: Tool) {
  const pool = parseMysqlUrl(databaseUrl);
  const parameters = new URL(databaseUrl).searchParams;
  const { host, port, socketPath, user, password = '', database = '' } = pool;
  const place =
    socketPath === undefined
      ? [`--host=${host}`, `--port=${port}`, '--protocol=tcp']
      : [`--socket=${socketPath}`, '--protocol=socket'];
  const files = ['ssl-ca', 'ssl-cert', 'ssl-key'].flatMap(name => {
    const file = parameters.get(name);
    return file === null ? [] : [`--${name}=${file}`];
  });
  const mode = parameters.get('ssl-mode')?.toUpperCase() ?? 'DISABLED';
  const args = [
    `--user=${user}`,
    ...place,
    ...(isMariadb ? mariadbSsl(mode) : [`--ssl-mode=${mode}`]),
  ];
  return { args: [...args, ...files], password: String(password), database };
}

/** MariaDB's programs know no --ssl-mode. */
function mariadbSsl(mode: string): string[] {
  if (mode === 'DISABLED') return ['--skip-ssl'];
  return [
    '--ssl',
    mode === 'REQUIRED' ? '--skip-ssl-verify-server-cert' : '--ssl-verify-server-cert',
  ];
}
