/**
 * Waiting for a job's end. The row is the truth; an event of this replica, or the poll, for jobs
 * that end in another one, only says when to look. A wait that ends changes nothing about the job.
 *
 * However many wait, they look together: one statement a look names the jobs of them all, so what
 * waiting costs the database depends on the number of replicas and not on that of the callers.
 */
import { ContractError } from '#contract/errors.ts';
import type { Job } from '../../domain/job.ts';
import type { JobStore } from '../../store/jobs/job-store.ts';
import type { DatabaseTurns } from '../database-turns.ts';
import type { JobEvents } from '../job-events.ts';

/** Between looks without an event: how late the end of a job in another replica is seen. */
const POLL_MS = 500;
/** Jobs named in one statement. */
const LOOK_JOBS_MAX = 500;

type WaitingJobs = Pick<JobStore, 'findForKey' | 'findFinal'>;

interface Wait {
  readonly job: Job;
  /** The final job; undefined: look no longer, the wait is over. */
  resolve(job: Job | undefined): void;
  reject(error: unknown): void;
}

export class WaitForJob {
  readonly #jobs: WaitingJobs;
  readonly #events: JobEvents;
  readonly #turns: Pick<DatabaseTurns, 'ofAccount'>;
  readonly #waits = new Map<string, Set<Wait>>();
  /** Ids the next look asks for. */
  readonly #due = new Set<string>();
  #looking = false;
  #poll: NodeJS.Timeout | undefined;
  #waiting = 0;
  #ended = false;

  constructor(jobs: WaitingJobs, events: JobEvents, turns: Pick<DatabaseTurns, 'ofAccount'>) {
    this.#jobs = jobs;
    this.#events = events;
    this.#turns = turns;
  }

  /** Requests that wait now. */
  get waiting(): number {
    return this.#waiting;
  }

  /** From now on nobody waits here: every wait ends at once with the job as it is. */
  endAllWaits(): void {
    this.#ended = true;
    for (const wait of [...this.#waits.values()].flatMap(waits => [...waits])) {
      wait.resolve(undefined);
    }
  }

  /**
   * The job as last read: final, or as it was when `waitMs` had passed, the caller hung up or this
   * replica began to drain. Looks at least once. A database that is away is waited out: only when
   * it still is at the end does this reject with SERVICE_UNAVAILABLE.
   * @param hangUp aborted when the caller goes away
   */
  async wait(job: Job, waitMs: number, hangUp: AbortSignal): Promise<Job> {
    const over = this.#ended || waitMs <= 0;
    const final = over ? undefined : await this.#untilFinal(job, waitMs, hangUp);
    // Nobody reads the answer of a caller who is gone.
    if (final !== undefined || hangUp.aborted) return final ?? job;
    const read = () => this.#jobs.findForKey(job.id, job.apiKeyId);
    return (await this.#turns.ofAccount(job.accountId, read)) ?? job;
  }

  async #untilFinal(job: Job, waitMs: number, hangUp: AbortSignal): Promise<Job | undefined> {
    if (hangUp.aborted) return undefined;
    const { promise, resolve, reject } = Promise.withResolvers<Job | undefined>();
    const wait: Wait = { job, resolve, reject };
    const giveUp = () => resolve(undefined);
    const timer = setTimeout(giveUp, waitMs);
    hangUp.addEventListener('abort', giveUp);
    this.#add(wait);
    // Before the first look, or an end between look and subscription would go unseen.
    const unsubscribe = this.#events.onFinal(job.id, () => this.#lookFor(job.id));
    this.#lookFor(job.id);
    try {
      return await promise;
    } finally {
      unsubscribe();
      hangUp.removeEventListener('abort', giveUp);
      clearTimeout(timer);
      this.#remove(wait);
    }
  }

  #add(wait: Wait): void {
    const waits = this.#waits.get(wait.job.id) ?? new Set();
    this.#waits.set(wait.job.id, waits.add(wait));
    this.#waiting += 1;
    this.#poll ??= setInterval(() => {
      for (const id of this.#waits.keys()) this.#lookFor(id);
    }, POLL_MS);
  }

  #remove(wait: Wait): void {
    const waits = this.#waits.get(wait.job.id);
    waits?.delete(wait);
    if (waits?.size === 0) this.#waits.delete(wait.job.id);
    this.#waiting -= 1;
    if (this.#waiting > 0) return;
    clearInterval(this.#poll);
    this.#poll = undefined;
  }

  /** Once what is due in this turn of the loop is known, and the look before is back. */
  #lookFor(jobId: string): void {
    this.#due.add(jobId);
    if (this.#looking) return;
    this.#looking = true;
    setImmediate(() => void this.#look());
  }

  /** Never rejects. An id that is due again meanwhile is asked for again. */
  async #look(): Promise<void> {
    while (this.#due.size > 0) {
      const ids = [...this.#due].slice(0, LOOK_JOBS_MAX);
      for (const id of ids) this.#due.delete(id);
      try {
        for (const job of await this.#jobs.findFinal(ids)) {
          for (const wait of this.#waits.get(job.id) ?? []) wait.resolve(job);
        }
      } catch (error) {
        this.#failed(ids, error);
      }
    }
    this.#looking = false;
  }

  #failed(ids: readonly string[], error: unknown): void {
    // The job goes on without the database's answer, so the wait for it does: the poll looks again.
    if (error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE') return;
    for (const id of ids) for (const wait of this.#waits.get(id) ?? []) wait.reject(error);
  }
}
