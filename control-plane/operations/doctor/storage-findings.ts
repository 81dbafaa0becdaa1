import path from 'node:path';
import type { loadStorageConfig } from '@matting/core/settings.ts';
import { type Finding, runCheck } from '@matting/program/doctor/findings.ts';
import {
  checkStorage,
  missingOfStorage,
  storageDirectory,
  storageKindOf,
} from '@matting/storage/open-storage.ts';

type Storages = ReturnType<typeof loadStorageConfig>;

const ADVICE = 'see docs/storage.md; to test again, run matting storage check';

export async function storageFindings(storages: Storages): Promise<readonly Finding[]> {
  const { storageUrl, fallbackUrl } = storages;
  const check = (variable: string, url: string) =>
    runCheck({ subject: 'storage', advice: ADVICE }, () => tryStorage(storages, variable, url));
  const findings = await check('MATTING_STORAGE_URL', storageUrl);
  if (fallbackUrl === undefined) return findings;
  return [...findings, ...(await check('MATTING_STORAGE_FALLBACK_URL', fallbackUrl))];
}

async function tryStorage(
  { storageKinds }: Storages,
  variable: string,
  url: string,
): Promise<string> {
  const storage = `the ${storageKindOf(url, storageKinds)?.noun ?? 'directory'} of ${variable}`;
  // An attempt would create it with this user's rights instead of the service's.
  const missing = await missingOfStorage(url, storageKinds);
  if (missing.length > 0) {
    const root = storageDirectory(url);
    const lacks = missing.map(directory => path.relative(root, directory)).join(', ');
    const found = missing.includes(root) ? 'does not exist yet' : `lacks ${lacks}`;
    return `${storage} ${found}; a control plane's start makes it`;
  }
  const tried = await checkStorage(url, storageKinds);
  const failed = tried.filter(({ problem }) => problem !== undefined);
  if (failed.length === 0) return `${storage} passed all ${tried.length} checks`;
  const problems = failed.map(({ ability, problem }) => `${ability}: ${problem}`);
  throw new Error(`${storage}, ${problems.join('; ')}`);
}
