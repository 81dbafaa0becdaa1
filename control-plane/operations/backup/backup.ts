/**
 * Takes a backup while the service works, and makes one a service's database and storage again.
 *
 * Taking keeps every link alive by its order: blobs, then the database, then the blobs that came
 * meanwhile. What the database's state names was stored before that state, so it is among the blobs
 * of one of the two passes, but for what the service itself removed in between (an input whose job
 * ended, a result whose link did): nobody asks for those.
 *
 * Restoring wants both places empty: the database first, under a name nobody opens where it is a
 * file; then its schema is brought up to date; then the pictures that it names, and no others. A
 * picture that came after the database's state may have the name that a job's next attempt takes.
 *
 * `backup.json` is written last: a directory without it is no backup. It names the key that the
 * database's secrets were sealed with, and never holds it.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream, existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { CommandError } from '@matting/core/cli/context.ts';
import { createStores, type StoresWithoutEnds } from '@matting/core/stores.ts';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database, StoreLog } from '@matting/database/database.ts';
import { hasSchema, type MigrationSeries, migrate } from '@matting/database/migrate.ts';
import { hasTables, probeDatabase } from '@matting/database/probe.ts';
import { makeDirectory, syncPath } from '@matting/program/files.ts';
import { VERSION } from '@matting/program/version.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import {
  CopyDiffersError,
  type MovedFrom,
  type MoveSummary,
  moveBlobs,
} from '../storage/storage-commands.ts';
import { copySqlite, dumpMysql, loadMysql } from './database-copy.ts';

/** The number rises when the program can no longer read earlier directories. */
const FORMAT = 2;
const MANIFEST = 'backup.json';

interface BackupManifest {
  readonly format: typeof FORMAT;
  readonly version: string;
  /** ISO 8601 UTC, by the database's clock; the backup has what was committed until then. */
  readonly taken_at: string;
  readonly database: BackedUpDatabase | null;
  readonly blobs: { readonly place: string } | null;
  /** Null: no control plane has started on this database yet. */
  readonly secrets_key_id: string | null;
}

interface BackedUpDatabase {
  /** sqlite is a database file; mysql is a file of statements. */
  readonly kind: 'sqlite' | 'mysql';
  readonly engine: string;
  /** The file lies beside the manifest. */
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
}

/**
 * The directory is not a backup, or is damaged. The operator reads one line with the system's
 * reason.
 */
class BackupError extends CommandError {
  constructor(detail: string, cause?: unknown) {
    const reason = cause instanceof Error ? cause.message : '';
    super(reason === '' ? detail : `${detail}: ${reason}`, cause);
    this.name = 'BackupError';
  }
}

function manifestPath(directory: string): string {
  return path.join(directory, MANIFEST);
}

/** Writes it whole or not at all, and durably. */
async function writeManifest(directory: string, manifest: Omit<BackupManifest, 'format'>) {
  const temporary = path.join(directory, `${MANIFEST}.tmp`);
  const text = `${JSON.stringify({ format: FORMAT, ...manifest }, undefined, 2)}\n`;
  await writeFile(temporary, text, { mode: 0o600, flush: true });
  await rename(temporary, manifestPath(directory));
  await syncPath(directory);
}

export async function readManifest(directory: string): Promise<BackupManifest> {
  let text: string;
  try {
    text = await readFile(manifestPath(directory), 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new BackupError(
      `${directory} has no finished backup; cannot read ${MANIFEST} (${code})`,
      error,
    );
  }
  const manifest = parse(text);
  if (manifest?.format === FORMAT) return manifest;
  throw new BackupError(
    `${manifestPath(directory)} is from another version; restore it with that version`,
  );
}

function parse(text: string): BackupManifest | undefined {
  try {
    return JSON.parse(text) as BackupManifest;
  } catch {
    return undefined;
  }
}

/** @throws BackupError if the file is not as it was written */
async function requireWhole(directory: string, { file, bytes, sha256 }: BackedUpDatabase) {
  // The manifest must hold a bare name, never a path out of the directory.
  if (path.basename(file) !== file)
    throw new BackupError(`${MANIFEST} names a file outside the backup`);
  const place = path.join(directory, file);
  const found = await measure(place).catch(error => {
    throw new BackupError(`cannot read ${place}`, error);
  });
  if (found.bytes === bytes && found.sha256 === sha256) return place;
  throw new BackupError(
    `${place} has changed since the backup (its SHA-256 differs); use another backup`,
  );
}

async function measure(file: string): Promise<Pick<BackedUpDatabase, 'bytes' | 'sha256'>> {
  const { size: bytes } = await stat(file);
  const hash = createHash('sha256');
  for await (const piece of createReadStream(file)) hash.update(piece as Buffer);
  return { bytes, sha256: hash.digest('hex') };
}

const SQLITE_FILE = 'database.sqlite';
const SQL_FILE = 'database.sql';
/** An interrupted run leaves these, and the next run continues with them. */
const OWN_NAMES: readonly string[] = [SQLITE_FILE, SQL_FILE, 'blobs', 'backup.json.tmp'];

/** A restored service may use a fence for a result that the service of before used for another. */
const ANOTHER_PLACE = 'name another place with --blobs-to, as after every restore';

interface BackupParts {
  /** The database and URL are the live service's; the engine's program needs the URL's password. */
  readonly database: Database;
  readonly databaseUrl: string;
  readonly withDatabase: boolean;
  readonly blobs:
    | { readonly from: BlobStore; readonly to: BlobStore; readonly place: string }
    | undefined;
  readonly searchPath: string;
  readonly onProgress?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** Leaves the directory empty or with what an interrupted run left. @throws BackupError */
export async function prepareDirectory(directory: string): Promise<void> {
  const names = await mkdir(directory, { recursive: true, mode: 0o700 })
    .then(() => readdir(directory))
    .catch(error => {
      throw new BackupError(`${directory} cannot be used`, error);
    });
  if (names.includes(path.basename(manifestPath(directory)))) {
    throw new BackupError(`${directory} has a finished backup; name another directory`);
  }
  const others = names.filter(name => !OWN_NAMES.includes(name));
  if (others.length > 0) throw new BackupError(`${directory} is not empty; name another directory`);
}

/**
 * @returns `blobs` are those of the last pass, with the copies of both
 * @throws BackupError; DatabaseCopyError; errors of the database and of the storages
 */
export async function takeBackup(directory: string, parts: BackupParts) {
  const { database, blobs, onProgress = () => undefined } = parts;
  let copied: MoveSummary | undefined;
  if (blobs !== undefined) {
    onProgress('copying pictures, first pass');
    copied = await copyAll(parts, blobs, true);
  }
  onProgress(parts.withDatabase ? 'copying the database' : 'the database is left out');
  // The time precedes the copy, so that the copy holds everything committed by then.
  const takenAtMs = Date.now() + (await probeDatabase(database)).clockAheadMs;
  const backedUp = parts.withDatabase ? await copyDatabase(directory, parts) : null;
  const canary = await createStores(database).secretsCanary.find();
  if (blobs !== undefined) {
    onProgress('copying pictures, second pass');
    const second = await copyAll(parts, blobs, false);
    copied = { ...second, ...sumOf(copied, second) };
  }
  const manifest = {
    version: VERSION,
    taken_at: new Date(takenAtMs).toISOString(),
    database: backedUp,
    blobs: blobs === undefined ? null : { place: blobs.place },
    secrets_key_id: canary?.keyId ?? null,
  };
  await writeManifest(directory, manifest);
  return { manifest: { format: 2 as const, ...manifest }, blobs: sumOf(undefined, copied) };
}

function sumOf(one: MoveSummary | undefined, other: MoveSummary | undefined) {
  const sum = (key: 'copied' | 'copiedBytes' | 'alreadyThere') =>
    (one?.[key] ?? 0) + (other?.[key] ?? 0);
  return {
    copied: sum('copied'),
    copiedBytes: sum('copiedBytes'),
    alreadyThere: sum('alreadyThere'),
  };
}

async function copyAll(
  { signal }: BackupParts,
  { from, to }: NonNullable<BackupParts['blobs']>,
  prove: boolean,
): Promise<MoveSummary> {
  const summary = await moveBlobs(from, to, { prove, ...(signal && { signal }) });
  const { failures } = summary;
  const differing = failures.find(({ error }) => error instanceof CopyDiffersError);
  const first = differing ?? failures[0];
  if (first !== undefined) {
    const message = `${failures.length} pictures were not copied (${first.name})`;
    const advice = differing === undefined ? 'run the same command again' : ANOTHER_PLACE;
    throw new BackupError(`${message}; ${advice}`, first.error);
  }
  if (signal?.aborted) throw new BackupError('interrupted; run the same command again');
  return summary;
}

async function copyDatabase(directory: string, parts: BackupParts): Promise<BackedUpDatabase> {
  const { database, databaseUrl, searchPath } = parts;
  const { dialect: kind, engine } = database;
  const file = kind === 'sqlite' ? SQLITE_FILE : SQL_FILE;
  const place = path.join(directory, file);
  await rm(place, { force: true });
  if (kind === 'sqlite') await copySqlite(databaseUrl.slice('sqlite:'.length), place);
  else {
    const mariadb = /mariadb|galera/i.test(engine.name);
    await dumpMysql({ databaseUrl, mariadb, searchPath }, place);
  }
  return { kind, engine: engine.name, file, ...(await measure(place)) };
}

const NAMES_AT_ONCE = 500;

interface RestoreParts {
  readonly manifest: BackupManifest;
  readonly databaseUrl: string;
  readonly searchPath: string;
  readonly log: StoreLog;
  /** The packages expect these tables. */
  readonly packages: readonly MigrationSeries[];
  readonly blobs: { readonly from: BlobStore; readonly to: BlobStore } | undefined;
  readonly onProgress?: (line: string) => void;
}

/**
 * @returns the migrations of this version that the backup did not have yet, and what was copied
 * @throws BackupError, DatabaseCopyError, DatabaseOpenError, SchemaError
 */
export async function restoreBackup(directory: string, parts: RestoreParts) {
  const { manifest, databaseUrl, onProgress = () => undefined } = parts;
  if (manifest.database === null) return restoreBlobsAlone(parts);
  const file = await requireWhole(directory, manifest.database);
  onProgress('restoring the database');
  const kind = databaseUrl.startsWith('sqlite:') ? 'sqlite' : 'mysql';
  if (manifest.database.kind !== kind) {
    throw new BackupError(
      `the backup is of ${manifest.database.engine}; set MATTING_DATABASE_URL to a database of this kind`,
    );
  }
  return kind === 'sqlite' ? restoreFile(file, parts) : restoreServer(file, parts);
}

async function restoreBlobsAlone(parts: RestoreParts) {
  return await withDatabase(parts.databaseUrl, parts, async database => {
    if (!(await hasSchema(database, parts.packages))) {
      throw new BackupError(
        'the backup has no database, and neither has this service; restore the database with the ' +
          'tools of its engine first',
      );
    }
    return await complete(database, parts);
  });
}

async function restoreServer(file: string, parts: RestoreParts) {
  const { databaseUrl, searchPath } = parts;
  return await withDatabase(databaseUrl, parts, async database => {
    if (await hasTables(database)) {
      throw new BackupError('the database has tables; restore into an empty one');
    }
    const mariadb = /mariadb|galera/i.test(database.engine.name);
    await loadMysql({ databaseUrl, mariadb, searchPath }, file);
    return await complete(database, parts);
  });
}

async function restoreFile(file: string, parts: RestoreParts) {
  const target = parts.databaseUrl.slice('sqlite:'.length);
  for (const place of [target, `${target}-wal`]) {
    if (existsSync(place)) throw new BackupError(`${place} exists; restore into another place`);
  }
  makeDirectory(path.dirname(target), 0o700);
  const temporary = `${target}.restoring`;
  const left = [temporary, `${temporary}-wal`, `${temporary}-shm`];
  for (const place of left) await rm(place, { force: true });
  // Only its owner can read it from its first byte, whatever rights the backup came back with.
  await pipeline(
    createReadStream(file),
    createWriteStream(temporary, { mode: 0o600, flags: 'wx' }),
  );
  const summary = await withDatabase(`sqlite:${temporary}`, parts, database =>
    complete(database, parts),
  );
  // The last connection has brought the write-ahead log into the file and removed it.
  await syncPath(temporary);
  await rename(temporary, target);
  await syncPath(path.dirname(target));
  return summary;
}

async function withDatabase<T>(
  databaseUrl: string,
  { log }: RestoreParts,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  await using closing = new AsyncDisposableStack();
  const database = await openDatabase(databaseUrl, { log });
  closing.defer(() => database.close());
  return await work(database);
}

async function complete(database: Database, parts: RestoreParts) {
  const { blobs, onProgress = () => undefined } = parts;
  const migrations = await migrate(database, parts.packages);
  if (blobs === undefined) return { migrations, blobs: undefined };
  onProgress('copying the pictures that it names');
  const { jobs } = createStores(database);
  const summary = await moveBlobs(namedBlobs(blobs.from, jobs), blobs.to);
  const [first] = summary.failures;
  if (first !== undefined) {
    const count = summary.failures.length;
    throw new BackupError(`${count} pictures were not copied, first ${first.name}`, first.error);
  }
  const { copied, copiedBytes, alreadyThere } = summary;
  return { migrations, blobs: { copied, copiedBytes, alreadyThere } };
}

/** Lists the blobs of a store that a job names. */
function namedBlobs(from: BlobStore, jobs: StoresWithoutEnds['jobs']): MovedFrom {
  return {
    async *listOlderThan(olderThanMs) {
      let names: string[] = [];
      for await (const name of from.listOlderThan(olderThanMs)) {
        names.push(name);
        if (names.length < NAMES_AT_ONCE) continue;
        yield* await jobs.referencedBlobs(names);
        names = [];
      }
      yield* await jobs.referencedBlobs(names);
    },
    openRead: name => from.openRead(name),
    remove: name => from.remove(name),
  };
}
