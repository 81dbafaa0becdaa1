/**
 * Fetched weights in `<cacheDir>/<model>/<version>/weights/`, checked before each use. A read-only
 * directory of a container image may hold weights in the same layout.
 *
 * Hashing 88 MB takes up to half a second without SHA instructions, so a checked file gets a record
 * of its size, inode and times. No program can set the change time.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { hashFile, isMissing, recordBytes, writeRecord } from '../models/cache-files.ts';
import type { ModelManifest, WeightsFile } from '../models/manifest.ts';
import { diskError, ModelError } from '../models/model-error.ts';

type WeightsState =
  | { readonly state: 'checked' }
  | { readonly state: 'missing' }
  /** `reason`: how it differs from the file that the manifest names. */
  | { readonly state: 'altered'; readonly reason: string };

/** Decimal text: nanoseconds do not fit a double. */
interface CheckedRecord {
  readonly sha256: string;
  readonly bytes: string;
  readonly inode: string;
  readonly mtimeNs: string;
  readonly ctimeNs: string;
}

export interface WeightsFolders {
  /** Absolute. Weights are fetched to this folder. */
  readonly cacheDir: string;
  /** Absolute. Read first, never written. */
  readonly weightsDir?: string | undefined;
}

export function weightsDirectory(cacheDir: string, manifest: ModelManifest): string {
  return join(cacheDir, manifest.name, manifest.version, 'weights');
}

export function weightsPath(cacheDir: string, manifest: ModelManifest, file: WeightsFile): string {
  return join(weightsDirectory(cacheDir, manifest), file.name);
}

/** Checks a file by its record, or else by its hash. `keeps`: writes a record. */
async function checkWeightsFile(
  path: string,
  file: WeightsFile,
  keeps = true,
): Promise<WeightsState> {
  const found = await describe(path, file);
  if (found === null) return { state: 'missing' };
  if (found.bytes !== String(file.bytes)) {
    return { state: 'altered', reason: `it has ${found.bytes} bytes, not ${file.bytes}` };
  }
  if (await hasRecord(path, found)) return { state: 'checked' };
  const sha256 = await hashFile(path);
  if (sha256 !== file.sha256) {
    return { state: 'altered', reason: `its sha256 is ${sha256}, not ${file.sha256}` };
  }
  if (keeps) await recordChecked(path, file);
  return { state: 'checked' };
}

/** Call it only right after the file's SHA-256 matched the manifest's. */
export async function recordChecked(path: string, file: WeightsFile): Promise<void> {
  const record = await describe(path, file);
  if (record !== null) await writeRecord(recordPath(path), record);
}

/** The first file that passes, else an altered one, else a missing one. */
export async function findWeightsFile(
  { cacheDir, weightsDir }: WeightsFolders,
  manifest: ModelManifest,
  file: WeightsFile,
): Promise<{ readonly path: string; readonly check: WeightsState }> {
  const path = weightsPath(cacheDir, manifest, file);
  if (weightsDir === undefined) return { path, check: await checkWeightsFile(path, file) };
  const broughtPath = weightsPath(weightsDir, manifest, file);
  const brought = { path: broughtPath, check: await checkWeightsFile(broughtPath, file, false) };
  if (brought.check.state === 'checked') return brought;
  const fetched = { path, check: await checkWeightsFile(path, file) };
  return fetched.check.state === 'missing' && brought.check.state === 'altered' ? brought : fetched;
}

/** @throws ModelError `missing` or `altered` */
export async function requireWeights(
  folders: WeightsFolders,
  manifest: ModelManifest,
): Promise<ReadonlyMap<string, string>> {
  const paths = new Map<string, string>();
  for (const file of manifest.files) {
    const { path, check } = await findWeightsFile(folders, manifest, file);
    if (check.state === 'missing') throw missingWeights(manifest, path);
    if (check.state === 'altered') throw alteredWeights(manifest, path, check.reason);
    paths.set(file.name, path);
  }
  return paths;
}

function missingWeights(manifest: ModelManifest, path: string): ModelError {
  return new ModelError(
    'missing',
    `the weights of ${manifest.name} are not at ${path}: ` +
      `fetch them with "matting models fetch ${manifest.name}"`,
  );
}

export function alteredWeights(manifest: ModelManifest, path: string, reason: string): ModelError {
  return new ModelError(
    'altered',
    `the weights of ${manifest.name} at ${path} are damaged and were not loaded, ${reason}: ` +
      `fetch them again with "matting models fetch ${manifest.name}"`,
  );
}

function recordPath(path: string): string {
  return `${path}.checked.json`;
}

async function describe(path: string, file: WeightsFile): Promise<CheckedRecord | null> {
  const found = await stat(path, { bigint: true }).catch(error => {
    if (isMissing(error)) return null;
    throw diskError(error, 'read', path);
  });
  if (found === null) return null;
  return {
    sha256: file.sha256,
    bytes: String(found.size),
    inode: String(found.ino),
    mtimeNs: String(found.mtimeNs),
    ctimeNs: String(found.ctimeNs),
  };
}

async function hasRecord(path: string, found: CheckedRecord): Promise<boolean> {
  try {
    return (await readFile(recordPath(path))).equals(recordBytes(found));
  } catch (error) {
    if (isMissing(error)) return false;
    throw diskError(error, 'read', recordPath(path));
  }
}
