/** The doctor tries the storages, the fallback too, as `matting storage check` does. */
import path from 'node:path';
import type { loadStorageConfig } from '@matting/core/settings.ts';
import { type Finding, failure, ok, warning } from '@matting/program/doctor/findings.ts';
import {
  checkStorage,
  missingOfStorage,
  storageDirectory,
  storageKindOf,
} from '@matting/storage/open-storage.ts';
import type { StorageKind } from '@matting/storage/storage-kind.ts';

const SUBJECT = 'storage';

export async function storageFindings({
  storageUrl,
  fallbackUrl,
  storageKinds,
}: ReturnType<typeof loadStorageConfig>): Promise<readonly Finding[]> {
  const findings = await triedFindings(storageUrl, 'MATTING_STORAGE_URL', storageKinds);
  if (fallbackUrl === undefined) return findings;
  const found = 'MATTING_STORAGE_FALLBACK_URL is set, so a move is in progress';
  const moving = warning(SUBJECT, found, 'see docs/storage.md, "Move to a bucket"');
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
  // A try would create it with this user's rights in place of the service's.
  const missing = await missingOfStorage(storageUrl, storageKinds);
  if (missing.length > 0) {
    const root = storageDirectory(storageUrl);
    const lacks = `lacks ${missing.map(directory => path.relative(root, directory)).join(', ')}`;
    const found = `${kind} of ${variable} ${missing.includes(root) ? 'does not exist yet' : lacks}`;
    return [warning(SUBJECT, found, 'start a control plane, which creates it')];
  }
  const tried = await checkStorage(storageUrl, storageKinds);
  const failed = tried.filter(({ problem }) => problem !== undefined);
  if (failed.length === 0) {
    return [ok(SUBJECT, `${kind} of ${variable} passed all ${tried.length} checks`)];
  }
  const advice = 'see docs/storage.md; to test again, run matting storage check';
  return failed.map(({ ability, problem }) =>
    failure(SUBJECT, `${kind} of ${variable}, ${ability}: ${problem}`, advice),
  );
}
