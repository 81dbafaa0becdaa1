/**
 * The weights as fetched, in `<cacheDir>/<model>/<version>/weights/`, each checked before it is
 * used. Those that an image of a container brings lie likewise in a directory that is only read.
 *
 * Hashing 88 MB takes up to half a second without SHA instructions, so a hashed file gets a record:
 * size, inode and times in nanoseconds, the change time too, which no program can set. A file that
 * differs from its record is hashed again, and refused if its sha256 is wrong.
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { hashFile, isMissing, recordBytes, writeRecord } from '../models/cache-files.ts';
import type { ModelManifest, WeightsFile } from '../models/manifest.ts';
import { diskError, ModelError } from '../models/model-error.ts';

type WeightsState =
  | { readonly state: 'checked' }
  | { readonly state: 'missing' }
  /** Differs from the file that the manifest names; `reason` says how. */
  | { readonly state: 'altered'; readonly reason: string };

/** Numbers as decimal text: nanoseconds do not fit a double. */
interface CheckedRecord {
  readonly sha256: string;
  readonly bytes: string;
  readonly inode: string;
  readonly mtimeNs: string;
  readonly ctimeNs: string;
}

export interface WeightsFolders {
  /** The path is absolute; weights are fetched to this folder. */
  readonly cacheDir: string;
  /**
   * The path is absolute; the weights may be there already. The folder comes first and is never
   * written.
   */
  readonly weightsDir?: string | undefined;
}

export function weightsDirectory(cacheDir: string, manifest: ModelManifest): string {
  return join(cacheDir, manifest.name, manifest.version, 'weights');
}

export function weightsPath(cacheDir: string, manifest: ModelManifest, file: WeightsFile): string {
  return join(weightsDirectory(cacheDir, manifest), file.name);
}

/** Checks one weights file, by its record or by hashing it. A record is written if `keeps`. */
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

/** Call it only right after the file's sha256 was found to be the manifest's. */
export async function recordChecked(path: string, file: WeightsFile): Promise<void> {
  const record = await describe(path, file);
  if (record !== null) await writeRecord(recordPath(path), record);
}

/** The first that passes; else an altered one before a missing one, for a person to know. */
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

/** Throws ModelError `missing` or `altered`, which say what to do. */
export async function requireWeights(
  places: WeightsFolders,
  manifest: ModelManifest,
): Promise<ReadonlyMap<string, string>> {
  const paths = new Map<string, string>();
  for (const file of manifest.files) {
    const { path, check } = await findWeightsFile(places, manifest, file);
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
