/**
 * Waiting for a job's end. The row is the truth; events of this replica and a slow poll, for jobs
 * that end in another one, only say when to look. A wait that ends changes nothing about the job.
 */
import { isFinal, type Job } from '../domain/job.ts';
import type { JobStore } from '../store/job-store.ts';
import type { JobEvents } from './job-events.ts';

/**
 * Waits between looks without an event: each twice the one before, so that a short job of another
 * replica is seen soon and 1,000 long waits cost 500 reads a second.
 */
const POLL_MIN_MS = 250;
const POLL_MAX_MS = 2000;

export class WaitForJob {
  readonly #jobs: Pick<JobStore, 'findForKey'>;
  readonly #events: JobEvents;
  readonly #latches = new Set<Latch>();
  #ended = false;

  constructor(jobs: Pick<JobStore, 'findForKey'>, events: JobEvents) {
    this.#jobs = jobs;
    this.#events = events;
  }

  /** Requests that wait now. */
  get waiting(): number {
    return this.#latches.size;
  }

  /** From now on nobody waits here: every wait ends at once with the job as it is. */
  endAllWaits(): void {
    this.#ended = true;
    for (const latch of this.#latches) latch.open();
  }

  /**
   * The job as last read: final, or as it was when `waitMs` had passed, the caller hung up or this
   * replica began to drain. Looks at least once.
   * @param hangUp aborted when the caller goes away
   */
  async wait(job: Job, waitMs: number, hangUp: AbortSignal): Promise<Job> {
    const deadlineMs = performance.now() + waitMs;
    const latch = new Latch();
    const wake = () => latch.open();
    this.#latches.add(latch);
    hangUp.addEventListener('abort', wake);
    // Before the first look, or an end between look and subscription would go unseen.
    const unsubscribe = this.#events.onFinal(job.id, wake);
    try {
      let latest = job;
      for (let pollMs = POLL_MIN_MS; ; pollMs = Math.min(2 * pollMs, POLL_MAX_MS)) {
        latest = (await this.#jobs.findForKey(job.id, job.apiKeyId)) ?? latest;
        const leftMs = deadlineMs - performance.now();
        if (isFinal(latest) || leftMs <= 0 || hangUp.aborted || this.#ended) return latest;
        await latch.wait(Math.min(pollMs, leftMs));
      }
    } finally {
      unsubscribe();
      hangUp.removeEventListener('abort', wake);
      this.#latches.delete(latch);
    }
  }
}

/** Opens once for the one who waits, and shuts again behind it. */
class Latch {
  #isOpen = false;
  #pass: (() => void) | undefined;

  open(): void {
    this.#isOpen = true;
    this.#pass?.();
  }

  /**
   * Resolves when it is open, at once if it was opened since the last wait, or after `timeoutMs`.
   */
  wait(timeoutMs: number): Promise<void> {
    return new Promise(resolve => {
      const pass = () => {
        clearTimeout(timer);
        this.#pass = undefined;
        this.#isOpen = false;
        resolve();
      };
      const timer = setTimeout(pass, timeoutMs);
      this.#pass = pass;
      if (this.#isOpen) pass();
    });
  }
}
