/**
 * The folder of an installed provider. ONNX Runtime finds providers only in its own folder, so this
 * folder has a copy of the runtime's native files, and fits one version of the runtime.
 */

import { access, constants, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { arch, platform } from 'node:os';
import path from 'node:path';
import { hashFile, isMissing, statOrNull, whyUnsafeToRun } from '../models/cache-files.ts';
import type { InstalledFile } from './openvino-files.ts';
import { BINDING_FILE, RUNTIME_FOLDER_VARIABLE } from './runtime-folder.ts';

export {
  findOpenvino,
  type InstalledFile,
  OPENVINO_FILES,
  OPENVINO_VERSION,
  OPENVINO_WHEEL,
  type OpenvinoState,
  openvinoFolder,
  openvinoRefusal,
  readOpenvino,
} from './openvino-files.ts';

/** Read, not imported: only engines load the binding. */
export function runtimeVersion(): string {
  const require = createRequire(import.meta.url);
  return (require('onnxruntime-node/package.json') as { version: string }).version;
}

const RUNTIME_LIBRARY = 'libonnxruntime.so.1';

export const RUNTIME_FILES = [BINDING_FILE, RUNTIME_LIBRARY] as const;

export const PROVIDER_LIBRARIES = [
  'libonnxruntime_providers_shared.so',
  'libonnxruntime_providers_cuda.so',
] as const;

export const RECORD_FILE = 'installed.json';

export interface InstalledRecord {
  readonly runtimeVersion: string;
  readonly source: string;
  readonly files: readonly InstalledFile[];
  /** Folders of CUDA's and cuDNN's libraries, which releases up to 0.3.0 recorded. */
  readonly libraryFolders: readonly string[];
}

export type InstalledState =
  | { readonly state: 'missing'; readonly folder: string }
  /** `reason` continues "the CUDA provider in … ". */
  | { readonly state: 'unusable'; readonly folder: string; readonly reason: string }
  | { readonly state: 'installed'; readonly folder: string; readonly record: InstalledRecord };

export function packageFolder(): string {
  const require = createRequire(import.meta.url);
  const root = path.dirname(require.resolve('onnxruntime-node/package.json'));
  return path.join(root, 'bin/napi-v6', platform(), arch());
}

export function installedFolder(providerDir: string): string {
  return path.join(providerDir, `onnxruntime-${runtimeVersion()}-${platform()}-${arch()}`);
}

/** Checks the sizes, with `hashed` also the checksums, which takes a second. */
export async function readInstalled(
  providerDir: string,
  { hashed }: { readonly hashed: boolean },
): Promise<InstalledState> {
  const folder = installedFolder(providerDir);
  const unusable = (reason: string) => ({ state: 'unusable', folder, reason }) as const;
  let record: InstalledRecord | undefined;
  try {
    record = parseRecord(await readFile(path.join(folder, RECORD_FILE), 'utf8'));
  } catch (error) {
    if (isMissing(error)) return { state: 'missing', folder };
    if (!(error instanceof SyntaxError)) return unusable(`cannot be read: ${String(error)}`);
  }
  if (record?.runtimeVersion !== runtimeVersion()) return unusable('has no record that fits');
  for (const { name, bytes, sha256 } of record.files) {
    const file = path.join(folder, name);
    try {
      const found = await statOrNull(file);
      if (found?.size !== bytes) return unusable(`lacks a part of ${name}`);
      await access(file, constants.R_OK);
      const foreign = await whyUnsafeToRun(file);
      if (foreign !== undefined) return unusable(foreign);
      if (hashed && (await hashFile(file)) !== sha256) return unusable(`has an altered ${name}`);
    } catch (error) {
      return unusable(`has a ${name} that cannot be read: ${(error as Error).message}`);
    }
  }
  return { state: 'installed', folder, record };
}

/**
 * Undefined if the JSON is not a record.
 * @throws SyntaxError
 */
function parseRecord(text: string): InstalledRecord | undefined {
  const json = JSON.parse(text) as Partial<InstalledRecord> | null;
  const { runtimeVersion: version, source, files, libraryFolders } = json ?? {};
  if (typeof version !== 'string' || typeof source !== 'string') return undefined;
  if (!Array.isArray(files) || !Array.isArray(libraryFolders)) return undefined;
  const sound = files.every(
    file =>
      // Accepts any name, since records of earlier versions list further files.
      /^\w[\w.]+$/.test(file?.name) &&
      Number.isInteger(file.bytes) &&
      /^[0-9a-f]{64}$/.test(file.sha256),
  );
  if (!sound || !libraryFolders.every(folder => typeof folder === 'string')) return undefined;
  return { runtimeVersion: version, source, files, libraryFolders };
}

/** For the operator: the fault and the remedy in one line. */
export class ProviderError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message.replace(/\s*\n\s*/g, ' '), { cause });
    this.name = 'ProviderError';
  }
}

/** The operator's own LD_LIBRARY_PATH comes first. */
export async function readEngineEnvironment(
  providerDir: string,
  childEnv: Readonly<Record<string, string>>,
): Promise<{ childEnv: Readonly<Record<string, string>>; installed: InstalledState }> {
  const installed = await readInstalled(providerDir, { hashed: false });
  if (installed.state !== 'installed') return { childEnv, installed };
  const { folder, record } = installed;
  const folders = [childEnv.LD_LIBRARY_PATH ?? '', ...record.libraryFolders].filter(Boolean);
  const search = folders.length === 0 ? {} : { LD_LIBRARY_PATH: folders.join(':') };
  return {
    childEnv: { ...childEnv, ...search, [RUNTIME_FOLDER_VARIABLE]: folder },
    installed,
  };
}
