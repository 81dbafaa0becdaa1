/**
 * Copies a database with SQLite's backup or the dump programs of MySQL and MariaDB. Passwords are
 * passed in the environment: other users of the machine see arguments.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import path from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { CommandError } from '@matting/core/cli/context.ts';
import { parseMysqlUrl } from '@matting/database/connect.ts';
import { CHANGES_NO_TABLE, isDenied } from '@matting/database/engines.ts';
import { syncPath } from '@matting/program/files.ts';

/** One line for the operator. */
export class DatabaseCopyError extends CommandError {
  constructor(detail: string, cause?: unknown) {
    super(detail, cause);
    this.name = 'DatabaseCopyError';
  }
}

/** Pages of 4 KiB between two ticks of the event loop: some milliseconds. */
const PAGES_A_STEP = 1000;
/** Longest lock of a process that switches the file to WAL. */
const BUSY_MS_MAX = 5000;

/**
 * Copies a SQLite file that other processes use. It holds a read transaction, because SQLite's
 * backup restarts after each commit of another process and would never end under load. Meanwhile
 * the write-ahead log of `from` grows.
 *
 * Resolves when the copy is checked and durable. `to` must not exist, and does not if this rejects.
 * @throws errors of SQLite; DatabaseCopyError
 */
export async function copySqlite(from: string, to: string): Promise<void> {
  // SQLite fills an existing empty file and keeps its rights. A file that it creates itself may be
  // readable by others.
  await (await open(to, 'wx', 0o600)).close();
  try {
    await fill(from, to);
    requireSound(to);
    await syncPath(to);
  } catch (error) {
    await rm(to, { force: true });
    throw error;
  }
}

async function fill(from: string, to: string): Promise<void> {
  // Not read-only: the last connection to a WAL file must tidy it.
  using source = new DatabaseSync(from, { timeout: BUSY_MS_MAX });
  source.exec('begin');
  source.prepare('select count(*) from sqlite_schema').get();
  await backup(source, to, { rate: PAGES_A_STEP });
  source.exec('rollback');
}

function requireSound(file: string): void {
  using copy = new DatabaseSync(file);
  // A single file without a log.
  copy.exec('pragma journal_mode = delete');
  const result = copy.prepare('pragma integrity_check(1)').get() as { integrity_check: string };
  if (result.integrity_check !== 'ok')
    throw new DatabaseCopyError(`the copy of the database is damaged: ${result.integrity_check}`);
}

const STDERR_BYTES_MAX = 4096;
/** Printed by the programs of MariaDB and MySQL for a refused statement. */
const ERROR_LINE = /^ERROR (\d+) \(\w+\)/m;
/** Signals that end the waiting process. */
const ENDING = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

type MysqlTool = 'dump' | 'client';

const NAMES: Readonly<Record<MysqlTool, readonly [mariadb: string, mysql: string]>> = {
  dump: ['mariadb-dump', 'mysqldump'],
  client: ['mariadb', 'mysql'],
};

interface ToolTarget {
  readonly databaseUrl: string;
  readonly mariadb: boolean;
  readonly searchPath: string;
}

/**
 * Dumps one state of the database into a new, private file. Resolves when it is durable. @throws
 * DatabaseCopyError
 */
export async function dumpMysql(target: ToolTarget, file: string): Promise<void> {
  const program = await findTool('dump', target);
  await using into = await open(file, 'wx', 0o600);
  await run(program, target, dumpOptions(program), { stdout: into });
  await into.sync();
}

export async function loadMysql(target: ToolTarget, file: string): Promise<void> {
  const program = await findTool('client', target);
  await using from = await open(file, constants.O_RDONLY);
  await run(program, target, ['--batch', '--default-character-set=utf8mb4'], { stdin: from });
}

/** One snapshot without locks. Drops no table, so a dump loaded into the wrong database fails. */
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
  /** Read from the program's version: MariaDB also installs under MySQL's names. */
  readonly isMariadb: boolean;
}

async function findTool(kind: MysqlTool, { mariadb, searchPath }: ToolTarget): Promise<Tool> {
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
    `neither ${names.join(' nor ')} is in the PATH; install the database's client programs, or ` +
      'use --no-database and dump the database yourself',
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
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  await ended(child, file);
  return output;
}

interface Streams {
  readonly stdin?: FileHandle;
  readonly stdout?: FileHandle;
}

async function run(
  tool: Tool,
  { databaseUrl, searchPath }: ToolTarget,
  options: readonly string[],
  { stdin, stdout }: Streams,
): Promise<void> {
  const { args, password, database } = connectionOf(databaseUrl, tool);
  let errors = '';
  const start = () => {
    // Ignores ~/.my.cnf.
    const child = spawn(tool.file, ['--no-defaults', ...args, ...options, database], {
      env: { PATH: searchPath, MYSQL_PWD: password },
      stdio: [stdin?.fd ?? 'ignore', stdout?.fd ?? 'ignore', 'pipe'],
    });
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      if (errors.length < STDERR_BYTES_MAX) errors += text;
    });
    return child;
  };
  const { code, signal } = await withSignals(start, child => ended(child, tool.file));
  if (signal !== undefined) {
    throw new DatabaseCopyError(`${path.basename(tool.file)} was interrupted (${signal})`);
  }
  if (code === 0) return;
  const denied = ERROR_LINE.exec(errors)?.[1];
  if (isDenied(Number(denied))) {
    throw new DatabaseCopyError(
      `${path.basename(tool.file)} failed (${code}): ${CHANGES_NO_TABLE}`,
    );
  }
  const lines = errors.trim().replaceAll(/\s*\n\s*/g, '; ');
  throw new DatabaseCopyError(`${path.basename(tool.file)} failed (${code}): ${lines}`);
}

/**
 * A signal to this process first ends the program, which would otherwise continue alone. The caller
 * discards its copy and then ends the process.
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
  // Installed before the program starts, so that no signal is missed.
  for (const name of ENDING) process.on(name, onSignal);
  try {
    child = start();
    const code = await end(child);
    return { code, signal };
  } finally {
    for (const name of ENDING) process.off(name, onSignal);
  }
}

/** @returns the exit code, or the name of the ending signal */
async function ended(child: ChildProcess, file: string): Promise<number | string> {
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
    return code ?? signal ?? 'unknown';
  } catch (error) {
    throw new DatabaseCopyError(`cannot run ${file}`, error);
  }
}

/** Reads the URL as connect.ts does. */
function connectionOf(databaseUrl: string, { isMariadb }: Tool) {
  const pool = parseMysqlUrl(databaseUrl);
  const parameters = new URL(databaseUrl).searchParams;
  const { host, port, socketPath, user, password = '', database = '' } = pool;
  const endpoint =
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
    ...endpoint,
    ...(isMariadb ? mariadbSsl(mode) : [`--ssl-mode=${mode}`]),
  ];
  return { args: [...args, ...files], password: String(password), database };
}

/** MariaDB's programs do not know --ssl-mode. */
function mariadbSsl(mode: string): string[] {
  if (mode === 'DISABLED') return ['--skip-ssl'];
  return [
    '--ssl',
    mode === 'REQUIRED' ? '--skip-ssl-verify-server-cert' : '--ssl-verify-server-cert',
  ];
}
