/**
 * A caller as docs/rest.md asks it to be: one Idempotency-Key an image, the same request again until
 * it is answered, any replica. It keeps what it was promised.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { WireJob } from '../support/running-service.ts';
import type { SeededRandom } from './seeded-random.ts';

const REQUEST_TIMEOUT_MS = 15_000;
/** A Retry-After is heeded up to this, so that the test ends. */
const RETRY_WAIT_MS_MAX = 1000;
const POLL_MS = 250;
/** Over every kill of a run, a lease each: longer than that and the job is lost. */
const PATIENCE_MS_MAX = 180_000;
/** New jobs of one key, after retryable failures. */
const JOBS_MAX = 20;

export interface Delivery {
  readonly idempotencyKey: string;
  /** Every job the service named for this key, the last one last. */
  readonly jobIds: readonly string[];
  /** As it was read last; final. */
  readonly job: WireJob;
}

export interface CallerOptions {
  readonly urls: readonly string[];
  readonly apiKey: string;
  readonly random: SeededRandom;
}

interface Answer {
  readonly status: number;
  readonly body: WireJob;
}

export class ChaosCaller {
  readonly #options: CallerOptions;

  constructor(options: CallerOptions) {
    this.#options = options;
  }

  /** Rejects where the image is neither cut out nor refused for good in time, or jobs get mixed up. */
  async deliver(idempotencyKey: string, body: object): Promise<Delivery> {
    const mode = this.#options.random.next() < 0.5 ? '/v1/matting' : '/v1/matting/jobs';
    const giveUpAt = performance.now() + PATIENCE_MS_MAX;
    const jobIds: string[] = [];
    const follow = async (jobId: string) => {
      if (jobIds.at(-1) !== jobId) jobIds.push(jobId);
      return this.#final(jobId, giveUpAt);
    };
    while (jobIds.length < JOBS_MAX) {
      const answer = await this.#answer(mode, idempotencyKey, giveUpAt, JSON.stringify(body));
      const { job_id: jobId } = answer.body;
      if (jobId === undefined) {
        throw new Error(`${idempotencyKey}: ${answer.status} ${JSON.stringify(answer.body)}`);
      }
      const job = await follow(jobId);
      // The key is free again: the same request makes a new job.
      if (job.status === 'failed' && job.error?.retryable === true) continue;
      return { idempotencyKey, jobIds, job };
    }
    throw new Error(`${idempotencyKey}: ${JOBS_MAX} jobs failed`);
  }

  /** As the service has it now. */
  read(jobId: string): Promise<WireJob> {
    return this.#final(jobId, performance.now() + PATIENCE_MS_MAX);
  }

  async #final(jobId: string, giveUpAt: number): Promise<WireJob> {
    for (;;) {
      const { status, body } = await this.#answer(`/v1/matting/jobs/${jobId}`, 'read', giveUpAt);
      if (status !== 200) throw new Error(`job ${jobId}: ${status} ${JSON.stringify(body)}`);
      if (body.status !== 'queued' && body.status !== 'processing') return body;
      if (performance.now() > giveUpAt) {
        throw new Error(`job ${jobId} is still ${body.status}: ${JSON.stringify(body)}`);
      }
      await delay(POLL_MS);
    }
  }

  /** The first answer that is not "come again". */
  async #answer(
    place: string,
    idempotencyKey: string,
    giveUpAt: number,
    body?: string,
  ): Promise<Answer> {
    let last = 'nothing';
    while (performance.now() < giveUpAt) {
      const url = this.#options.random.pick(this.#options.urls);
      try {
        const response = await fetch(`${url}${place}`, {
          method: body === undefined ? 'GET' : 'POST',
          headers: {
            authorization: `Bearer ${this.#options.apiKey}`,
            'idempotency-key': idempotencyKey,
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          },
          ...(body === undefined ? {} : { body }),
          signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
        });
        const answer = { status: response.status, body: (await response.json()) as WireJob };
        if (![429, 500, 503].includes(answer.status)) return answer;
        last = `${answer.status} ${JSON.stringify(answer.body)}`;
        const retryAfterMs = 1000 * Number(response.headers.get('retry-after') ?? 0);
        await delay(Math.min(RETRY_WAIT_MS_MAX, retryAfterMs));
      } catch (error) {
        // Killed under the request, or not up again yet.
        last = String(error instanceof Error ? (error.cause ?? error) : error);
        await delay(POLL_MS);
      }
    }
    throw new Error(`${place} ${idempotencyKey}: not answered in time, last: ${last}`);
  }
}
