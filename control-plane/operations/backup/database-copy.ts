/**
 * A database copied, and read back, by its engine's own means: SQLite's backup, or the programs of
 * MySQL and MariaDB for a dump. A program's password goes by the environment, which other users of
 * the machine cannot see, never as an argument, which they can.
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

/** A database was not copied, or read back, by its engine's means. One line for the operator. */
export class DatabaseCopyError extends CommandError {
  constructor(detail: string, cause?: unknown) {
    super(detail, cause);
    this.name = 'DatabaseCopyError';
  }
}

/** So many pages of 4 KiB pass between two ticks of the event loop: some milliseconds. */
const PAGES_A_STEP = 1000;
/** A process that is just switching the file to WAL holds its lock for this long at most. */
const BUSY_MS_MAX = 5000;

/**
 * Copies a SQLite file while other processes read and write it. The copy is made within one read
 * transaction, so it has what was committed when it began: without one, SQLite's own backup begins
 * again with each commit of another process, and under load never ends.
 *
 * Resolves when the copy is whole, checked and durable. `to` must not be there, and is not where it
 * rejects; only its owner can read it, from its first byte. While it is made the write-ahead log of
 * `from` grows with what is written meanwhile.
 * @throws SQLite's errors; DatabaseCopyError
 */
export async function copySqlite(from: string, to: string): Promise<void> {
  // SQLite fills an empty file that is there, and keeps its rights: one that it makes itself is
  // readable by others, as the process's mask allows.
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
  // The source is not read-only, since the last one to leave a file in WAL mode has to tidy it.
  using source = new DatabaseSync(from, { timeout: BUSY_MS_MAX });
  source.exec('begin');
  source.prepare('select count(*) from sqlite_schema').get();
  await backup(source, to, { rate: PAGES_A_STEP });
  source.exec('rollback');
}

function requireSound(file: string): void {
  using copy = new DatabaseSync(file);
  // The copy is one file that stands alone, with no log beside it.
  copy.exec('pragma journal_mode = delete');
  const said = copy.prepare('pragma integrity_check(1)').get() as { integrity_check: string };
  if (said.integrity_check !== 'ok')
    throw new DatabaseCopyError(`the copy of the database is damaged: ${said.integrity_check}`);
}

const SAID_BYTES_MAX = 4096;
/** The programs of MariaDB and MySQL print this for a statement that the server refuses. */
const ERROR_LINE = /^ERROR (\d+) \(\w+\)/m;
/** Signals that end the process which waits for such a program. */
const ENDING = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const;

type MysqlTool = 'dump' | 'client';

/** The search tries MariaDB's name first, then MySQL's. */
const NAMES: Readonly<Record<MysqlTool, readonly [mariadb: string, mysql: string]>> = {
  dump: ['mariadb-dump', 'mysqldump'],
  client: ['mariadb', 'mysql'],
};

interface ToolPlace {
  readonly databaseUrl: string;
  readonly mariadb: boolean;
  readonly searchPath: string;
}

/**
 * Writes a dump of one state of the whole database into a new file, readable by its owner alone.
 * Resolves when it is durable. @throws DatabaseCopyError
 */
export async function dumpMysql(place: ToolPlace, file: string): Promise<void> {
  const program = await findTool('dump', place);
  await using into = await open(file, 'wx', 0o600);
  await run(program, place, dumpOptions(program), { stdout: into });
  await into.sync();
}

export async function loadMysql(place: ToolPlace, file: string): Promise<void> {
  const program = await findTool('client', place);
  await using from = await open(file, constants.O_RDONLY);
  await run(program, place, ['--batch', '--default-character-set=utf8mb4'], { stdin: from });
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
  /** The program says so itself, since MariaDB also installs its programs under MySQL's names. */
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
    // No ~/.my.cnf decides what is dumped.
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
  const denied = ERROR_LINE.exec(said)?.[1];
  if (isDenied(Number(denied))) {
    throw new DatabaseCopyError(
      `${path.basename(tool.file)} failed (${code}): ${CHANGES_NO_TABLE}`,
    );
  }
  const lines = said.trim().replaceAll(/\s*\n\s*/g, '; ');
  throw new DatabaseCopyError(`${path.basename(tool.file)} failed (${code}): ${lines}`);
}

/**
 * A signal that ends this process ends the program first, which would go on with the database
 * alone. The caller, whose copy is not whole, then ends the process itself.
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
  // Handlers precede the program, so that a signal that comes while it starts waits for the next
  // tick.
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
    throw new DatabaseCopyError(`cannot run ${file}`, error);
  }
}

/** Reads the URL as connect.ts does, for these programs. */
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

/** MariaDB's programs do not know --ssl-mode. */
function mariadbSsl(mode: string): string[] {
  if (mode === 'DISABLED') return ['--skip-ssl'];
  return [
    '--ssl',
    mode === 'REQUIRED' ? '--skip-ssl-verify-server-cert' : '--ssl-verify-server-cert',
  ];
}
