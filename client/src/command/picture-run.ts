import { createHash } from 'node:crypto';
import { type FileHandle, stat } from 'node:fs/promises';
import path from 'node:path';
import { readImage } from '../files.ts';
import { type CallOptions, MattingError, type Retry, type SucceededJob } from '../index.ts';
import { onDisk, withoutBytes } from './file-names.ts';
import type { Picture } from './find-pictures.ts';
import { type Journal, NOTHING, type OpenLine } from './journal.ts';
import type { RemoveOptions } from './options.ts';
import type { PartialFiles } from './partial-files.ts';
import { keyOf } from './picture-key.ts';
import { requireWritableName } from './result-names.ts';

export type PictureEnd =
  | { readonly kind: 'made'; readonly job: string; readonly warnings: readonly string[] }
  /** An earlier run made the result, or it exists and --skip-existing is set. */
  | { readonly kind: 'skipped' }
  | { readonly kind: 'failed'; readonly error: Error };

export interface PictureRunOptions extends RemoveOptions {
  readonly to: string;
  readonly journal: Journal;
  readonly partials: PartialFiles;
  readonly signal: AbortSignal;
  readonly onRetry: (retry: Retry) => void;
}

/** Rejects if the run was ended or the journal cannot be written. */
export async function runPicture(
  { source, output }: Picture,
  options: PictureRunOptions,
): Promise<PictureEnd> {
  const target = path.join(options.to, output);
  const line: OpenLine = { ...NOTHING, file: withoutBytes(source) };
  try {
    if (options.skipExisting && ((await sizeOf(target)) ?? 0) > 0) return { kind: 'skipped' };
    if (!(await stat(onDisk(source))).isFile()) throw new Error('not a regular file');
    const image = await readImage(onDisk(source));
    line.sha256 = createHash('sha256').update(image).digest('hex');
    line.key = keyOf(line.sha256, options);
    const bytes = options.journal.bytesOfDone(output, line.key);
    if (bytes !== undefined && bytes === (await sizeOf(target))) return { kind: 'skipped' };
    await makeResult(image, target, line, options);
    line.output = output;
  } catch (error) {
    options.signal.throwIfAborted();
    if (!(error instanceof Error)) throw error;
    line.job ??= (error instanceof MattingError ? error.jobId : undefined) ?? null;
    line.size = null;
    line.error = { code: codeOf(error), detail: error.message };
    await options.journal.append(line);
    return { kind: 'failed', error };
  }
  await options.journal.append(line);
  return { kind: 'made', job: line.job ?? '', warnings: line.warnings };
}

/** Opens the result's file before anything is charged. */
async function makeResult(
  image: Uint8Array,
  target: string,
  line: OpenLine,
  { client, fields, partials, giveUpMs, signal, onRetry }: PictureRunOptions,
): Promise<void> {
  await requireWritableName(target);
  await partials.write(target, async file => {
    const call = { giveUpMs, signal, onRetry };
    const keyed = { ...call, idempotencyKey: line.key ?? '' };
    const job = await client.run({ image, ...fields }, keyed);
    await receiveResult(job, file, line, { client, ...call });
  });
}

/** Downloads a job's result and describes it in the line. */
export async function receiveResult(
  job: SucceededJob,
  file: FileHandle,
  line: OpenLine,
  { client, ...call }: CallOptions & Pick<RemoveOptions, 'client'>,
): Promise<void> {
  line.job = job.job_id;
  line.credits = job.credits.charged;
  const { pieces } = await client.openDownload(job, call);
  for await (const piece of pieces) await file.writeFile(piece);
  const { sizeBytes: bytes, width, height, subject = null, warnings = [] } = job.result;
  line.size = { bytes, width, height };
  line.subject = subject;
  line.warnings = warnings;
}

/** undefined: no such file. */
export async function sizeOf(file: string): Promise<number | undefined> {
  const found = await stat(file).catch(() => undefined);
  return found?.isFile() ? found.size : undefined;
}

export function codeOf(error: Error): string {
  return String((error as { code?: unknown }).code ?? error.name);
}
