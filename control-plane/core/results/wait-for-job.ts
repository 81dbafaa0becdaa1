import { addAbortListener } from 'node:events';
import { outsideRequests } from '@matting/program/request-owner.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { isFinal } from '@matting/queue/job.ts';
import type { FastifyReply } from 'fastify';
import type { Job } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { withJob } from './job-errors.ts';
import type { JobEvents } from './job-events.ts';

/** Longest delay until this replica sees the end of a job in another. */
const POLL_MS = 500;
const POLL_JOBS_MAX = 500;

type WaitingJobs = Pick<JobStore, 'findForKey' | 'findFinal'>;

interface Wait {
  readonly jobId: string;
  resolve(job: Job | undefined): void;
  reject(error: unknown): void;
}

/** Only the row decides; an event, or a poll for ends in other replicas, says when to read it. */
export class WaitForJob {
  readonly #jobs: WaitingJobs;
  readonly #events: JobEvents;
  readonly #waits = new Map<string, Set<Wait>>();
  readonly #due = new Set<string>();
  #reading = false;
  #poll: NodeJS.Timeout | undefined;
  #waiting = 0;
  #ended = false;

  constructor(jobs: WaitingJobs, events: JobEvents) {
    this.#jobs = jobs;
    this.#events = events;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Ends every wait, now and later, at once with the job as it is. */
  endAllWaits(): void {
    this.#ended = true;
    for (const wait of [...this.#waits.values()].flatMap(waits => [...waits])) {
      wait.resolve(undefined);
    }
  }

  /** May return before the end: after `waitMs`, a hang-up or a drain. */
  async wait(job: Job, waitMs: number, hangUp: AbortSignal): Promise<Job> {
    const over = this.#ended || waitMs <= 0;
    const final = over ? undefined : await this.#untilFinal(job.id, waitMs, hangUp);
    if (final !== undefined || hangUp.aborted) return final ?? job;
    return (await this.#jobs.findForKey(job.id, job.apiKeyId)) ?? job;
  }

  async #untilFinal(jobId: string, waitMs: number, hangUp: AbortSignal): Promise<Job | undefined> {
    if (hangUp.aborted) return undefined;
    const { promise, resolve, reject } = Promise.withResolvers<Job | undefined>();
    const wait: Wait = { jobId, resolve, reject };
    const giveUp = () => resolve(undefined);
    using _timer = setTimeout(giveUp, waitMs);
    using _hangUp = addAbortListener(hangUp, giveUp);
    this.#add(wait);
    // Before the first read, or an end between them would be missed.
    const unsubscribe = this.#events.onFinal(jobId, () => this.#pollFor(jobId));
    this.#pollFor(jobId);
    try {
      return await promise;
    } finally {
      unsubscribe();
      this.#remove(wait);
    }
  }

  #add(wait: Wait): void {
    const waits = this.#waits.get(wait.jobId) ?? new Set();
    this.#waits.set(wait.jobId, waits.add(wait));
    this.#waiting += 1;
    this.#poll ??= setInterval(() => {
      for (const id of this.#waits.keys()) this.#pollFor(id);
    }, POLL_MS);
  }

  #remove(wait: Wait): void {
    const waits = this.#waits.get(wait.jobId);
    waits?.delete(wait);
    if (waits?.size === 0) this.#waits.delete(wait.jobId);
    this.#waiting -= 1;
    if (this.#waiting > 0) return;
    clearInterval(this.#poll);
    this.#poll = undefined;
  }

  /** One poll reads all ids of this tick of the event loop. */
  #pollFor(jobId: string): void {
    this.#due.add(jobId);
    if (this.#reading) return;
    this.#reading = true;
    setImmediate(() => outsideRequests(() => void this.#readDue()));
  }

  /** Never rejects. Reads an id again if it becomes due meanwhile. */
  async #readDue(): Promise<void> {
    while (this.#due.size > 0) {
      const ids = [...this.#due].slice(0, POLL_JOBS_MAX);
      for (const id of ids) this.#due.delete(id);
      try {
        for (const job of await this.#jobs.findFinal(ids)) {
          for (const wait of this.#waits.get(job.id) ?? []) wait.resolve(job);
        }
      } catch (error) {
        this.#failed(ids, error);
      }
    }
    this.#reading = false;
  }

  #failed(ids: readonly string[], error: unknown): void {
    // The database is away; the next poll reads again.
    if (error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE') return;
    for (const id of ids) for (const wait of this.#waits.get(id) ?? []) wait.reject(error);
  }
}

/** As `WaitForJob.wait`. @throws ContractError that names the job, which continues */
export async function waitForEnd(
  waitForJob: Pick<WaitForJob, 'wait'>,
  job: Job,
  waitMs: number,
  reply: FastifyReply,
): Promise<Job> {
  if (isFinal(job)) return job;
  const hangUp = new AbortController();
  const onClose = () => hangUp.abort();
  reply.raw.once('close', onClose);
  // The caller may have hung up while the body was stored.
  if (reply.raw.closed) onClose();
  try {
    return await waitForJob.wait(job, waitMs, hangUp.signal);
  } catch (cause) {
    throw withJob(cause, job.id);
  } finally {
    reply.raw.off('close', onClose);
  }
}
