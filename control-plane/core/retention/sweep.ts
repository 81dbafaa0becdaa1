/**
 * Removes what must not be kept or what no caller can reach. Being late does no harm, because
 * readers judge expiry by the database's clock. One replica sweeps at a time, under a lease. A
 * failed step waits for the next pass; the other steps run.
 */

import { setTimeout as delay } from 'node:timers/promises';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import type { Logger } from 'pino';
import type { OutboxStore } from '../webhooks/outbox-store.ts';
import type { JobRetention } from './job-retention.ts';
import { OrphanWalk, WALK_PARTS } from './orphan-walk.ts';
import { SweepPace } from './sweep-pace.ts';
import type { SweepClaim, SweepStore } from './sweep-store.ts';

/** Wait after a pass that finished, ± JITTER. */
const SWEEP_INTERVAL_MS = 60_000;
/** Wait after a pass that left work. */
const SWEEP_AGAIN_MS = 1000;
/** Keeps replicas that started together from sweeping together. */
const JITTER = 0.2;
/** Outlasts several pages and pauses. If a sweeper dies, another takes over after this. */
const LEASE_MS = 60_000;
const RENEW_MS = 15_000;
const PASS_MS_MAX = 300_000;
/** Removals at once, so that no thread for them idles. */
const REMOVALS_MAX = 8;

interface SweeperOptions {
  readonly jobStore: Pick<
    JobRetention,
    'takeExpiredResultBlobs' | 'takeExpiredKept' | 'removeFinalOlderThan' | 'referencedBlobs'
  >;
  readonly outbox: Pick<OutboxStore, 'eraseDueSecrets'>;
  readonly blobStore: Pick<BlobStore, 'remove' | 'listOlderThan'>;
  readonly sweeps: Pick<SweepStore, 'claim' | 'renew' | 'release' | 'saveWalk'>;
  /** They run before rows of jobs are removed. */
  readonly others?: readonly SweepStep[];
  readonly holder: string;
  readonly jobRetentionMs: number;
  readonly logger: Pick<Logger, 'info' | 'error'>;
  readonly onFailure?: () => void;
  readonly intervalMs?: number;
  readonly passMsMax?: number;
  readonly rest?: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly random?: () => number;
}

export interface SweepStep {
  readonly name: string;
  /** Handles at most `size` rows. `done`: a number for the log. */
  readonly page: (size: number) => Promise<{ readonly done: number; readonly more: boolean }>;
}

const NOTHING = { results: 0, kept: 0, secrets: 0, rows: 0, orphans: 0 };

interface Step {
  readonly name: string;
  readonly pace: SweepPace;
  readonly page: (size: number, claim: SweepClaim) => Promise<boolean>;
}

export class Sweeper {
  readonly #options: SweeperOptions;
  readonly #steps: readonly Step[];
  readonly #walk: OrphanWalk;
  readonly #stopped = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #pass: Promise<void> | undefined;
  #left = false;
  #counts: typeof NOTHING & Record<string, number> = NOTHING;

  constructor(options: SweeperOptions) {
    this.#options = options;
    this.#walk = new OrphanWalk(options.blobStore);
    const step = (name: string, page: Step['page']): Step => ({
      name,
      pace: new SweepPace(),
      page,
    });
    this.#steps = [
      step('expired results', size => this.#pageOfResults(size)),
      step('what was kept for corrections', size => this.#pageOfKept(size)),
      step('callback secrets', size => this.#pageOfSecrets(size)),
      ...(options.others ?? []).map(({ name, page }) =>
        step(name, async size => {
          const { done, more } = await page(size);
          this.#counts[name] = (this.#counts[name] ?? 0) + done;
          return more;
        }),
      ),
      step('old rows', size => this.#pageOfRows(size)),
      step('orphaned blobs', (size, claim) => this.#pageOfBlobs(size, claim)),
    ];
  }

  start(): void {
    if (this.#stopped.signal.aborted || this.#timer !== undefined) return;
    const { intervalMs = SWEEP_INTERVAL_MS, random = Math.random } = this.#options;
    const jitter = 1 + JITTER * (2 * random() - 1);
    const waitMs = this.#left ? Math.min(SWEEP_AGAIN_MS, intervalMs) : intervalMs;
    this.#timer = setTimeout(() => {
      this.#pass = this.sweep().then(() => {
        this.#timer = undefined;
        this.start();
      });
    }, waitMs * jitter);
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#timer);
    await this.#pass;
    await this.#try('orphaned blobs', () => this.#walk.close());
  }

  /** Does nothing if another replica sweeps. Never rejects. */
  async sweep(): Promise<typeof NOTHING> {
    const { sweeps, holder } = this.#options;
    this.#left = false;
    this.#counts = { ...NOTHING };
    await this.#try('the lease', async () => {
      const won = await sweeps.claim(holder, LEASE_MS);
      if (won === undefined) return;
      try {
        const began = await this.#walk.takeUp(won.walk);
        if (began) await sweeps.saveWalk(won.claim, 0, true);
        await this.#rounds(won.claim);
      } finally {
        await sweeps.release(won.claim);
      }
    });
    const counts = this.#counts;
    if (Object.values(counts).some(count => count > 0)) this.#options.logger.info(counts, 'swept');
    return counts;
  }

  async #rounds(claim: SweepClaim): Promise<void> {
    const { sweeps, passMsMax = PASS_MS_MAX } = this.#options;
    const beganMs = performance.now();
    let renewedMs = beganMs;
    let steps = this.#steps;
    while (steps.length > 0) {
      const more: Step[] = [];
      for (const step of steps) {
        if (this.#stopped.signal.aborted) return;
        if (await this.#page(step, claim)) more.push(step);
        if (performance.now() - renewedMs < RENEW_MS) continue;
        if (!(await sweeps.renew(claim, LEASE_MS))) return;
        renewedMs = performance.now();
      }
      steps = more;
      this.#left = more.length > 0 && performance.now() - beganMs >= passMsMax;
      if (this.#left) return;
    }
  }

  async #page(step: Step, claim: SweepClaim): Promise<boolean> {
    const { rest = restUnlessAborted } = this.#options;
    let more = false;
    await this.#try(step.name, async () => {
      const beganMs = performance.now();
      more = await step.page(step.pace.size, claim);
      const restMs = step.pace.paged(performance.now() - beganMs);
      if (more) await rest(restMs, this.#stopped.signal);
    });
    return more;
  }

  async #try(name: string, run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } catch (error) {
      this.#options.logger.error({ err: error, step: name }, 'a sweep step failed');
      this.#options.onFailure?.();
    }
  }

  async #pageOfResults(size: number): Promise<boolean> {
    // Clears the row first: a failed removal leaves an orphan for a later walk.
    const names = await this.#options.jobStore.takeExpiredResultBlobs(size);
    this.#counts.results += await this.#remove(names);
    // A row has up to two names, so a short page may look full, but never the reverse.
    return names.length >= size;
  }

  /** If an open correction still needs a file, the correction's end removes the file. */
  async #pageOfKept(size: number): Promise<boolean> {
    const { jobStore } = this.#options;
    const names = await jobStore.takeExpiredKept(size);
    const referenced = names.length > 0 ? await jobStore.referencedBlobs(names) : new Set();
    this.#counts.kept += await this.#remove(names.filter(name => !referenced.has(name)));
    return names.length >= size;
  }

  async #pageOfSecrets(size: number): Promise<boolean> {
    const secrets = await this.#options.outbox.eraseDueSecrets(size);
    this.#counts.secrets += secrets;
    return secrets === size;
  }

  async #pageOfRows(size: number): Promise<boolean> {
    const { jobStore, jobRetentionMs } = this.#options;
    const { rows, blobs } = await jobStore.removeFinalOlderThan(jobRetentionMs, size);
    this.#counts.rows += rows;
    this.#counts.results += await this.#remove(blobs);
    return rows === size;
  }

  async #pageOfBlobs(size: number, claim: SweepClaim): Promise<boolean> {
    if (this.#walk.part === undefined) return false;
    const names = await this.#walk.next(size);
    if (names.length > 0) {
      const referenced = await this.#options.jobStore.referencedBlobs(names);
      this.#counts.orphans += await this.#remove(names.filter(name => !referenced.has(name)));
    }
    if (names.length === size) return true;
    const next = this.#walk.endPart();
    await this.#options.sweeps.saveWalk(claim, next, false);
    return next < WALK_PARTS;
  }

  /** If a removal fails, the orphan walk finds the blob later. */
  async #remove(names: readonly string[]): Promise<number> {
    let removed = 0;
    const left = names.values();
    const removeSome = async () => {
      for (const name of left) {
        await this.#try(`remove ${name}`, async () => {
          await this.#options.blobStore.remove(name);
          removed += 1;
        });
      }
    };
    const hands = Math.min(REMOVALS_MAX, names.length);
    await Promise.all(Array.from({ length: hands }, removeSome));
    return removed;
  }
}

async function restUnlessAborted(ms: number, signal: AbortSignal): Promise<void> {
  // The pass checks the signal itself.
  await delay(ms, undefined, { signal }).catch(() => undefined);
}
