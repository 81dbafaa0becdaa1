/** The variables that say where blobs are, and whose requests lead there. */
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { EnvReader } from '#program/env.ts';
import { storageKindOf } from './open-storage.ts';
import type { StorageKind } from './storage-kind.ts';

const STORAGE = 'MATTING_STORAGE_URL';
/** The storage that blobs move from, or will move to. */
const FALLBACK = 'MATTING_STORAGE_FALLBACK_URL';
const RESULT_DOWNLOADS = ['stream', 'redirect'] as const;

/** A variable names something else than a directory. */
export function asksForStorageKinds(env: Readonly<Record<string, string | undefined>>): boolean {
  return [STORAGE, FALLBACK].some(variable => {
    const url = env[variable] ?? '';
    return url !== '' && !isFileUrl(url);
  });
}

export function readStorage(
  reader: EnvReader,
  dataDir: string,
  storageKinds: readonly StorageKind[],
) {
  // Where blobs of a bucket are gathered before they are sent.
  const spoolDir = reader.string('MATTING_SPOOL_DIR', { default: tmpdir() });
  const storageUrl = readStorageUrl(reader, STORAGE, {
    storageKinds,
    default: pathToFileURL(dataDir).href,
  });
  const fallbackUrl = readStorageUrl(reader, FALLBACK, { storageKinds, default: undefined });
  if (fallbackUrl === storageUrl) reader.problem(FALLBACK, `another than ${STORAGE}`);
  const isDirectory = storageKindOf(storageUrl, storageKinds) === undefined;
  const resultDownloads = readResultDownloads(reader, isDirectory);
  const directStorage = readDirectStorage(reader, isDirectory);
  const urls = { storageUrl, fallbackUrl, storageKinds };
  return { ...urls, spoolDir: path.resolve(spoolDir), resultDownloads, directStorage };
}

/** A result link answers with the file, or with a redirect to a URL that the storage signed. */
function readResultDownloads(reader: EnvReader, isDirectory: boolean) {
  const variable = 'MATTING_RESULT_DOWNLOADS';
  const downloads = reader.oneOf(variable, RESULT_DOWNLOADS, { default: 'stream' as const });
  if (downloads === 'redirect' && isDirectory) {
    reader.problem(variable, `stream where ${STORAGE} is a directory, which signs no URL`);
  }
  return downloads;
}

/** Nodes that list the bucket's origin get and put files there; a directory nobody signs for. */
function readDirectStorage(reader: EnvReader, isDirectory: boolean): boolean {
  const direct = reader.boolean('MATTING_DIRECT_STORAGE', { default: false });
  if (direct && isDirectory) {
    reader.problem('MATTING_DIRECT_STORAGE', `false where ${STORAGE} is no s3:// bucket`);
  }
  return direct;
}

function readStorageUrl<D extends string | undefined>(
  reader: EnvReader,
  variable: string,
  options: { readonly storageKinds: readonly StorageKind[]; readonly default: D },
): string | D {
  const { storageKinds } = options;
  const forms = ['file:///path/of/a/directory', ...storageKinds.map(({ form }) => form)];
  const url = reader.parsed<string, D>(
    variable,
    `a URL of the form ${forms.join(' or ')}`,
    text => (isFileUrl(text) || storageKindOf(text, storageKinds) ? text : undefined),
    options,
  );
  const problem = url === undefined ? undefined : storageKindOf(url, storageKinds)?.problemOf(url);
  if (problem !== undefined) reader.problem(variable, problem);
  return url;
}

function isFileUrl(text: string): boolean {
  return /^file:\/\/\/./i.test(text) && URL.canParse(text);
}
