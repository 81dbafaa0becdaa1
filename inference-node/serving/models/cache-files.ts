/**
 * A file is written under a temporary name, flushed and renamed, so nobody sees half a file, even
 * after a crash. Processes that make the same file make the same bytes; the later rename wins.
 */
import { createHash, randomBytes } from 'node:crypto';
import {
  type FileHandle,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { fileClockMs, makeDirectory, syncPath } from '@matting/program/files.ts';
import { diskError, ModelError } from './model-error.ts';

const HASH_CHUNK_BYTES = 1024 * 1024;

/** An older temporary file belongs to a process that died: a fetch gives up sooner. */
const TEMPORARY_IDLE_MAX_MS = 10 * 60 * 1000;

const TEMPORARY_SUFFIX = '.tmp';

const WRITABLE_BY_GROUP = 0o020;
const WRITABLE_BY_OTHERS = 0o002;

export class WholeFile {
  readonly path: string;
  readonly handle: FileHandle;
  /** For a library that writes to a path. */
  readonly temporary: string;
  #open = true;

  private constructor(path: string, temporary: string, handle: FileHandle) {
    this.path = path;
    this.temporary = temporary;
    this.handle = handle;
  }

  static async create(path: string): Promise<WholeFile> {
    const directory = dirname(path);
    const name = `.${basename(path)}.${process.pid}.${randomBytes(6).toString('hex')}`;
    const temporary = join(directory, name + TEMPORARY_SUFFIX);
    try {
      makeDirectory(directory);
      return new WholeFile(path, temporary, await open(temporary, 'wx+'));
    } catch (error) {
      throw diskError(error, 'write', path);
    }
  }

  async write(bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const left = bytes.length - done;
      done += (await this.handle.write(bytes, done, left, position + done)).bytesWritten;
    }
  }

  async commit(): Promise<void> {
    await this.handle.sync();
    await this.#close();
    await rename(this.temporary, this.path);
    await syncPath(dirname(this.path));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
    await rm(this.temporary, { force: true });
  }

  async #close(): Promise<void> {
    if (!this.#open) return;
    this.#open = false;
    await this.handle.close();
  }
}

/** If `write` throws, `path` is unchanged and no temporary file remains. */
export async function writeFileWhole(
  path: string,
  write: (file: WholeFile) => Promise<void>,
): Promise<void> {
  await using file = await WholeFile.create(path);
  try {
    await write(file);
    await file.commit();
  } catch (error) {
    throw diskError(error, 'write', path);
  }
}

export function recordBytes(record: object): Buffer {
  return Buffer.from(`${JSON.stringify(record, null, 2)}\n`);
}

/** The record only saves work, so a read-only cache does without it. */
export async function writeRecord(path: string, record: object): Promise<void> {
  try {
    await writeFileWhole(path, file => file.write(recordBytes(record), 0));
  } catch (error) {
    if (!(error instanceof ModelError && error.kind === 'disk')) throw error;
  }
}

/**
 * Files of one form. A node reads them every few seconds, and parses one only if it has changed.
 */
export class ParsedFiles<Value> {
  readonly #parse: (text: string, path: string) => Value;
  readonly #known = new Map<string, { readonly stamp: string; readonly value: Value }>();

  constructor(parse: (text: string, path: string) => Value) {
    this.#parse = parse;
  }

  async read(path: string): Promise<Value> {
    try {
      const { ino, size, mtimeMs, ctimeMs } = await stat(path);
      const stamp = [ino, size, mtimeMs, ctimeMs].join();
      const known = this.#known.get(path);
      if (known?.stamp === stamp) return known.value;
      const value = this.#parse(await readFile(path, 'utf8'), path);
      this.#known.set(path, { stamp, value });
      return value;
    } catch (error) {
      throw diskError(error, 'read', path);
    }
  }
}

const RECORDS = new ParsedFiles<unknown>(text => JSON.parse(text));

/** Undefined: missing or damaged, so it will be made again. */
export async function readRecord(path: string): Promise<unknown> {
  try {
    return await RECORDS.read(path);
  } catch (error) {
    if (error instanceof SyntaxError || isMissing((error as Error).cause)) return undefined;
    throw error;
  }
}

/** Ages are by the file system's clock, since other machines may write there. */
export async function removeStaleTemporaries(directory: string): Promise<void> {
  const temporaries = (await listDirectory(directory)).filter(
    name => name.startsWith('.') && name.endsWith(TEMPORARY_SUFFIX),
  );
  if (temporaries.length === 0) return;
  const nowMs = await fileSystemClockMs(directory);
  if (nowMs === undefined) return;
  for (const name of temporaries) {
    const path = join(directory, name);
    const touchedMs = (await statOrNull(path))?.mtimeMs ?? 0;
    if (nowMs - touchedMs > TEMPORARY_IDLE_MAX_MS) await rm(path, { force: true });
  }
}

/** UTC. Undefined if no file can be made: whoever can write there also cleans up there. */
export async function fileSystemClockMs(directory: string): Promise<number | undefined> {
  const file = join(directory, `.clock.${randomBytes(6).toString('hex')}${TEMPORARY_SUFFIX}`);
  try {
    return await fileClockMs(file);
  } catch (error) {
    if (!(diskError(error, 'write', file) instanceof ModelError)) throw error;
    return undefined;
  }
}

export async function listDirectory(directory: string): Promise<readonly string[]> {
  try {
    return (await readdir(directory)).sort();
  } catch (error) {
    if (isMissing(error)) return [];
    throw diskError(error, 'read', directory);
  }
}

export async function statOrNull(path: string) {
  try {
    return await stat(path);
  } catch (error) {
    if (isMissing(error)) return null;
    throw diskError(error, 'read', path);
  }
}

/**
 * Why a file must not run as code, in words that follow "it": a user other than root and this
 * process's owns or may write it or its directory. Undefined: it is safe.
 */
export async function whyUnsafeToRun(path: string): Promise<string | undefined> {
  const real = await realpath(path);
  for (const each of new Set([real, dirname(real), dirname(path)])) {
    const { uid, gid, mode } = await stat(each);
    if (uid !== 0 && uid !== process.getuid?.()) return `is not safe: another user owns ${each}`;
    const isOwnGroup =
      gid === 0 || gid === process.getegid?.() || process.getgroups?.().includes(gid);
    const writable = isOwnGroup ? WRITABLE_BY_OTHERS : WRITABLE_BY_GROUP | WRITABLE_BY_OTHERS;
    if ((mode & writable) !== 0) return `is not safe: other users may write ${each}`;
  }
  return undefined;
}

export async function hashOpenFile(file: FileHandle): Promise<string> {
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(HASH_CHUNK_BYTES);
  for (let position = 0; ; ) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) return hash.digest('hex');
    hash.update(buffer.subarray(0, bytesRead));
    position += bytesRead;
  }
}

/** Hexadecimal. 176 MB take 0.15 s on a CPU with SHA instructions. */
export async function hashFile(path: string): Promise<string> {
  await using file = await open(path, 'r');
  return await hashOpenFile(file);
}

export function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'ENOENT';
}
