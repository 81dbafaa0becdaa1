/** The doctor measures the room where the service writes: data, SQLite file, storage, spool. */
import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import type { loadStorageConfig } from '@matting/core/settings.ts';
import { type Finding, failure, ok, reasonOf, warning } from '@matting/program/doctor/findings.ts';
import { storageDirectory, storageKindOf } from '@matting/storage/open-storage.ts';

const DISK = 'disk';
/** The first is MattingStorageNearlyFull's bound; a busy hour fills a disk below the second. */
const FREE_SHARE_WARN = 0.1;
const FREE_BYTES_MIN = 1e9;

export async function diskFindings(
  { storageUrl, spoolDir, storageKinds }: ReturnType<typeof loadStorageConfig>,
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
      const advice = 'set MATTING_SPOOL_DIR to a writable directory';
      byDevice.set(-1, failure(DISK, reasonOf(error), advice));
    });
  }
  return [...byDevice.values()];
}

async function roomOf(place: string): Promise<Finding> {
  const { bavail, blocks, bsize } = await statfs(place);
  const free = bavail * bsize;
  const found = `${(free / 1e9).toFixed(1)} GB free at ${place}`;
  const advice = 'free some space; a full disk refuses images and fails jobs (retryable)';
  if (free < FREE_BYTES_MIN) return failure(DISK, found, advice);
  return bavail < FREE_SHARE_WARN * blocks ? warning(DISK, found, advice) : ok(DISK, found);
}

export function unlessMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
  throw error;
}
