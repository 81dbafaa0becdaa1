/**
 * A backup while the service works, in the order that keeps every link alive: blobs, then the
 * database, then the blobs that came meanwhile. What the database's state names was stored before
 * that state, so it is among the blobs of one of the two passes, but for what the service itself
 * removed in between (an input whose job ended, a result whose link did): nobody asks for those.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import pkg from '../../../package.json' with { type: 'json' };
import { createSecretsCanaryStore } from '../../core/secrets/secrets-key.ts';
import type { BlobStore } from '../../core/storage/blob-store.ts';
import type { Database } from '../../database/database.ts';
import { probeDatabase } from '../../database/probe.ts';
import { CopyDiffersError, type MoveSummary, moveBlobs } from '../storage/move-blobs.ts';
import {
  type BackedUpDatabase,
  BackupError,
  manifestPath,
  measure,
  writeManifest,
} from './backup-manifest.ts';
import { copySqlite, dumpMysql } from './database-copy.ts';

const SQLITE_FILE = 'database.sqlite';
const SQL_FILE = 'database.sql';
/** What an interrupted run leaves, which the next one goes on with. */
const OWN_NAMES: readonly string[] = [SQLITE_FILE, SQL_FILE, 'blobs', 'backup.json.tmp'];

/** A restored service may use a fence for a result that the service of before used for another. */
const ANOTHER_PLACE = 'name another place (--blobs-to), as after every restore';

export interface BackupParts {
  /** The live service's; its URL, with a password, for the engine's program. */
  readonly database: Database;
  readonly databaseUrl: string;
  /** Undefined: the database is left out. */
  readonly withDatabase: boolean;
  /** Undefined: blobs are left out. */
  readonly blobs:
    | { readonly from: BlobStore; readonly to: BlobStore; readonly place: string }
    | undefined;
  /** Where the engine's programs are. */
  readonly searchPath: string;
  readonly onProgress?: (line: string) => void;
  /** Ends after the blobs under way. */
  readonly signal?: AbortSignal;
}

/** The directory is there afterwards, empty or with what an interrupted run left. @throws BackupError */
export async function prepareDirectory(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const names = await readdir(directory);
  if (names.includes(path.basename(manifestPath(directory)))) {
    throw new BackupError(`${directory} holds a finished backup: name another directory`);
  }
  const others = names.filter(name => !OWN_NAMES.includes(name));
  if (others.length > 0) throw new BackupError(`${directory} is not empty: name another directory`);
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
  // Before the copy: what it dates is in the copy.
  const takenAtMs = Date.now() + (await probeDatabase(database)).clockAheadMs;
  const backedUp = parts.withDatabase ? await copyDatabase(directory, parts) : null;
  const canary = await createSecretsCanaryStore(database).find();
  if (blobs !== undefined) {
    onProgress('copying pictures, second pass');
    const second = await copyAll(parts, blobs, false);
    copied = { ...second, ...sumOf(copied, second) };
  }
  const manifest = {
    version: pkg.version,
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
    const message = `${failures.length} pictures were not copied, one is ${first.name}`;
    // The same command would find the same bytes there.
    const advice = differing === undefined ? 'run the same command again' : ANOTHER_PLACE;
    throw new BackupError(`${message}: ${advice}`, first.error);
  }
  if (signal?.aborted) throw new BackupError('interrupted: run the same command again');
  return summary;
}

async function copyDatabase(directory: string, parts: BackupParts): Promise<BackedUpDatabase> {
  const { database, databaseUrl, searchPath } = parts;
  const { dialect: kind, engine } = database;
  const file = kind === 'sqlite' ? SQLITE_FILE : SQL_FILE;
  const place = path.join(directory, file);
  // Half of one, of an interrupted run.
  await rm(place, { force: true });
  if (kind === 'sqlite') await copySqlite(databaseUrl.slice('sqlite:'.length), place);
  else {
    const mariadb = /mariadb|galera/i.test(engine.name);
    await dumpMysql({ databaseUrl, mariadb, searchPath }, place);
  }
  return { kind, engine: engine.name, file, ...(await measure(place)) };
}
