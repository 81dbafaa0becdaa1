/**
 * Clears away what nobody can reach any more or what must not be kept: results past their expiry,
 * secrets of callbacks past their time, rows of jobs long final, blobs no row refers to, unfinished
 * writes. Nothing that callers see depends on its being on time: expiry is judged by the database's
 * clock. Every replica runs one; they meet only in statements that one of them
 * wins and in removals of what is already gone.
 *
 * A pass does a bounded amount and leaves the rest to the next. What one step cannot do is logged,
 * and the other steps run.
 */
import type { Logger } from 'pino';
import type { BlobStore } from '../storage/blob-store.ts';
import type { JobStore } from '../store/job-store.ts';
import type { WebhookOutboxStore } from '../store/webhook-outbox-store.ts';

/** Between the end of a pass and the next, give or take the jitter. */
const SWEEP_INTERVAL_MS = 60_000;
/** Keeps replicas that started together from sweeping together. */
const JITTER = 0.2;
/** Names or rows of one statement. */
const BATCH_SIZE = 200;
/** Batches of one step in one pass. */
const BATCHES_MAX = 25;
/** A final job's row, and with it its idempotency key. */
const ROW_LIFETIME_MS = 30 * 24 * 3_600_000;
/** No submission or download takes so long from the first byte to the row that names its blob. */
const ORPHAN_AGE_MS = 3_600_000;

export interface SweeperOptions {
  readonly jobStore: Pick<
    JobStore,
    'takeExpiredResultBlobs' | 'removeFinalOlderThan' | 'referencedBlobs'
  >;
  readonly outbox: Pick<WebhookOutboxStore, 'eraseDueSecrets'>;
  readonly blobStore: Pick<BlobStore, 'remove' | 'listOlderThan'>;
  readonly logger: Pick<Logger, 'info' | 'error'>;
  /** A step failed; the log says which. */
  readonly onFailure?: () => void;
  readonly intervalMs?: number;
  /** In [0, 1). */
  readonly random?: () => number;
}

/** What a pass removed. */
export interface SweepCounts {
  results: number;
  secrets: number;
  rows: number;
  orphans: number;
}

/**
 * | state    | entered by        | left by                                  |
 * |----------|-------------------|------------------------------------------|
 * | idle     | construction      | start                                    |
 * | waiting  | start, a pass end | the timer (to sweeping), stop            |
 * | sweeping | the timer         | the pass's end (to waiting, or stopped)  |
 * | stopped  | stop              | -                                        |
 */
export class Sweeper {
  readonly #options: SweeperOptions;
  readonly #intervalMs: number;
  readonly #random: () => number;
  #timer: NodeJS.Timeout | undefined;
  #pass: Promise<void> | undefined;
  #stopped = false;
  /** Where the walk over the blobs stands: a store may hold more than one pass looks at. */
  #walk: AsyncIterator<string> | undefined;

  constructor(options: SweeperOptions) {
    this.#options = options;
    this.#intervalMs = options.intervalMs ?? SWEEP_INTERVAL_MS;
    this.#random = options.random ?? Math.random;
  }

  start(): void {
    if (this.#stopped || this.#timer !== undefined) return;
    const jitter = 1 + JITTER * (2 * this.#random() - 1);
    this.#timer = setTimeout(() => {
      this.#pass = this.sweep().then(() => {
        this.#timer = undefined;
        this.start();
      });
    }, this.#intervalMs * jitter);
  }

  /** Resolves when the current pass, cut short after its batch, has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#pass;
    await this.#endWalk();
  }

  /** One pass. Never rejects. */
  async sweep(): Promise<SweepCounts> {
    const counts: SweepCounts = { results: 0, secrets: 0, rows: 0, orphans: 0 };
    await this.#step('expired results', () => this.#sweepResults(counts));
    await this.#step('callback secrets', () => this.#sweepSecrets(counts));
    await this.#step('old rows', () => this.#sweepRows(counts));
    await this.#step('orphaned blobs', () => this.#sweepOrphans(counts));
    if (Object.values(counts).some(count => count > 0)) {
      this.#options.logger.info({ ...counts }, 'swept');
    }
    return counts;
  }

  async #step(name: string, run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } catch (error) {
      this.#options.logger.error({ err: error, step: name }, 'a sweep step failed');
      this.#options.onFailure?.();
    }
  }

  /** Runs `batch` until it reports that less than a full one was left. */
  async #batches(batch: () => Promise<number>): Promise<void> {
    for (let count = 0; count < BATCHES_MAX && !this.#stopped; count += 1) {
      if ((await batch()) < BATCH_SIZE) return;
    }
  }

  #sweepResults(counts: SweepCounts): Promise<void> {
    return this.#batches(async () => {
      // Taken from the row first: a removal that fails leaves an orphan, which a later pass finds.
      const names = await this.#options.jobStore.takeExpiredResultBlobs(BATCH_SIZE);
      counts.results += await this.#remove(names);
      return names.length;
    });
  }

  #sweepSecrets(counts: SweepCounts): Promise<void> {
    return this.#batches(async () => {
      const secrets = await this.#options.outbox.eraseDueSecrets(BATCH_SIZE);
      counts.secrets += secrets;
      return secrets;
    });
  }

  #sweepRows(counts: SweepCounts): Promise<void> {
    return this.#batches(async () => {
      const { jobStore } = this.#options;
      const { rows, blobs } = await jobStore.removeFinalOlderThan(ROW_LIFETIME_MS, BATCH_SIZE);
      counts.rows += rows;
      counts.results += await this.#remove(blobs);
      return rows;
    });
  }

  #sweepOrphans(counts: SweepCounts): Promise<void> {
    return this.#batches(async () => {
      const names = await this.#nextNames();
      if (names.length === 0) return 0;
      const referenced = await this.#options.jobStore.referencedBlobs(names);
      counts.orphans += await this.#remove(names.filter(name => !referenced.has(name)));
      return names.length;
    });
  }

  /** The next batch of the walk; a short one ended it, and the next pass begins another. */
  async #nextNames(): Promise<string[]> {
    this.#walk ??= this.#options.blobStore.listOlderThan(ORPHAN_AGE_MS)[Symbol.asyncIterator]();
    const names: string[] = [];
    try {
      while (names.length < BATCH_SIZE) {
        const next = await this.#walk.next();
        if (next.done) {
          this.#walk = undefined;
          break;
        }
        names.push(next.value);
      }
    } catch (error) {
      this.#walk = undefined;
      throw error;
    }
    return names;
  }

  async #endWalk(): Promise<void> {
    const walk = this.#walk;
    this.#walk = undefined;
    await this.#step('orphaned blobs', async () => {
      await walk?.return?.();
    });
  }

  /** How many of them are gone; one that cannot be removed is logged and met again as an orphan. */
  async #remove(names: readonly string[]): Promise<number> {
    let removed = 0;
    for (const name of names) {
      await this.#step(`remove ${name}`, async () => {
        await this.#options.blobStore.remove(name);
        removed += 1;
      });
    }
    return removed;
  }
}
