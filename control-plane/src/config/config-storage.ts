/** Where blobs are: a directory or a bucket. */
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { EnvReader } from '#program/env.ts';
import { BucketUrlError, parseBucketUrl } from '../storage/bucket/bucket-url.ts';
import { isBucket } from '../storage/open-storage.ts';

export interface StorageConfig {
  /** `file:///...` or `s3://...`. */
  readonly storageUrl: string;
  /** The storage that blobs move from, or will move to; undefined: none move. */
  readonly fallbackUrl: string | undefined;
  /** Where blobs of a bucket are gathered before they are sent; absolute. */
  readonly spoolDir: string;
  /** A result link answers with the file, or with a redirect to a URL that the storage signed. */
  readonly resultDownloads: ResultDownloads;
  /** Nodes that list the bucket's origin get images and put results there themselves. */
  readonly directStorage: boolean;
}

const FALLBACK = 'MATTING_STORAGE_FALLBACK_URL';
const RESULT_DOWNLOADS = ['stream', 'redirect'] as const;
export type ResultDownloads = (typeof RESULT_DOWNLOADS)[number];

export function readStorage(reader: EnvReader, dataDir: string): StorageConfig {
  const spoolDir = reader.string('MATTING_SPOOL_DIR', { default: tmpdir() });
  const storageUrl = readStorageUrl(reader, 'MATTING_STORAGE_URL', pathToFileURL(dataDir).href);
  const fallbackUrl = readStorageUrl(reader, FALLBACK, undefined);
  if (fallbackUrl === storageUrl) reader.problem(FALLBACK, 'another than MATTING_STORAGE_URL');
  const resultDownloads = readResultDownloads(reader, storageUrl);
  const directStorage = readDirectStorage(reader, storageUrl);
  const urls = { storageUrl, fallbackUrl };
  return { ...urls, spoolDir: path.resolve(spoolDir), resultDownloads, directStorage };
}

function readResultDownloads(reader: EnvReader, storageUrl: string): ResultDownloads {
  const variable = 'MATTING_RESULT_DOWNLOADS';
  const downloads = reader.oneOf(variable, RESULT_DOWNLOADS, { default: 'stream' as const });
  if (downloads === 'redirect' && !isBucket(storageUrl)) {
    reader.problem(variable, 'stream where MATTING_STORAGE_URL is a directory, which signs no URL');
  }
  return downloads;
}

/** Nodes reach a bucket by signed URLs; a directory nobody signs for. */
function readDirectStorage(reader: EnvReader, storageUrl: string): boolean {
  const direct = reader.boolean('MATTING_DIRECT_STORAGE', { default: false });
  if (direct && !isBucket(storageUrl)) {
    reader.problem('MATTING_DIRECT_STORAGE', 'false where MATTING_STORAGE_URL is no s3:// bucket');
  }
  return direct;
}

function readStorageUrl<D extends string | undefined>(
  reader: EnvReader,
  variable: string,
  fallback: D,
): string | D {
  const url = reader.parsed<string, D>(
    variable,
    'a URL of the form file:///path/of/a/directory or s3://bucket/prefix',
    text => (isBucket(text) || isFileUrl(text) ? text : undefined),
    { default: fallback },
  );
  try {
    if (url !== undefined && isBucket(url)) parseBucketUrl(url);
  } catch (error) {
    if (!(error instanceof BucketUrlError)) throw error;
    reader.problem(variable, error.message);
  }
  return url;
}

function isFileUrl(text: string): boolean {
  return /^file:\/\/\/./i.test(text) && URL.canParse(text);
}
