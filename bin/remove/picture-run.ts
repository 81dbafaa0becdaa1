/** One picture from its file to its result on the disk, and its line of the journal. */
import { createHash } from 'node:crypto';
import { type FileHandle, mkdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { describeUnread, readImageHeader } from '@matting/proto/contract/image-header.ts';
import { readImage } from 'matting-client/src/files.ts';
import { MattingError, type Retry } from 'matting-client/src/index.ts';
import type { Picture } from './find-pictures.ts';
import type { Journal, JournalLine } from './journal.ts';
import type { RemoveOptions } from './options.ts';
import type { PartialFiles } from './partial-files.ts';
import { keyOf } from './picture-key.ts';

export type PictureEnd =
  | { readonly kind: 'made'; readonly job: string }
  /** By an earlier run, or, with --skip-existing, by whomever. */
  | { readonly kind: 'there' }
  | { readonly kind: 'failed'; readonly error: Error };

export interface PictureRunOptions extends RemoveOptions {
  readonly to: string;
  readonly journal: Journal;
  readonly partials: PartialFiles;
  readonly signal: AbortSignal;
  readonly onRetry: (retry: Retry) => void;
}

type Line = { -readonly [Field in keyof JournalLine]: JournalLine[Field] };

/** Rejects where the run was ended meanwhile, or the journal cannot be written. */
export async function runPicture(
  { source, output }: Picture,
  options: PictureRunOptions,
): Promise<PictureEnd> {
  const target = path.join(options.to, output);
  const line: Line = {
    file: source,
    sha256: null,
    key: null,
    job: null,
    output: null,
    size: null,
    subject: null,
    credits: 0,
    error: null,
  };
  try {
    if (options.skipExisting && ((await sizeOf(target)) ?? 0) > 0) return { kind: 'there' };
    const image = await readPicture(source);
    line.sha256 = createHash('sha256').update(image).digest('hex');
    line.key = keyOf(line.sha256, options);
    const bytes = options.journal.bytesOfDone(output, line.key);
    if (bytes !== undefined && bytes === (await sizeOf(target))) return { kind: 'there' };
    await makeResult(image, target, line, options);
    line.output = output;
  } catch (error) {
    options.signal.throwIfAborted();
    if (!(error instanceof Error)) throw error;
    line.job ??= (error instanceof MattingError ? error.jobId : undefined) ?? null;
    line.error = { code: codeOf(error), detail: error.message };
    await options.journal.append(line);
    return { kind: 'failed', error };
  }
  await options.journal.append(line);
  return { kind: 'made', job: line.job ?? '' };
}

/** The place for the result is had before anything is paid. */
async function makeResult(
  image: Uint8Array,
  target: string,
  line: Line,
  { client, fields, partials, giveUpMs, signal, onRetry }: PictureRunOptions,
): Promise<void> {
  await mkdir(path.dirname(target), { recursive: true });
  if ((await stat(target).catch(() => undefined))?.isDirectory()) {
    throw Object.assign(new Error(`${target} is a folder`), { code: 'EISDIR' });
  }
  const partial = await partials.open(target);
  try {
    const call = { idempotencyKey: line.key ?? '', giveUpMs, signal, onRetry };
    const cutOut = await client.openCutOut({ image, ...fields }, call);
    line.job = cutOut.jobId;
    line.credits = 1;
    for await (const piece of cutOut.pieces) await partial.file.writeFile(piece);
    line.size = await describe(partial.file);
    line.subject = cutOut.subject ?? null;
    await partial.file.close();
    await rename(partial.name, target);
  } catch (error) {
    line.size = null;
    await partial.file.close();
    await rm(partial.name, { force: true });
    throw error;
  }
}

/** @throws MattingError without asking the service what the file itself tells. */
async function readPicture(source: string): Promise<Uint8Array> {
  if (!(await stat(source)).isFile()) throw new Error('not a regular file');
  const image = await readImage(source);
  const read = async (offset: number, length: number) =>
    Buffer.from(image.buffer, image.byteOffset, image.byteLength).subarray(offset, offset + length);
  if ((await readImageHeader(read, image.byteLength)) !== undefined) return image;
  throw new MattingError(await describeUnread(read, image.byteLength), {
    code: 'UNSUPPORTED_IMAGE_FORMAT',
    retryable: false,
  });
}

/** Bytes; undefined where there is no such file. */
async function sizeOf(file: string): Promise<number | undefined> {
  const found = await stat(file).catch(() => undefined);
  return found?.isFile() ? found.size : undefined;
}

async function describe(file: FileHandle): Promise<NonNullable<JournalLine['size']>> {
  const { size: bytes } = await file.stat();
  const read = async (offset: number, length: number) => {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, offset);
    return buffer.subarray(0, bytesRead);
  };
  const header = await readImageHeader(read, bytes);
  return { bytes, width: header?.width ?? null, height: header?.height ?? null };
}

export function codeOf(error: Error): string {
  return String((error as { code?: unknown }).code ?? error.name);
}
