/**
 * Backups of a working service. The order keeps every link alive: copy the blobs, then the
 * database, then the newer blobs. A blob that the copied database names was stored earlier, so one
 * of the two passes has it, unless the service itself removed it meanwhile.
 *
 * A restore needs an empty database and storage. It restores the database (a file under a temporary
 * name), migrates it, and then copies only the pictures that it names: a newer picture may have the
 * name that a job's next attempt takes.
 *
 * `backup.json` is written last, so a directory without it is not a backup. It names the key that
 * sealed the database's secrets, and never contains it.
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
} from '../storage/move-blobs.ts';
import { copySqlite, dumpMysql, loadMysql } from './database-copy.ts';

/** Rises when the program can no longer read older directories. */
const FORMAT = 2;
const MANIFEST = 'backup.json';

interface BackupManifest {
  readonly format: typeof FORMAT;
  readonly version: string;
  /** ISO 8601 UTC, by the database's clock. The backup has all earlier commits. */
  readonly taken_at: string;
  readonly database: BackedUpDatabase | null;
  readonly blobs: { readonly place: string } | null;
  /** null: no control plane has used this database yet. */
  readonly secrets_key_id: string | null;
}

interface BackedUpDatabase {
  /** A database file, or a file of statements. */
  readonly kind: 'sqlite' | 'mysql';
  readonly engine: string;
  /** In the directory of the manifest. */
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** Not a backup, or a damaged one. One line for the operator. */
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

/** Atomic and durable. */
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

/** @throws BackupError: the file has changed */
async function requireWhole(directory: string, { file, bytes, sha256 }: BackedUpDatabase) {
  // A manifest must not point out of its directory.
  if (path.basename(file) !== file)
    throw new BackupError(`${MANIFEST} names a file outside the backup`);
  const copy = path.join(directory, file);
  const found = await measure(copy).catch(error => {
    throw new BackupError(`cannot read ${copy}`, error);
  });
  if (found.bytes === bytes && found.sha256 === sha256) return copy;
  throw new BackupError(
    `${copy} has changed since the backup (its SHA-256 differs); use another backup`,
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
/** Left by an interrupted run, and used by the next. */
const OWN_NAMES: readonly string[] = [SQLITE_FILE, SQL_FILE, 'blobs', 'backup.json.tmp'];

/** A restored service may reuse a fence for another result, so its blobs need a new storage. */
const OTHER_STORAGE_ADVICE = 'name another place with --blobs-to, as after every restore';

interface BackupParts {
  /** The live service's. The engine's program needs the URL's password. */
  readonly database: Database;
  readonly databaseUrl: string;
  readonly withDatabase: boolean;
  readonly blobs:
    | { readonly from: BlobStore; readonly to: BlobStore; readonly location: string }
    | undefined;
  readonly searchPath: string;
  readonly onProgress?: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** The directory must be empty, or left by an interrupted run. @throws BackupError */
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
 * @returns `blobs`: those of the last pass, with the copies of both
 * @throws BackupError, DatabaseCopyError, errors of the database and the storages
 */
export async function takeBackup(directory: string, parts: BackupParts) {
  const { database, blobs, onProgress = () => undefined } = parts;
  let copied: MoveSummary | undefined;
  if (blobs !== undefined) {
    onProgress('copying pictures, first pass');
    copied = await copyAll(parts, blobs, true);
  }
  onProgress(parts.withDatabase ? 'copying the database' : 'the database is left out');
  // Before the copy, so that the copy has everything committed until then.
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
    blobs: blobs === undefined ? null : { place: blobs.location },
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
    const advice = differing === undefined ? 'run the same command again' : OTHER_STORAGE_ADVICE;
    throw new BackupError(`${message}; ${advice}`, first.error);
  }
  if (signal?.aborted) throw new BackupError('interrupted; run the same command again');
  return summary;
}

async function copyDatabase(directory: string, parts: BackupParts): Promise<BackedUpDatabase> {
  const { database, databaseUrl, searchPath } = parts;
  const { dialect: kind, engine } = database;
  const file = kind === 'sqlite' ? SQLITE_FILE : SQL_FILE;
  const copy = path.join(directory, file);
  await rm(copy, { force: true });
  if (kind === 'sqlite') await copySqlite(databaseUrl.slice('sqlite:'.length), copy);
  else {
    const mariadb = /mariadb|galera/i.test(engine.name);
    await dumpMysql({ databaseUrl, mariadb, searchPath }, copy);
  }
  return { kind, engine: engine.name, file, ...(await measure(copy)) };
}

const NAMES_AT_ONCE = 500;

interface RestoreParts {
  readonly manifest: BackupManifest;
  readonly databaseUrl: string;
  readonly searchPath: string;
  readonly log: StoreLog;
  readonly packages: readonly MigrationSeries[];
  readonly blobs: { readonly from: BlobStore; readonly to: BlobStore } | undefined;
  readonly onProgress?: (line: string) => void;
}

/**
 * @returns the migrations that the backup lacked, and the copied blobs
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
  for (const existing of [target, `${target}-wal`]) {
    if (existsSync(existing))
      throw new BackupError(`${existing} exists; restore into another place`);
  }
  makeDirectory(path.dirname(target), 0o700);
  const temporary = `${target}.restoring`;
  const left = [temporary, `${temporary}-wal`, `${temporary}-shm`];
  for (const leftover of left) await rm(leftover, { force: true });
  // Private from the first byte, whatever rights the backup has.
  await pipeline(
    createReadStream(file),
    createWriteStream(temporary, { mode: 0o600, flags: 'wx' }),
  );
  const summary = await withDatabase(`sqlite:${temporary}`, parts, database =>
    complete(database, parts),
  );
  // Closing the last connection has merged the write-ahead log into the file.
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
