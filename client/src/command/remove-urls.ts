/**
 * Pictures at addresses, by batches: the service downloads them, and this command the results. A
 * run that was ended goes on: the same lines are the same batches, and no picture is paid twice.
 */
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { saveImage } from '../files.ts';
import { type BatchResult, MattingError } from '../index.ts';
import { CommandError, misuse, NO_INPUT_EXIT_CODE } from './command-error.ts';
import { type Journal, NOTHING } from './journal.ts';
import type { RemoveOptions } from './options.ts';
import { Progress, shown } from './progress.ts';
import { type Endings, makeFolder, openJournal } from './remove.ts';
import { warnedOf } from './warnings.ts';

/** The service's bound on a batch. */
const ITEMS_MAX = 1000;
const URLS_MAX = 1_000_000;
const NAME_LENGTH_MAX = 100;

/** @throws CommandError, where anything failed with the exit code 1. */
export async function removeUrls(
  list: string,
  options: RemoveOptions & { readonly to: string },
  endings: Endings,
): Promise<void> {
  const urls = await readUrls(list);
  await makeFolder(options.to);
  const journal = await openJournal(options.to);
  const progress = new Progress(urls.length, process.stderr);
  const failed: string[] = [];
  try {
    for (let from = 0; from < urls.length; from += ITEMS_MAX) {
      const some = urls.slice(from, from + ITEMS_MAX);
      await oneBatch({ urls: some, from, options, endings, journal, progress, failed });
    }
  } finally {
    progress.stop();
    await journal.close();
  }
  const made = urls.length - failed.length;
  process.stdout.write(`matting: ${shown(`${made} cut out, ${failed.length} failed`)}\n`);
  if (failed.length > 0) throw new CommandError(`${failed.length} failed`);
}

interface Work {
  readonly urls: readonly string[];
  /** The first one's place in the list. */
  readonly from: number;
  readonly options: RemoveOptions & { readonly to: string };
  readonly endings: Endings;
  readonly journal: Journal;
  readonly progress: Progress;
  readonly failed: string[];
}

async function oneBatch(work: Work): Promise<void> {
  const { urls, options, endings } = work;
  const { client, fields, asked, run, giveUpMs } = options;
  const text = JSON.stringify([asked, run, urls]);
  const idempotencyKey = `urls-${createHash('sha256').update(text).digest('hex')}`;
  const patience = { giveUpMs, signal: endings.draining };
  const items = urls.map(image_url => ({ image_url }));
  const batch = await client.submitBatch({ items, ...fields }, { idempotencyKey, ...patience });
  await client.waitForBatch(batch.batch_id, { ...patience, giveUpMs: Number.POSITIVE_INFINITY });
  for await (const result of client.batchResults(batch.batch_id, patience)) {
    await keep(work, result, idempotencyKey);
  }
}

async function keep(work: Work, result: BatchResult, batchKey: string): Promise<void> {
  const { urls, from, options, journal, progress, failed } = work;
  const url = urls[result.item] ?? '';
  const place = String(from + result.item + 1).padStart(6, '0');
  const output = `${place}-${nameOf(url)}.${options.ending}`;
  const key = `${batchKey}:${result.item}`;
  const file = path.join(options.to, output);
  const done = journal.bytesOfDone(output, key);
  const there = done === undefined ? undefined : await stat(file).catch(() => undefined);
  if (done !== undefined && there?.size === done) {
    progress.ended(url, false);
    return;
  }
  try {
    if (result.status !== 'succeeded') throw failureOf(result);
    const { pieces } = await options.client.openDownload(result);
    await saveImage(file, pieces);
    const { sizeBytes: bytes, width, height, subject, warnings } = result.result;
    const made = { job: result.job_id, output, size: { bytes, width, height }, subject, warnings };
    await journal.append({ ...NOTHING, file: url, key, ...made, credits: 1 });
    if (warnings.length > 0) progress.line(`${shown(url)}: ${warnedOf(warnings)}`);
  } catch (error) {
    if (!(error instanceof MattingError)) throw error;
    const { code, message: detail } = error;
    failed.push(url);
    await journal.append({
      ...NOTHING,
      file: url,
      key,
      job: result.job_id,
      error: { code, detail },
    });
    progress.line(`${shown(url)}: ${code}: ${shown(detail)}`);
  }
  progress.ended(url, true);
}

function failureOf(result: BatchResult): MattingError {
  if (result.status === 'failed') {
    const { code, detail, retryable } = result.error;
    return new MattingError(detail, { code, retryable, jobId: result.job_id });
  }
  const detail = 'the result is no longer kept; use --run to process it again';
  return new MattingError(detail, { code: 'RESULT_EXPIRED', retryable: false });
}

/** One address a line; blank lines and those that begin with # are left out. */
async function readUrls(list: string): Promise<string[]> {
  const text = await readFile(list, 'utf8').catch((error: Error) => {
    throw new CommandError(`cannot read the list: ${error.message}`, NO_INPUT_EXIT_CODE);
  });
  const lines = text.split(/\r?\n/).map(line => line.trim());
  const urls = lines.filter(line => line !== '' && !line.startsWith('#'));
  const wrong = urls.find(url => !/^https?:\/\//i.test(url));
  if (wrong !== undefined) throw misuse(`${shown(wrong)} is no http or https address`);
  if (urls.length === 0) throw misuse(`${list} lists no address; write one on each line`);
  if (urls.length <= URLS_MAX) return urls;
  throw misuse(`${list} lists more than ${URLS_MAX} addresses; split it`);
}

/** The last part of its path as a name of a file, without its ending. */
function nameOf(url: string): string {
  const { pathname } = new URL(url);
  const stem = path.posix.parse(pathname).name.replaceAll(/[^A-Za-z0-9._-]+/g, '-');
  return stem.replace(/^[.-]+/, '').slice(0, NAME_LENGTH_MAX) || 'picture';
}
