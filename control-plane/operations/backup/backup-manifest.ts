/**
 * `backup.json`, written last: a directory without it is no backup. It names the key that the
 * database's secrets were sealed with, and never holds it.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readFile, rename, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { syncPath } from '#program/files.ts';
import { CommandError } from '../../core/cli/context.ts';

/** Raised when a directory of before can no longer be read. */
const FORMAT = 2;
const MANIFEST = 'backup.json';

export interface BackupManifest {
  readonly format: typeof FORMAT;
  /** Of the program that made it. */
  readonly version: string;
  /** ISO 8601 UTC, by the database's clock: what was committed until then is in it. */
  readonly taken_at: string;
  /** Null: it was left out. */
  readonly database: BackedUpDatabase | null;
  /** Null: blobs were left out. */
  readonly blobs: { readonly place: string } | null;
  /** Null: no control plane has started on this database yet. */
  readonly secrets_key_id: string | null;
}

export interface BackedUpDatabase {
  /** sqlite: a database file. mysql: statements. */
  readonly kind: 'sqlite' | 'mysql';
  readonly engine: string;
  /** Beside the manifest. */
  readonly file: string;
  readonly bytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

/** The directory is no backup, or is damaged. One line for the operator, with the system's reason. */
export class BackupError extends CommandError {
  constructor(detail: string, cause?: unknown) {
    const reason = cause instanceof Error ? cause.message : '';
    super(reason === '' ? detail : `${detail}: ${reason}`, cause);
    this.name = 'BackupError';
  }
}

export function manifestPath(directory: string): string {
  return path.join(directory, MANIFEST);
}

/** Whole or not at all, and durable. */
export async function writeManifest(
  directory: string,
  manifest: Omit<BackupManifest, 'format'>,
): Promise<void> {
  const temporary = path.join(directory, `${MANIFEST}.tmp`);
  const text = `${JSON.stringify({ format: FORMAT, ...manifest }, undefined, 2)}\n`;
  await writeFile(temporary, text, { mode: 0o600, flush: true });
  await rename(temporary, manifestPath(directory));
  await syncPath(directory);
}

/** @throws BackupError */
export async function readManifest(directory: string): Promise<BackupManifest> {
  let text: string;
  try {
    text = await readFile(manifestPath(directory), 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new BackupError(
      `${directory} holds no finished backup: ${MANIFEST} cannot be read (${code})`,
      error,
    );
  }
  const manifest = parse(text);
  if (manifest?.format === FORMAT) return manifest;
  throw new BackupError(`${manifestPath(directory)} is not one of this version`);
}

function parse(text: string): BackupManifest | undefined {
  try {
    return JSON.parse(text) as BackupManifest;
  } catch {
    return undefined;
  }
}

/** @throws BackupError where the file is not as it was written */
export async function requireWhole(
  directory: string,
  { file, bytes, sha256 }: BackedUpDatabase,
): Promise<string> {
  // A name, never a way out of the directory.
  if (path.basename(file) !== file) throw new BackupError(`${MANIFEST} names a file elsewhere`);
  const place = path.join(directory, file);
  const found = await measure(place).catch(error => {
    throw new BackupError(`${place} cannot be read`, error);
  });
  if (found.bytes === bytes && found.sha256 === sha256) return place;
  throw new BackupError(`${place} is not as it was written: its SHA-256 is another`);
}

export async function measure(file: string): Promise<Pick<BackedUpDatabase, 'bytes' | 'sha256'>> {
  const { size: bytes } = await stat(file);
  const hash = createHash('sha256');
  for await (const piece of createReadStream(file)) hash.update(piece as Buffer);
  return { bytes, sha256: hash.digest('hex') };
}
