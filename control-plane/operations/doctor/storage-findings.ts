/** The storage, and the disks that fill up. */
import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import { type Finding, failure, ok, reasonOf, warning } from '#program/doctor/findings.ts';
import type { StorageSettings } from '../../core/settings.ts';
import type { StorageKind } from '../../core/storage/blob-store.ts';
import {
  checkStorage,
  missingOfStorage,
  storageDirectory,
  storageKindOf,
} from '../../core/storage/open-storage.ts';

const SUBJECT = 'storage';
const DISK = 'disk';
/** As MattingStorageNearlyFull; below the second a busy hour fills it. */
const FREE_BYTES_WARN = 10e9;
const FREE_BYTES_MIN = 1e9;

/** Tries the storages, the fallback too, as `matting storage check` does. */
export async function storageFindings({
  storageUrl,
  fallbackUrl,
  storageKinds,
}: StorageSettings): Promise<readonly Finding[]> {
  const findings = await triedFindings(storageUrl, 'MATTING_STORAGE_URL', storageKinds);
  if (fallbackUrl === undefined) return findings;
  const found = 'MATTING_STORAGE_FALLBACK_URL is set: blobs are being moved';
  const moving = warning(SUBJECT, found, 'docs/operations.md, "Moving to a bucket"');
  const variable = 'MATTING_STORAGE_FALLBACK_URL';
  const ofFallback = await triedFindings(fallbackUrl, variable, storageKinds);
  return [...findings, moving, ...ofFallback];
}

async function triedFindings(
  storageUrl: string,
  variable: string,
  storageKinds: readonly StorageKind[],
): Promise<Finding[]> {
  const kind = `the ${storageKindOf(storageUrl, storageKinds)?.noun ?? 'directory'}`;
  // Trying it would make it, with this user's rights in place of the service's.
  const missing = await missingOfStorage(storageUrl, storageKinds);
  if (missing.length > 0) {
    const root = storageDirectory(storageUrl);
    const lacks = `lacks ${missing.map(directory => path.relative(root, directory)).join(', ')}`;
    const found = `${kind} of ${variable} ${missing.includes(root) ? 'is not there yet' : lacks}`;
    return [warning(SUBJECT, found, 'the start of a control plane makes it')];
  }
  const tried = await checkStorage(storageUrl, storageKinds);
  const failed = tried.filter(({ problem }) => problem !== undefined);
  if (failed.length === 0) {
    return [ok(SUBJECT, `${kind} of ${variable} does all ${tried.length} things asked of it`)];
  }
  const advice = 'matting storage check tries it again; docs/operations.md, "Storage"';
  return failed.map(({ ability, problem }) =>
    failure(SUBJECT, `${kind} of ${variable}, ${ability}: ${problem}`, advice),
  );
}

/** Room where the service writes: data directory, SQLite file, storage directory, spool. */
export async function diskFindings(
  { storageUrl, spoolDir, storageKinds }: StorageSettings,
  { databaseUrl, dataDir }: { readonly databaseUrl: string; readonly dataDir: string },
): Promise<readonly Finding[]> {
  const sends = storageKindOf(storageUrl, storageKinds) !== undefined;
  const places = new Set([
    dataDir,
    ...(databaseUrl.startsWith('sqlite:') ? [path.dirname(databaseUrl.slice(7))] : []),
    sends ? spoolDir : storageDirectory(storageUrl),
  ]);
  const byDevice = new Map<number, Finding>();
  for (const place of places) {
    const found = await stat(place).catch(unlessMissing);
    if (found === undefined || byDevice.has(found.dev)) continue;
    byDevice.set(found.dev, await roomOf(place));
  }
  if (sends) {
    await access(spoolDir, constants.W_OK | constants.X_OK).catch(error => {
      const advice = 'set MATTING_SPOOL_DIR to a directory that the service may write';
      byDevice.set(-1, failure(DISK, reasonOf(error), advice));
    });
  }
  return [...byDevice.values()];
}

async function roomOf(place: string): Promise<Finding> {
  const { bavail, bsize } = await statfs(place);
  const free = bavail * bsize;
  const found = `${(free / 1e9).toFixed(1)} GB are free at ${place}`;
  const advice = 'make room: a full disk refuses images and fails jobs, retryable';
  if (free < FREE_BYTES_MIN) return failure(DISK, found, advice);
  return free < FREE_BYTES_WARN ? warning(DISK, found, advice) : ok(DISK, found);
}

function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
  throw error;
}
