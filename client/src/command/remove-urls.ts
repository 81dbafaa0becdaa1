/**
 * Cuts out pictures at addresses, in batches. The service downloads the pictures, the command the
 * results. It submits only addresses without a result in results.jsonl.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Batch, type BatchResult, type Job, MattingError } from '../index.ts';
import { Backoff } from '../retry-budget.ts';
import { CommandError, misuse } from './command-error.ts';
import { type Journal, NOTHING, type OpenLine } from './journal.ts';
import type { RemoveOptions } from './options.ts';
import { PartialFiles } from './partial-files.ts';
import { codeOf, receiveResult, sizeOf } from './picture-run.ts';
import { Progress, shown } from './progress.ts';
import {
  type Endings,
  failedError,
  failureOf,
  makeFolder,
  openJournal,
  requireService,
} from './remove.ts';
import { requireWritableName } from './result-names.ts';
import {
  EarlierBatches,
  type EarlierUrl,
  slicesOf,
  type UrlBatch,
  urlBatch,
} from './url-batches.ts';
import { readUrls, type UrlList } from './url-list.ts';
import { warnedOf } from './warnings.ts';

const NAME_LENGTH_MAX = 100;
/** Hexadecimal digits that distinguish addresses with equal last parts. */
const DIGITS = 12;
/** The pause between two reads of a batch. It doubles. */
const FIRST_POLL_MS = 250;
const POLL_MS_MAX = 5000;

type UrlOptions = RemoveOptions & { readonly to: string; readonly urls: string };

/** @throws CommandError, with exit code 1 if a picture failed */
export async function removeUrls(options: UrlOptions, endings: Endings): Promise<void> {
  const list = await readUrls(options.urls);
  await makeFolder(options.to);
  const earlier = new EarlierBatches();
  const journal = await openJournal(options.to, line => earlier.add(line));
  try {
    await new UrlRun(
      options,
      list,
      journal,
      earlier.earlierUrls(options, list.urls),
      endings,
    ).all();
  } finally {
    await journal.close();
  }
}

class UrlRun {
  readonly #options: UrlOptions;
  readonly #list: UrlList;
  readonly #journal: Journal;
  readonly #earlier: ReadonlyMap<string, EarlierUrl>;
  readonly #signal: AbortSignal;
  readonly #partials = new PartialFiles();
  readonly #progress: Progress;
  /** Addresses to submit, with the number of the attempt. */
  readonly #toSubmit = new Map<string, number>();
  /** Addresses whose jobs are known. */
  readonly #toCheck: string[] = [];
  readonly #toResume = new Set<UrlBatch>();
  /** By address: the key of the batch that must still end it. */
  readonly #awaited = new Map<string, string>();
  #made = 0;
  #skipped = 0;
  #failed = 0;
  /** Pictures that failed permanently. */
  #lost = 0;

  constructor(
    options: UrlOptions,
    list: UrlList,
    journal: Journal,
    earlierUrls: ReadonlyMap<string, EarlierUrl>,
    { draining }: Endings,
  ) {
    this.#options = options;
    this.#list = list;
    this.#journal = journal;
    this.#earlier = earlierUrls;
    this.#signal = draining;
    this.#progress = new Progress(list.lines.size, process.stderr);
  }

  async all(): Promise<void> {
    let stopped: unknown;
    try {
      for (const url of this.#list.lines.keys()) await this.#plan(url);
      if (this.#toSubmit.size + this.#toCheck.length + this.#toResume.size > 0) {
        await requireService(this.#options, this.#toSubmit.size);
      }
      for (const url of this.#toCheck) await this.#check(url);
      for (const batch of this.#toResume) await this.#resume(batch);
      for (const batch of this.#newBatches()) await this.#carryOut(batch);
    } catch (error) {
      stopped = error instanceof MattingError ? failureOf(error, 'stopped: ') : error;
    } finally {
      this.#progress.stop();
    }
    const left = this.#list.lines.size - this.#made - this.#skipped - this.#failed;
    const repeated = this.#list.urls.length - this.#list.lines.size;
    const parts = [
      `${this.#made} cut out`,
      ...(this.#skipped > 0 ? [`${this.#skipped} already there`] : []),
      `${this.#failed} failed`,
      ...(left > 0 ? [`${left} not finished`] : []),
      ...(repeated > 0 ? [`${repeated} repeated`] : []),
    ];
    process.stdout.write(`matting: ${shown(parts.join(', '))}\n`);
    if (stopped !== undefined) throw stopped;
    if (left > 0) throw new CommandError(`${left} not finished; run the same command again`);
    if (this.#failed > 0) throw failedError(this.#failed, this.#lost);
  }

  /** Decides what to do with the address. Sends nothing. */
  async #plan(url: string): Promise<void> {
    const { batch, end } = this.#earlier.get(url) ?? {};
    const target = this.#targetOf(url);
    const bytes = end?.output && this.#journal.bytesOfDone(end.output, end.key ?? '');
    if (bytes && bytes === (await sizeOf(target))) {
      this.#skipped += 1;
      this.#progress.ended(url, false);
      return;
    }
    if (end?.error?.retryable === false) {
      this.#fail(url, end.error);
      return;
    }
    try {
      await requireWritableName(target);
    } catch (failed) {
      const error = { code: codeOf(failed as Error), detail: (failed as Error).message };
      await this.#journal.append({ ...NOTHING, file: url, error });
      this.#fail(url, error);
      return;
    }
    if (batch === undefined) this.#toSubmit.set(url, 1);
    else if (end?.error?.retryable) this.#toSubmit.set(url, batch.attempt + 1);
    else if (end?.job) this.#toCheck.push(url);
    else {
      this.#toResume.add(batch);
      this.#awaited.set(url, batch.key);
    }
  }

  /** Reads the address's job: its file may be missing, or it is unknown whether a retry helps. */
  async #check(url: string): Promise<void> {
    const { batch, end } = this.#earlier.get(url)!;
    const job = await this.#jobOf(end?.job ?? '');
    const isPaid = end?.error === null || (end?.credits ?? 0) > 0;
    if (job === undefined && isPaid) this.#fail(url, EXPIRED);
    else if (job === undefined || (job.status === 'failed' && job.error.retryable)) {
      this.#toSubmit.set(url, batch.attempt + 1);
    } else await this.#end(url, end?.key ?? '', job);
  }

  /** undefined: the service has forgotten the job. */
  async #jobOf(jobId: string): Promise<Job | undefined> {
    try {
      return await this.#options.client.job(jobId, this.#callOptions());
    } catch (error) {
      if (codeOf(error as Error) === 'JOB_NOT_FOUND') return undefined;
      throw error;
    }
  }

  /** Resubmitting a batch that the service has forgotten would charge finished items again. */
  async #resume(batch: UrlBatch): Promise<void> {
    const last = batch.lines.filter(line => line?.job).pop()?.job;
    if (last && (await this.#jobOf(last)) === undefined) {
      for (const [url, key] of this.#awaited) {
        if (key === batch.key) this.#toSubmit.set(url, batch.attempt + 1);
      }
    } else await this.#carryOut(batch);
  }

  /** From a new list this makes the same batches as an older version of the command. */
  *#newBatches(): Generator<UrlBatch> {
    const earlier = new Set<string>();
    for (const slice of slicesOf(this.#list.urls.filter(url => this.#toSubmit.has(url)))) {
      const urls = slice.filter(url => !earlier.has(url));
      const attempt = Math.max(...urls.map(url => this.#toSubmit.get(url) ?? 1));
      const batch = urlBatch(this.#options, urls, attempt);
      for (const url of urls) {
        earlier.add(url);
        this.#awaited.set(url, batch.key);
      }
      if (urls.length > 0) yield batch;
    }
  }

  async #carryOut(batch: UrlBatch): Promise<void> {
    const begun = batch.urls.flatMap((file, item) =>
      batch.lines[item] === undefined ? { ...NOTHING, file, key: `${batch.key}:${item}` } : [],
    );
    await this.#journal.append(...begun);
    await this.#journal.sync();
    const { urls, submitted } = await this.#submit(batch);
    const { batch_id: id } = await this.#finished(submitted);
    for await (const result of this.#options.client.batchResults(id, this.#callOptions())) {
      const url = urls[result.item] ?? '';
      if (this.#awaited.get(url) !== batch.key || !isFinal(result)) continue;
      this.#awaited.delete(url);
      await this.#end(url, `${batch.key}:${batch.urls.indexOf(url)}`, result);
    }
  }

  /**
   * Sends a repeated address once. If the service refuses that, an older version of the command has
   * submitted the batch with repetitions.
   */
  async #submit(batch: UrlBatch): Promise<{ urls: readonly string[]; submitted: Batch }> {
    const { client, fields } = this.#options;
    const send = async (urls: readonly string[]) => {
      const items = urls.map(image_url => ({ image_url }));
      const keyed = { ...this.#callOptions(), idempotencyKey: batch.key };
      return { urls, submitted: await client.submitBatch({ items, ...fields }, keyed) };
    };
    const once = [...new Set(batch.urls)];
    try {
      return await send(once).catch((error: Error) => {
        if (codeOf(error) === 'IDEMPOTENCY_CONFLICT') return send(batch.urls);
        throw error;
      });
    } catch (error) {
      if (error instanceof MattingError && isRefusal(error)) await this.#release(batch, error);
      throw this.#namingLine(error, once);
    }
  }

  /** The service has refused the batch, so the next run must submit another one. */
  async #release({ key, urls }: UrlBatch, { code, message: detail }: MattingError): Promise<void> {
    const error = { code, detail, retryable: true };
    const lines = urls.flatMap((file, item) =>
      this.#awaited.get(file) === key ? { ...NOTHING, file, key: `${key}:${item}`, error } : [],
    );
    await this.#journal.append(...lines);
  }

  /** The service counts items from 0, people lines from 1. */
  #namingLine(error: unknown, urls: readonly string[]): unknown {
    if (!(error instanceof MattingError)) return error;
    const [wrong] = error.fieldErrors;
    const [, item, field] = /^items\[(\d+)\]\.(.+)$/.exec(wrong?.field ?? '') ?? [];
    const line = this.#list.lines.get(urls[Number(item)] ?? '');
    if (line === undefined) return error;
    return misuse(`${this.#options.urls}:${line}: ${error.code}: ${field} ${wrong?.detail}`);
  }

  /** Reads often at first, since a few pictures take less time than the later pause. */
  async #finished(submitted: Batch): Promise<Batch> {
    let batch = submitted;
    const pause = new Backoff(FIRST_POLL_MS);
    for (;;) {
      const { waiting, queued, processing, ...ended } = batch.counts;
      if (waiting + queued + processing === 0) return batch;
      const count = Object.values(ended).reduce((sum, one) => sum + one);
      this.#progress.note(`${count} of ${count + waiting + queued + processing} in this batch`);
      await sleep(Math.min(pause.next(), POLL_MS_MAX), undefined, { signal: this.#signal });
      batch = await this.#options.client.batch(batch.batch_id, this.#callOptions());
    }
  }

  /** Downloads a result. A line that cannot be written does not stop the other pictures. */
  async #end(url: string, key: string, job: Job | BatchResult): Promise<void> {
    const line: OpenLine = { ...NOTHING, file: url, key, job: job.job_id };
    const target = this.#targetOf(url);
    try {
      if (job.status === 'failed') line.error = job.error;
      else if (job.status !== 'succeeded') line.error = EXPIRED;
      else {
        line.credits = job.credits.charged;
        const call = { client: this.#options.client, ...this.#callOptions() };
        await this.#partials.write(target, file => receiveResult(job, file, line, call));
        line.output = path.relative(this.#options.to, target);
      }
    } catch (error) {
      this.#signal.throwIfAborted();
      // Its retries are used up, so the next picture would fail, too.
      if (!(error instanceof Error) || (error instanceof MattingError && error.retryable))
        throw error;
      line.size = null;
      line.error = { code: codeOf(error), detail: error.message };
    }
    const { error, warnings } = line;
    // If the line is not written, the next run asks for the picture again, without a charge.
    const unwritten = await this.#journal.append(line).then(
      () => null,
      (failed: Error) => ({ code: codeOf(failed), detail: failed.message }),
    );
    const failure = error ?? unwritten;
    if (failure !== null) {
      this.#fail(url, failure);
      return;
    }
    if (warnings.length > 0) this.#progress.line(`${url}: ${warnedOf(warnings)}`);
    this.#made += 1;
    this.#progress.ended(url, true);
  }

  #fail(url: string, { code, detail, retryable }: NonNullable<OpenLine['error']>): void {
    this.#failed += 1;
    if (retryable === false) this.#lost += 1;
    const line = this.#list.lines.get(url);
    this.#progress.line(`${this.#options.urls}:${line}: ${url}: ${code}: ${detail}`);
    this.#progress.ended(url, false);
  }

  #targetOf(url: string): string {
    const output = this.#earlier.get(url)?.end?.output ?? outputOf(url, this.#options.ending);
    return path.join(this.#options.to, output);
  }

  #callOptions() {
    return { giveUpMs: this.#options.giveUpMs, signal: this.#signal };
  }
}

const EXPIRED = {
  code: 'RESULT_EXPIRED',
  detail: 'the result is no longer kept; use --run to process it again',
  retryable: false,
};

function isFinal({ status }: BatchResult): boolean {
  return status === 'succeeded' || status === 'failed' || status === 'expired';
}

/** An answer from a proxy says nothing about the batch. */
function isRefusal({ code, retryable }: MattingError): boolean {
  return !retryable && code !== 'UNREADABLE_ANSWER';
}

/** The path's last part as a file name, with a unique suffix. */
function outputOf(url: string, ending: string): string {
  const stem = path.posix.parse(new URL(url).pathname).name.replaceAll(/[^A-Za-z0-9._-]+/g, '-');
  const name = stem.replace(/^[.-]+/, '').slice(0, NAME_LENGTH_MAX) || 'picture';
  return `${name}-${createHash('sha256').update(url).digest('hex').slice(0, DIGITS)}.${ending}`;
}
