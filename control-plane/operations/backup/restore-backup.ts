/**
 * A backup becomes a service's database and storage, both of which must be empty of anything else:
 * the database first, under a name nobody opens where it is a file; then its schema is brought up
 * to date; then the pictures that it names, and no others. A picture that came after the database's
 * state may have the name that a job's next attempt takes for its result.
 */
import { createReadStream, createWriteStream, existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { makeDirectory, syncPath } from '#program/files.ts';
import type { JobStore } from '../../core/jobs/job-store.ts';
import type { BlobStore } from '../../core/storage/blob-store.ts';
import { createStores } from '../../core/stores.ts';
import { openDatabase } from '../../database/connect.ts';
import type { Database, StoreLog } from '../../database/database.ts';
import { hasSchema, type MigrationSeries, migrate } from '../../database/migrate.ts';
import { hasTables } from '../../database/probe.ts';
import { type MovedFrom, moveBlobs } from '../storage/move-blobs.ts';
import { BackupError, type BackupManifest, requireWhole } from './backup-manifest.ts';
import { loadMysql } from './database-copy.ts';

/** Names that are asked about in one go. */
const NAMES_AT_ONCE = 500;

export interface RestoreParts {
  readonly manifest: BackupManifest;
  readonly databaseUrl: string;
  /** Where the engine's programs are. */
  readonly searchPath: string;
  readonly log: StoreLog;
  /** Of the packages whose tables are expected. */
  readonly packages: readonly MigrationSeries[];
  /** Undefined: no pictures are copied. */
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
      `the backup is of ${manifest.database.engine}, and MATTING_DATABASE_URL names another kind`,
    );
  }
  return kind === 'sqlite' ? restoreFile(file, parts) : restoreServer(file, parts);
}

/** Its database was restored by the engine's own means before. */
async function restoreBlobsAlone(parts: RestoreParts) {
  return await withDatabase(parts.databaseUrl, parts, async database => {
    if (!(await hasSchema(database, parts.packages))) {
      throw new BackupError(
        'the backup left the database out, and there is none of the service here: restore it by ' +
          'the engine’s own means first',
      );
    }
    return await complete(database, parts);
  });
}

async function restoreServer(file: string, parts: RestoreParts) {
  const { databaseUrl, searchPath } = parts;
  return await withDatabase(databaseUrl, parts, async database => {
    if (await hasTables(database)) {
      throw new BackupError('the database has tables: restore into an empty one');
    }
    const mariadb = /mariadb|galera/i.test(database.engine.name);
    await loadMysql({ databaseUrl, mariadb, searchPath }, file);
    return await complete(database, parts);
  });
}

async function restoreFile(file: string, parts: RestoreParts) {
  const target = parts.databaseUrl.slice('sqlite:'.length);
  for (const place of [target, `${target}-wal`]) {
    if (existsSync(place)) throw new BackupError(`${place} is there: restore into another place`);
  }
  makeDirectory(path.dirname(target), 0o700);
  const temporary = `${target}.restoring`;
  const left = [temporary, `${temporary}-wal`, `${temporary}-shm`];
  for (const place of left) await rm(place, { force: true });
  // Readable by its owner alone from its first byte, whatever rights the backup came back with.
  await pipeline(createReadStream(file), createWriteStream(temporary, { mode: 0o600 }));
  const summary = await withDatabase(`sqlite:${temporary}`, parts, database =>
    complete(database, parts),
  );
  // Its last connection has brought the write-ahead log into the file and removed it.
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
  const database = await openDatabase(databaseUrl, { log });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
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
    throw new BackupError(
      `${count} pictures were not copied, the first ${first.name}`,
      first.error,
    );
  }
  const { copied, copiedBytes, alreadyThere } = summary;
  return { migrations, blobs: { copied, copiedBytes, alreadyThere } };
}

/** Of the blobs of a store those that a job names. */
function namedBlobs(from: BlobStore, jobs: JobStore): MovedFrom {
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
