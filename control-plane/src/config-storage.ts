/** Where blobs are: a directory or a bucket. */
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import type { EnvReader } from '#program/env.ts';
import { BucketUrlError, parseBucketUrl } from './storage/bucket/bucket-url.ts';
import { isBucket } from './storage/open-storage.ts';

export interface StorageConfig {
  /** `file:///...` or `s3://...`. */
  readonly storageUrl: string;
  /** Where blobs of a bucket are gathered before they are sent; absolute. */
  readonly spoolDir: string;
}

export function readStorage(reader: EnvReader, dataDir: string): StorageConfig {
  const spoolDir = reader.string('MATTING_SPOOL_DIR', { default: tmpdir() });
  return { storageUrl: readStorageUrl(reader, dataDir), spoolDir: path.resolve(spoolDir) };
}

function readStorageUrl(reader: EnvReader, dataDir: string): string {
  const variable = 'MATTING_STORAGE_URL';
  const url = reader.parsed(
    variable,
    'a URL of the form file:///path/of/a/directory or s3://bucket/prefix',
    text => (isBucket(text) || isFileUrl(text) ? text : undefined),
    { default: pathToFileURL(dataDir).href },
  );
  try {
    if (isBucket(url)) parseBucketUrl(url);
  } catch (error) {
    if (!(error instanceof BucketUrlError)) throw error;
    reader.problem(variable, error.message);
  }
  return url;
}

function isFileUrl(text: string): boolean {
  return /^file:\/\/\/./i.test(text) && URL.canParse(text);
}
