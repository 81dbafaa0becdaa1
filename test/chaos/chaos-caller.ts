/** Follows docs/requests.md, or is an agent. Needs: removebg, mcp. */
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { WireJob } from '../running-service.ts';
import type { Random } from '../support/random.ts';
import type { Submission } from './manners.ts';

const REQUEST_TIMEOUT_MS = 15_000;
/** Longest obeyed Retry-After, so that the test ends. */
const RETRY_WAIT_MS_MAX = 1000;
const POLL_MS = 250;
/** Over all kills of a run, a lease each; after that the job counts as lost. */
const PATIENCE_MS_MAX = 180_000;
/** Jobs of a key after retryable failures. */
const JOBS_MAX = 20;

export interface Delivery {
  readonly idempotencyKey: string;
  readonly jobIds: readonly string[];
  /** Every complete picture by its job; hexadecimal. */
  readonly pictures: readonly (readonly [jobId: string, sha256: string])[];
  readonly job: WireJob;
}

export interface CallerOptions {
  readonly urls: readonly string[];
  readonly apiKey: string;
  readonly random: Random;
}

interface Answer {
  readonly status: number;
  /** Holds only the id if the answer is a picture. */
  readonly body: Partial<WireJob>;
  readonly pictureSha256: string | undefined;
}

export class ChaosCaller {
  readonly #options: CallerOptions;

  constructor(options: CallerOptions) {
    this.#options = options;
  }

  /** Rejects on timeout or if jobs get mixed up. */
  async deliver(idempotencyKey: string, submissions: readonly Submission[]): Promise<Delivery> {
    const giveUpAt = performance.now() + PATIENCE_MS_MAX;
    const jobIds: string[] = [];
    const pictures: (readonly [jobId: string, sha256: string])[] = [];
    while (jobIds.length < JOBS_MAX) {
      // Two at once, at two processes: both must get one job.
      const twins = [1, 2].map(() => this.#answer(idempotencyKey, submissions, giveUpAt));
      const told = new Set<string>();
      for (const { status, body, pictureSha256 } of await Promise.all(twins)) {
        const { job_id: jobId } = body;
        if (jobId === undefined) {
          throw new Error(`${idempotencyKey}: ${status} ${JSON.stringify(body)}`);
        }
        told.add(jobId);
        if (!jobIds.includes(jobId)) jobIds.push(jobId);
        if (pictureSha256 !== undefined) pictures.push([jobId, pictureSha256]);
      }
      // Or one gets a job that failed and freed its key, and the other the next job.
      const jobs = await Promise.all([...told].map(jobId => this.#final(jobId, giveUpAt)));
      const job = jobs.find(
        ({ status, error }) => status !== 'failed' || error?.retryable !== true,
      );
      // The key is free again: the same request makes a new job.
      if (job === undefined) continue;
      if (job.status === 'succeeded') {
        const replay = await this.#replay(idempotencyKey, submissions, giveUpAt);
        if (replay !== undefined) pictures.push(replay);
      }
      return { idempotencyKey, jobIds, pictures, job };
    }
    throw new Error(`${idempotencyKey}: ${JOBS_MAX} jobs failed`);
  }

  /** Undefined: no form of the request takes a picture. */
  async #replay(
    idempotencyKey: string,
    submissions: readonly Submission[],
    giveUpAt: number,
  ): Promise<readonly [jobId: string, sha256: string] | undefined> {
    const takers = submissions.filter(({ takesPicture }) => takesPicture);
    if (takers.length === 0) return undefined;
    for (;;) {
      const { status, body, pictureSha256 } = await this.#answer(idempotencyKey, takers, giveUpAt);
      if (body.job_id !== undefined && pictureSha256 !== undefined) {
        return [body.job_id, pictureSha256];
      }
      // The storage was killed, so the job's picture cannot be read now.
      if (status !== 503 || performance.now() > giveUpAt) {
        throw new Error(`${idempotencyKey} replayed: ${status} ${JSON.stringify(body)}`);
      }
      await delay(POLL_MS);
    }
  }

  read(jobId: string): Promise<WireJob> {
    return this.#final(jobId, performance.now() + PATIENCE_MS_MAX);
  }

  async #final(jobId: string, giveUpAt: number): Promise<WireJob> {
    for (;;) {
      const path = `/v1/matting/jobs/${jobId}`;
      const headers = { 'idempotency-key': 'read' };
      const { status, body } = await this.#answer('read', [{ path, headers }], giveUpAt);
      if (status !== 200) throw new Error(`job ${jobId}: ${status} ${JSON.stringify(body)}`);
      if (body.status !== 'queued' && body.status !== 'processing') return body as WireJob;
      if (performance.now() + POLL_MS > giveUpAt) {
        throw new Error(`job ${jobId} is still ${body.status}: ${JSON.stringify(body)}`);
      }
      await delay(POLL_MS);
    }
  }

  async #answer(
    what: string,
    requests: readonly (Pick<Submission, 'path' | 'headers'> & Partial<Submission>)[],
    giveUpAt: number,
  ): Promise<Answer> {
    const { random, urls, apiKey } = this.#options;
    let last = 'nothing';
    while (performance.now() < giveUpAt) {
      const { path = '', headers, body } = random.pick(requests);
      try {
        const response = await fetch(`${random.pick(urls)}${path}`, {
          method: body === undefined ? 'GET' : 'POST',
          headers: { authorization: `Bearer ${apiKey}`, ...headers },
          ...(body === undefined ? {} : { body }),
          signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
        });
        const answer = await read(response);
        if (![429, 500, 503].includes(answer.status)) return answer;
        // Read the job before sending again: it may have freed its key.
        if (answer.body.job_id !== undefined) return answer;
        last = `${answer.status} ${JSON.stringify(answer.body)}`;
        const retryAfterMs = 1000 * Number(response.headers.get('retry-after') ?? 0);
        await delay(Math.min(RETRY_WAIT_MS_MAX, retryAfterMs));
      } catch (error) {
        // The process was killed during the request, or is starting.
        last = String(error instanceof Error ? (error.cause ?? error) : error);
        await delay(POLL_MS);
      }
    }
    throw new Error(`${what}: not answered in time, last: ${last}`);
  }
}

/** A job, or a problem with its status on /v1. */
interface ToldToAgents {
  readonly result?: { readonly structuredContent?: { readonly status: unknown } };
}

async function read(response: Response): Promise<Answer> {
  const { status, headers } = response;
  const jobId = headers.get('x-job-id');
  const named = jobId === null ? {} : { job_id: jobId };
  if (!headers.get('content-type')?.startsWith('image/')) {
    const body = (await response.json()) as WireJob & ToldToAgents;
    const told = body.result?.structuredContent;
    if (told !== undefined) {
      const { status: ofError } = told;
      const isError = typeof ofError === 'number';
      return {
        status: isError ? ofError : status,
        body: told as WireJob,
        pictureSha256: undefined,
      };
    }
    return { status, body: { ...named, ...body }, pictureSha256: undefined };
  }
  const picture = Buffer.from(await response.arrayBuffer());
  return {
    status,
    body: named,
    pictureSha256: createHash('sha256').update(picture).digest('hex'),
  };
}
