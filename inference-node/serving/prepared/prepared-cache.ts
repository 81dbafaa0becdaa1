/**
 * Prepared graphs in `<cacheDir>/<model>/<version>/prepared/`. A file is hashed before each use:
 * 0.15 s for 176 MB, which also warms the page cache. Its sidecar's modification time is its last
 * use. Superseded files are removed a day after it, since another release may run on the same
 * cache.
 */
import { rm, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import {
  hashFile,
  listDirectory,
  readRecord,
  recordBytes,
  removeStaleTemporaries,
  statOrNull,
  writeFileWhole,
} from '../models/cache-files.ts';
import type { ModelManifest } from '../models/manifest.ts';
import { diskError, ModelError } from '../models/model-error.ts';
import type { ExecutionProvider, Precision } from '../models/prepared-model.ts';
import type { RangesFile } from './ranges.ts';
import { weightsPath } from './weights-cache.ts';

/**
 * Raise it with every change of model-tools' output, so that old files are not used.
 * model-tools/preparing/prepared-bytes.test.ts has a digest for each number.
 */
export const PREPARER_REVISION = 3;

const SUPERSEDED_UNUSED_MAX_MS = 24 * 3600 * 1000;

const RANGES_NAME_LENGTH = 8;

export interface PreparedKey {
  readonly inputWidth: number;
  readonly inputHeight: number;
  readonly precision: Precision;
  readonly provider: ExecutionProvider;
  readonly instructionSet: string;
  readonly ranges?: RangesFile | undefined;
}

interface PreparedSidecar extends Omit<PreparedKey, 'ranges'> {
  readonly model: string;
  readonly version: string;
  readonly revision: number;
  readonly sources: Readonly<Record<string, string>>;
  readonly bytes: number;
  readonly sha256: string;
}

type PreparedCheck =
  | { readonly state: 'ready'; readonly path: string; readonly sha256: string }
  /** The weights file runs as it is. */
  | { readonly state: 'as it is' }
  | { readonly state: 'missing'; readonly path: string }
  | { readonly state: 'unusable'; readonly path: string; readonly reason: string };

export function preparedDirectory(cacheDir: string, manifest: ModelManifest): string {
  return join(cacheDir, manifest.name, manifest.version, 'prepared');
}

export function preparedPath(cacheDir: string, manifest: ModelManifest, key: PreparedKey): string {
  const { inputWidth, inputHeight, precision, provider, instructionSet, ranges } = key;
  const name = [
    `${inputWidth}x${inputHeight}`,
    ranges === undefined ? precision : `${precision}-${ranges.sha256.slice(0, RANGES_NAME_LENGTH)}`,
    provider,
    instructionSet,
    `r${PREPARER_REVISION}`,
  ].join('_');
  return join(preparedDirectory(cacheDir, manifest), `${name}.onnx`);
}

export async function checkPrepared(
  cacheDir: string,
  manifest: ModelManifest,
  key: PreparedKey,
): Promise<PreparedCheck> {
  const there = await checkSidecar(cacheDir, manifest, key);
  if (there.state === 'as it is') await noteUse(sidecarPath(preparedPath(cacheDir, manifest, key)));
  if (there.state !== 'ready') return there;
  const { path, sha256 } = there;
  if ((await hashFile(path)) !== sha256) {
    return { state: 'unusable', path, reason: 'its sha256 is another' };
  }
  await noteUse(sidecarPath(path));
  return there;
}

/** Checks the sidecar and the size alone. */
async function checkSidecar(
  cacheDir: string,
  manifest: ModelManifest,
  key: PreparedKey,
): Promise<PreparedCheck> {
  const path = preparedPath(cacheDir, manifest, key);
  const found = await statOrNull(path);
  if (found === null) {
    return (await isNoted(path, manifest, key))
      ? { state: 'as it is' }
      : { state: 'missing', path };
  }
  const unusable = (reason: string) => ({ state: 'unusable', path, reason }) as const;
  const sidecar = await readSidecar(path);
  if (sidecar === null) return unusable('its sidecar is missing or damaged');
  const expected = describe(manifest, key, sidecar.bytes, sidecar.sha256);
  if (!recordBytes(expected).equals(recordBytes(sidecar)))
    return unusable('it was made from something else');
  if (found.size !== sidecar.bytes) {
    return unusable(`it has ${found.size} bytes, not ${sidecar.bytes}`);
  }
  return { state: 'ready', path, sha256: sidecar.sha256 };
}

/** True if a sidecar without a graph notes that the weights file runs as it is. */
async function isNoted(path: string, manifest: ModelManifest, key: PreparedKey): Promise<boolean> {
  if (manifest.graph.dynamic === undefined) return false;
  const file = manifest.files.find(({ name }) => name === manifest.graph.file);
  const sidecar = await readSidecar(path);
  if (sidecar === null || file === undefined) return false;
  const expected = describe(manifest, key, file.bytes, file.sha256);
  return recordBytes(expected).equals(recordBytes(sidecar));
}

export async function writeSidecar(
  cacheDir: string,
  manifest: ModelManifest,
  key: PreparedKey,
  bytes: number,
  sha256: string,
): Promise<void> {
  const sidecar = recordBytes(describe(manifest, key, bytes, sha256));
  const path = sidecarPath(preparedPath(cacheDir, manifest, key));
  await writeFileWhole(path, file => file.write(sidecar, 0));
}

interface ListedFile {
  readonly path: string;
  readonly recordsBeside: string;
  readonly sidecar: PreparedSidecar;
}

/** Lists files with a readable sidecar, of any revision. Does not hash them. */
export async function listPrepared(
  cacheDir: string,
  manifest: ModelManifest,
): Promise<readonly ListedFile[]> {
  const directory = preparedDirectory(cacheDir, manifest);
  const found: ListedFile[] = [];
  const file = manifest.files.find(({ name }) => name === manifest.graph.file);
  const names = await listDirectory(directory);
  for (const name of names) {
    if (!name.endsWith(SIDECAR_OF_GRAPH)) continue;
    const graph = name.slice(0, -SIDECAR_SUFFIX.length);
    const sidecar = await readSidecar(join(directory, graph));
    if (sidecar === null) continue;
    const recordsBeside = join(directory, graph);
    if (names.includes(graph)) found.push({ path: recordsBeside, recordsBeside, sidecar });
    else if (sidecar.sha256 === file?.sha256) {
      found.push({ path: weightsPath(cacheDir, manifest, file), recordsBeside, sidecar });
    }
  }
  return found;
}

const PREPARED_NAME = /_r(\d+)\.onnx$/;
/** Suffix of files next to a graph. A graph that runs as it is has only these. */
const BESIDE_PREPARED = /(?<=_r\d+\.onnx)\..*$/;
/** Files of releases up to 0.2.0: graphs for several images at once, TensorRT or WebGPU. */
const GONE_NAME = /_n\d+_r\d+\.onnx$|_(tensorrt|webgpu)_/;
const RANGES_IN_NAME = /(?<=_int8)-[0-9a-f]+/;

export async function cleanPrepared(cacheDir: string, manifest: ModelManifest): Promise<void> {
  const directory = preparedDirectory(cacheDir, manifest);
  await removeStaleTemporaries(directory);
  const lastUses = new Map<string, number>();
  const all = await listDirectory(directory);
  for (const name of new Set(all.map(each => each.replace(BESIDE_PREPARED, '')))) {
    if (!PREPARED_NAME.test(name)) continue;
    const path = join(directory, name);
    const used = (await statOrNull(sidecarPath(path))) ?? (await statOrNull(path));
    lastUses.set(name, used?.mtimeMs ?? 0);
  }
  for (const [name, lastUseMs] of lastUses) {
    if (!isSuperseded(name, lastUses)) continue;
    if (Date.now() - lastUseMs < SUPERSEDED_UNUSED_MAX_MS) continue;
    const path = join(directory, name);
    // Sidecar, records and OpenVINO's compiled graph; the graph goes last.
    const companions = (await listDirectory(directory)).filter(other =>
      other.startsWith(`${name}.`),
    );
    for (const other of companions) await rm(join(directory, other), { force: true });
    await rm(path, { force: true });
  }
}

/** A newer revision supersedes a file, as does a file with other ranges that was used later. */
function isSuperseded(name: string, lastUses: ReadonlyMap<string, number>): boolean {
  if (GONE_NAME.test(name)) return true;
  if (Number(PREPARED_NAME.exec(name)?.[1]) < PREPARER_REVISION) return true;
  const withoutRanges = name.replace(RANGES_IN_NAME, '');
  const lastUseMs = lastUses.get(name) ?? 0;
  return [...lastUses].some(
    ([other, usedMs]) =>
      other !== name && other.replace(RANGES_IN_NAME, '') === withoutRanges && usedMs > lastUseMs,
  );
}

function describe(
  manifest: ModelManifest,
  key: PreparedKey,
  bytes: number,
  sha256: string,
): PreparedSidecar {
  const { name: model, version, files } = manifest;
  const { ranges, ...made } = key;
  const from = [...files, ...(ranges ? [ranges] : [])];
  const sources = Object.fromEntries(from.map(file => [file.name, file.sha256]));
  return { model, version, revision: PREPARER_REVISION, ...made, sources, bytes, sha256 };
}

async function readSidecar(path: string): Promise<PreparedSidecar | null> {
  return ((await readRecord(sidecarPath(path))) as PreparedSidecar | undefined) ?? null;
}

async function noteUse(path: string): Promise<void> {
  const now = new Date();
  try {
    await utimes(path, now, now);
  } catch (error) {
    // A cache that is read-only, or another user's, is only read.
    if (!(diskError(error, 'touch', path) instanceof ModelError)) throw error;
  }
}

const SIDECAR_SUFFIX = '.json';
const SIDECAR_OF_GRAPH = `.onnx${SIDECAR_SUFFIX}`;

function sidecarPath(path: string): string {
  return path + SIDECAR_SUFFIX;
}
