import { errorOfJob, errorOfProblem, isProblem, MattingError, noAnswer } from './errors.ts';
import {
  ANSWER_MS_DEFAULT,
  type Answer,
  type Fetch,
  type Request,
  sendWithRetries,
  type Transport,
} from './exchange.ts';
import {
  collect,
  type FileAnswer,
  isFileAnswer,
  openResult,
  type ResultFile,
} from './result-file.ts';
import { Backoff, parseRetryAfterMs, RetryBudget, type RetryOptions } from './retry-budget.ts';
import { type MattingRequest, prepare, prepareCorrection, type Submission } from './submission.ts';
import type {
  Account,
  Batch,
  BatchFilter,
  BatchRequest,
  BatchResult,
  CorrectionFields,
  Job,
  JobFilter,
  Model,
  ProcessingJob,
  QueuedJob,
  ResultWarning,
  Subject,
  SucceededJob,
  Usage,
  UsageGroup,
} from './types.ts';

export const PATHS = {
  matting: '/v1/matting',
  jobs: '/v1/matting/jobs',
  batches: '/v1/matting/batches',
  account: '/v1/account',
  usage: '/v1/account/usage',
  models: '/v1/models',
} as const;

/** The Idempotency-Key of reads. A service may require one, but ignores its value. */
const READ_KEY = 'read';
/** The most items that the service allows on a page. */
const LIST_MAX = 100;
/** Pause between two reads of a job, if the service states no time. */
const POLL_MS = 1000;
/** Pause between the first two reads of a batch. Later the service states the time. */
const FIRST_POLL_MS = 250;
/** Pause before a job that failed temporarily is submitted again. */
const FIRST_PAUSE_MS = 1000;

type FinalJob = Exclude<Job, QueuedJob | ProcessingJob>;

const STATUSES: ReadonlySet<unknown> = new Set<Job['status']>([
  'queued',
  'processing',
  'succeeded',
  'failed',
  'expired',
]);

export interface MattingClientOptions {
  /** For example `https://matting.example.com`. */
  readonly baseUrl: string | URL;
  readonly apiKey: string;
  /** Replaces the runtime's `fetch`, for a proxy or a test. */
  readonly fetch?: Fetch;
  /**
   * Longest wait for an answer before a retry. Default: 150 s, since the service waits 120 s for a
   * job.
   */
  readonly answerMsMax?: number;
}

export type CallOptions = RetryOptions;

export interface SubmitOptions extends CallOptions {
  /**
   * Names the picture in 1 to 128 printable ASCII characters. Store the key outside of this
   * process: a later call with the same key is not charged again. Default: a new key for each call.
   */
  readonly idempotencyKey?: string | undefined;
}

type Downloadable = string | URL | Pick<SucceededJob, 'result'>;

/** A cut-out whose file is not read yet. */
export interface OpenCutOut extends ResultFile {
  readonly jobId: string;
  /** Valid for a day, without a key. */
  readonly url: string;
  readonly idempotencyKey: string;
  /** null: the picture shows no subject. undefined: the service did not report it. */
  readonly subject: Subject | null | undefined;
  readonly warnings: readonly ResultWarning[];
}

export interface CutOut extends Omit<OpenCutOut, 'pieces' | 'sizeBytes'> {
  readonly bytes: Uint8Array;
}

export type Download = Pick<CutOut, 'bytes' | 'contentType' | 'etag'>;

async function wholeOf<T extends ResultFile>({ pieces, sizeBytes: _, ...rest }: T) {
  return { ...rest, bytes: await collect(pieces) };
}

/**
 * @example
 * const client = new MattingClient({ baseUrl: 'http://127.0.0.1:8080', apiKey });
 * const { bytes } = await client.cutOut({ image: await readImage('photo.jpg') });
 */
export class MattingClient {
  readonly #baseUrl: string;
  readonly #authorization: string;
  readonly #transport: Transport;

  /** @throws TypeError: an invalid address or key */
  constructor(options: MattingClientOptions) {
    const { baseUrl, apiKey, fetch } = options;
    const url = new URL(baseUrl);
    if (!/^https?:$/.test(url.protocol) || url.username !== '' || url.search + url.hash !== '') {
      throw new TypeError('baseUrl must be http(s)://host[:port][/path]');
    }
    // Callers without types pass undefined for an unset variable.
    if (!apiKey) throw new TypeError('apiKey is missing: is MATTING_API_KEY set?');
    if (!/^[!-~]+$/.test(apiKey)) throw new TypeError('apiKey must be printable ASCII');
    this.#baseUrl = url.href.replace(/\/+$/, '');
    this.#authorization = `Bearer ${apiKey}`;
    this.#transport = {
      fetch: fetch ?? ((...request) => globalThis.fetch(...request)),
      answerMsMax: options.answerMsMax ?? ANSWER_MS_DEFAULT,
    };
  }

  /**
   * Submits a picture and returns its cut-out. Retries until it succeeds, fails permanently, or the
   * call gives up.
   * @throws MattingError; the signal's reason
   */
  async cutOut(request: MattingRequest, options: SubmitOptions = {}): Promise<CutOut> {
    return wholeOf(await this.openCutOut(request, options));
  }

  /** `cutOut` for large files: the file is streamed. */
  async openCutOut(request: MattingRequest, options: SubmitOptions = {}): Promise<OpenCutOut> {
    const idempotencyKey = keyOf(options);
    const budget = new RetryBudget(options);
    const submission = accepting('image/*', await prepare(request));
    const outcome = await this.#carryOut(PATHS.matting, submission, idempotencyKey, budget);
    if (isFileAnswer(outcome)) {
      const details = detailsOf(outcome, this.#url(PATHS.matting));
      const file = await openResult(this.#transport, details.url, budget, outcome);
      return { ...details, idempotencyKey, ...file };
    }
    const { job_id: jobId, result } = outcome;
    const file = await openResult(this.#transport, result.url, budget);
    // A service of 0.1.0 reports neither subject nor warnings.
    const { url, subject, warnings = [] } = result;
    return { jobId, url, subject, warnings, idempotencyKey, ...file };
  }

  /**
   * Submits a picture without waiting.
   * @returns the job, which may be final if the key was used before
   * @throws MattingError; the signal's reason
   */
  async submit(request: MattingRequest, options: SubmitOptions = {}): Promise<Job> {
    const idempotencyKey = keyOf(options);
    const budget = new RetryBudget(options);
    const submission = await prepare(request);
    return jobOf(await this.#post(PATHS.jobs, submission, idempotencyKey, budget));
  }

  /** Submits a picture and waits, with retries as in `cutOut`, without a download. */
  async run(request: MattingRequest, options: SubmitOptions = {}): Promise<SucceededJob> {
    const idempotencyKey = keyOf(options);
    const budget = new RetryBudget(options);
    const submission = await prepare(request);
    const outcome = await this.#carryOut(PATHS.matting, submission, idempotencyKey, budget);
    if (isFileAnswer(outcome)) throw unreadable(outcome);
    return outcome;
  }

  /**
   * Corrects the result of a job submitted with `correctable`, and waits. The correction is a new
   * job, free of charge.
   */
  async correct(
    job: string | Pick<Job, 'job_id'>,
    fields: CorrectionFields = {},
    options: SubmitOptions = {},
  ): Promise<SucceededJob> {
    const path = `${jobPath(typeof job === 'string' ? job : job.job_id)}/corrections`;
    const idempotencyKey = keyOf(options);
    const budget = new RetryBudget(options);
    const submission = await prepareCorrection(fields);
    const outcome = await this.#carryOut(path, submission, idempotencyKey, budget);
    if (isFileAnswer(outcome)) throw unreadable(outcome);
    return outcome;
  }

  async job(jobId: string, options: CallOptions = {}): Promise<Job> {
    return jobOf(await this.#get(jobPath(jobId), new RetryBudget(options)));
  }

  /**
   * Waits until the job has succeeded.
   * @throws MattingError with the failed job's code: if `retryable`, submit it again with the same
   * key; RESULT_EXPIRED: the result is gone
   */
  async wait(job: string | Pick<Job, 'job_id'>, options: CallOptions = {}): Promise<SucceededJob> {
    const jobId = typeof job === 'string' ? job : job.job_id;
    const outcome = outcomeOf(await this.#follow(jobId, new RetryBudget(options)));
    if (outcome instanceof MattingError) throw outcome;
    return outcome;
  }

  /** The API key's jobs, newest first. */
  jobs(filter: JobFilter = {}, options: CallOptions = {}): AsyncGenerator<Job> {
    return this.#list<'jobs', Job>('jobs', filter, options);
  }

  /** The API key's batches, newest first. */
  batches(filter: BatchFilter = {}, options: CallOptions = {}): AsyncGenerator<Batch> {
    return this.#list<'batches', Batch>('batches', filter, options);
  }

  async *#list<Name extends 'jobs' | 'batches', One>(
    name: Name,
    filter: JobFilter | BatchFilter,
    options: CallOptions,
  ): AsyncGenerator<One> {
    type Body = Readonly<Record<Name, readonly One[]>> & { readonly next_cursor: string | null };
    let cursor: string | undefined;
    do {
      const query = queryOf({ ...filter, limit: LIST_MAX, cursor });
      const answer = await this.#get(PATHS[name] + query, new RetryBudget(options));
      const page = bodyOf<Body>(answer, body => Array.isArray(body[name]));
      yield* page[name];
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  }

  /**
   * Cancels a queued job, or deletes a result. @throws MattingError JOB_NOT_CANCELLABLE: a node has
   * the job
   */
  async deleteJob(jobId: string, options: CallOptions = {}): Promise<Job> {
    return jobOf(await this.#send('DELETE', jobPath(jobId), new RetryBudget(options)));
  }

  /** Submits 1 to 1,000 addresses of pictures. Calls with the same key submit one batch. */
  submitBatch(request: BatchRequest, options: SubmitOptions = {}): Promise<Batch> {
    return this.#postBatch(PATHS.batches, request, options);
  }

  /** Submits the failed items of a finished batch as a new batch with the same fields. */
  submitBatchAgain(
    batchId: string,
    callback: Pick<BatchRequest, 'callback_url' | 'callback_secret'> = {},
    options: SubmitOptions = {},
  ): Promise<Batch> {
    return this.#postBatch(`${batchPath(batchId)}/again`, callback, options);
  }

  async #postBatch(path: string, request: object, options: SubmitOptions): Promise<Batch> {
    const headers = { 'content-type': 'application/json' };
    const submission = { headers, query: '', body: JSON.stringify(request) };
    return batchOf(await this.#post(path, submission, keyOf(options), new RetryBudget(options)));
  }

  async batch(batchId: string, options: CallOptions = {}): Promise<Batch> {
    return batchOf(await this.#get(batchPath(batchId), new RetryBudget(options)));
  }

  /** Waits until every item has ended, even if some fail. */
  async waitForBatch(batchId: string, options: CallOptions = {}): Promise<Batch> {
    const budget = new RetryBudget(options);
    for (const pause = new Backoff(FIRST_POLL_MS); ; ) {
      const answer = await this.#get(batchPath(batchId), budget);
      const batch = batchOf(answer);
      if (batch.finished_at !== null) return batch;
      const laterMs = parseRetryAfterMs(answer.headers.get('retry-after')) ?? POLL_MS;
      const waitMs = Math.min(laterMs, pause.next());
      if (waitMs >= budget.leftMs) throw noAnswer(`the batch is still ${batch.status}`);
      await budget.wait(waitMs);
    }
  }

  /** Yields the items in order, as jobs. */
  async *batchResults(batchId: string, options: CallOptions = {}): AsyncGenerator<BatchResult> {
    for (let cursor = 0; ; ) {
      const path = `${batchPath(batchId)}/results${queryOf({ limit: LIST_MAX, cursor })}`;
      const { lines, hasNext } = await this.#page(path, new RetryBudget(options));
      yield* lines;
      if (!hasNext) return;
      cursor += lines.length;
    }
  }

  /** Reads a page of results, with retries. */
  async #page(path: string, budget: RetryBudget) {
    const isFile = (type: string) => type.startsWith('application/jsonl');
    const request = { method: 'GET', url: this.#url(path), isFile } as const;
    for (const pause = new Backoff(FIRST_PAUSE_MS); ; ) {
      const answer = await sendWithRetries(
        this.#transport,
        { ...request, headers: this.#headers(READ_KEY) },
        budget,
      );
      if (!isFileAnswer(answer)) throw refusalOf(answer) ?? unreadable(answer);
      try {
        const text = new TextDecoder().decode(await collect(piecesOf(answer)));
        const lines = text.split('\n').filter(line => line !== '');
        const results = lines.map(line => JSON.parse(line) as BatchResult);
        return { lines: results, hasNext: answer.headers.has('link') };
      } catch (error) {
        if (error instanceof SyntaxError) throw unreadable(answer);
        if (!(error instanceof MattingError) || !error.retryable) throw error;
        await budget.beforeRetry(error, pause);
      }
    }
  }

  /** Cancels items that no node has begun, and returns their credits. */
  async cancelBatch(batchId: string, options: CallOptions = {}): Promise<Batch> {
    return batchOf(await this.#send('DELETE', batchPath(batchId), new RetryBudget(options)));
  }

  /** Downloads the file of a job or a result link. */
  async download(from: Downloadable, options: CallOptions = {}): Promise<Download> {
    return wholeOf(await this.openDownload(from, options));
  }

  /** `download` as a stream. */
  async openDownload(from: Downloadable, options: CallOptions = {}): Promise<ResultFile> {
    const link = typeof from === 'string' || from instanceof URL ? String(from) : from.result.url;
    return openResult(this.#transport, link, new RetryBudget(options));
  }

  async account(options: CallOptions = {}): Promise<Account> {
    const answer = await this.#get(PATHS.account, new RetryBudget(options));
    return bodyOf<Account>(answer, body => body.credits !== undefined);
  }

  /**
   * The account's use: by default the last 30 days, by day.
   * @param question dates in UTC, `2026-11-21`, inclusive, at most 366 days
   */
  async usage(
    question: { readonly from?: string; readonly to?: string; readonly group?: UsageGroup } = {},
    options: CallOptions = {},
  ): Promise<Usage> {
    const { from, to, group } = question;
    const query = queryOf({ from, to, group });
    const answer = await this.#get(PATHS.usage + query, new RetryBudget(options));
    return bodyOf<Usage>(answer, body => body.usage !== undefined);
  }

  /** The names for `model`. */
  async listModels(options: CallOptions = {}): Promise<readonly Model[]> {
    type Body = { readonly models: readonly Model[] };
    const answer = await this.#get(PATHS.models, new RetryBudget(options));
    return bodyOf<Body>(answer, body => Array.isArray(body.models)).models;
  }

  /** Returns the succeeded job, or the answer that is its file. */
  async #carryOut(
    path: string,
    submission: Submission,
    idempotencyKey: string,
    budget: RetryBudget,
  ): Promise<SucceededJob | FileAnswer> {
    const again = new Backoff(FIRST_PAUSE_MS);
    for (;;) {
      const answer = await this.#post(path, submission, idempotencyKey, budget);
      if (isFileAnswer(answer)) return answer;
      const outcome = refusalOf(answer) ?? outcomeOf(await this.#final(jobOf(answer), budget));
      if (!(outcome instanceof MattingError)) return outcome;
      // A job that failed temporarily has freed its key, so the same request makes a new job.
      if (!outcome.retryable) throw outcome;
      await budget.beforeRetry(outcome, again);
    }
  }

  async #final(job: Job, budget: RetryBudget): Promise<FinalJob> {
    return isOpen(job) ? this.#follow(job.job_id, budget) : job;
  }

  async #follow(jobId: string, budget: RetryBudget): Promise<FinalJob> {
    for (;;) {
      const answer = await this.#get(jobPath(jobId), budget);
      const job = jobOf(answer);
      if (!isOpen(job)) return job;
      const waitMs = parseRetryAfterMs(answer.headers.get('retry-after')) ?? POLL_MS;
      if (waitMs >= budget.leftMs) throw noAnswer(`the job is still ${job.status}`, { jobId });
      await budget.wait(waitMs);
    }
  }

  #post(
    path: string,
    { headers, query, body }: Submission,
    idempotencyKey: string,
    budget: RetryBudget,
  ): Promise<Answer> {
    const keyed = { ...this.#headers(idempotencyKey), ...headers };
    const isFile = (type: string) => headers.accept !== undefined && type.startsWith('image/');
    const request: Request = {
      method: 'POST',
      url: this.#url(path) + query,
      headers: keyed,
      body,
      isFile,
    };
    return sendWithRetries(this.#transport, request, budget);
  }

  #get(path: string, budget: RetryBudget): Promise<Answer> {
    return this.#send('GET', path, budget);
  }

  #send(method: 'GET' | 'DELETE', path: string, budget: RetryBudget): Promise<Answer> {
    const headers = this.#headers(READ_KEY);
    return sendWithRetries(this.#transport, { method, url: this.#url(path), headers }, budget);
  }

  /** Every URL is one of this service, so that no answer can send the key elsewhere. */
  #url(path: string): string {
    return `${this.#baseUrl}${path}`;
  }

  #headers(idempotencyKey: string): Record<string, string> {
    const accept = 'application/json';
    return { authorization: this.#authorization, 'idempotency-key': idempotencyKey, accept };
  }
}

function keyOf({ idempotencyKey = newKey() }: SubmitOptions): string {
  if (/^[ -~]{1,128}$/.test(idempotencyKey)) return idempotencyKey;
  throw new TypeError('idempotencyKey must be 1 to 128 printable ASCII characters');
}

/** Not a secret, only unique. Node 18 has no global crypto. */
function newKey(): string {
  const random = globalThis.crypto?.randomUUID?.();
  const digits = () => Math.random().toString(36).slice(2, 12);
  return random ?? `${Date.now().toString(36)}-${digits()}-${digits()}-${digits()}`;
}

function jobPath(jobId: string): string {
  return `${PATHS.jobs}/${encodeURIComponent(jobId)}`;
}

function queryOf(parameters: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const parts = given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
  return parts.length === 0 ? '' : `?${parts.join('&')}`;
}

async function* piecesOf({ pieces }: FileAnswer): AsyncGenerator<Uint8Array> {
  for (let piece = await pieces.read(); piece !== undefined; piece = await pieces.read()) {
    yield piece;
  }
}

function batchPath(batchId: string): string {
  return `${PATHS.batches}/${encodeURIComponent(batchId)}`;
}

function batchOf(answer: Answer): Batch {
  return bodyOf<Batch>(answer, ({ batch_id: id, counts }) => typeof id === 'string' && !!counts);
}

function isOpen(job: Job): job is QueuedJob | ProcessingJob {
  return job.status === 'queued' || job.status === 'processing';
}

function outcomeOf(job: FinalJob): SucceededJob | MattingError {
  if (job.status === 'succeeded') return job;
  const { job_id: jobId } = job;
  if (job.status === 'failed') return errorOfJob(jobId, job.error);
  const parts = { code: 'RESULT_EXPIRED', retryable: false, jobId } as const;
  return new MattingError('the result is no longer kept', parts);
}

function refusalOf({ status, json }: Answer): MattingError | undefined {
  return status >= 400 && isProblem(json) ? errorOfProblem(status, json) : undefined;
}

function jobOf(answer: Answer): Job {
  return bodyOf<Job>(
    answer,
    ({ job_id: id, status }) => typeof id === 'string' && STATUSES.has(status),
  );
}

function bodyOf<Body>(answer: Answer, fits: (body: Partial<Body>) => boolean): Body {
  const refusal = refusalOf(answer);
  if (refusal !== undefined) throw refusal;
  const { json } = answer;
  if (typeof json === 'object' && json !== null && fits(json)) return json as Body;
  throw unreadable(answer);
}

function unreadable({ status, headers }: Answer): MattingError {
  const requestId = headers.get('x-request-id') ?? undefined;
  const parts = { code: 'UNREADABLE_ANSWER', status, retryable: false, requestId } as const;
  return new MattingError(`an answer that is not the service's: ${status}`, parts);
}

function accepting(accept: string, submission: Submission): Submission {
  return { ...submission, headers: { ...submission.headers, accept } };
}

/** Reads the headers of an answer that is the picture. */
function detailsOf(
  { headers }: FileAnswer,
  base: string,
): Pick<OpenCutOut, 'jobId' | 'url' | 'subject' | 'warnings'> {
  return {
    jobId: headers.get('x-job-id') ?? '',
    url: new URL(headers.get('content-location') ?? '', base).href,
    subject: subjectOf(headers.get('x-subject-box'), headers.get('x-subject-share')),
    warnings: headers.get('x-warnings')?.split(', ') ?? [],
  };
}

/** A share of 0 means no subject. Without a share the subject is unknown. */
function subjectOf(box: string | null, share: string | null): Subject | null | undefined {
  if (share === null) return undefined;
  const [left, top, width, height] = (box ?? '').split(',').map(Number);
  if (left === undefined || top === undefined) return null;
  if (width === undefined || height === undefined) return null;
  return { left, top, width, height, share: Number(share) };
}
