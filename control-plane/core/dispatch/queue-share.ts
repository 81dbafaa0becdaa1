/**
 * Who may add to the queue when it is full, and how long the others wait. Pure.
 *
 * The bound of the queue is shared by max-min fairness (Bertsekas and Gallager, "Data Networks",
 * section 6.5.2): below it everybody is accepted; above it, only accounts that hold less than their
 * share, which is the bound divided by the accounts that have something queued. So what an account
 * has queued never closes the queue for one that is below its share.
 */
import { framePixelsUnseen, frameRange } from '#contract/finishing/frame.ts';
import type { Finishing } from '#contract/finishing.ts';
import type { Job, JobInput } from '../jobs/job.ts';

/** What one account has queued. */
export interface AccountQueue {
  readonly jobs: number;
  /** Each job as `queuedMegapixels` counts it. */
  readonly megapixels: number;
  /** Jobs whose image is not downloaded yet. */
  readonly unfetched: number;
}

/**
 * The queue's bound unless the operator sets another, megapixels: about 4,000 photos of 12, more
 * than a CPU node does in the hour a job may queue.
 */
export const QUEUE_MEGAPIXELS_MAX = 50_000;
/** A model's run costs the same for a picture below this, and the number of jobs is bounded too. */
export const MEGAPIXELS_MIN = 1;
/**
 * A job whose image was not downloaded yet, at least: about a photo of a shop. What it turns out to
 * be counts from its download on.
 */
export const UNFETCHED_MEGAPIXELS = 4;
/** A stored image whose header does not show its size: the contract's largest. */
export const UNKNOWN_MEGAPIXELS = 100;

/**
 * Pixels of its frame that a job is counted by where they are more than its image's: the most that
 * a node may make of it; null: never more. Before the image is there, what the fields alone make.
 */
export function queuedFramePixels(
  finishing: Finishing | null,
  input: Pick<JobInput, 'width' | 'height'> | null,
): number | null {
  if (finishing === null) return null;
  if (input === null) return framePixelsUnseen(finishing) || null;
  const { width, height } = input;
  const size = width === null || height === null ? undefined : { width, height };
  return frameRange(finishing, size, { turned: true }).most;
}

/** What a queued job counts. core/dispatch/job-queue.ts sums the same. */
export function queuedMegapixels({ finishing, input }: Pick<Job, 'finishing' | 'input'>): number {
  const frame = (queuedFramePixels(finishing, input) ?? 0) / 1e6;
  if (input === null) return Math.max(UNFETCHED_MEGAPIXELS, frame);
  const { width, height } = input;
  if (width === null || height === null) return UNKNOWN_MEGAPIXELS;
  return Math.max(MEGAPIXELS_MIN, (width * height) / 1e6, frame);
}

/** What keeps a caller out. It gets in when either of the first two is gone. */
export interface Ahead {
  /** Megapixels by which the queue is over its bound. */
  readonly queueExcess: number;
  /** Megapixels by which the account is over its share. */
  readonly ownExcess: number;
  /** Jobs of `ownExcess` that may be downloads. */
  readonly unfetched: number;
  /** Accounts that have something queued, this one included. */
  readonly accounts: number;
}

/** Undefined: the account may add a job. `byAccount` holds accounts that have something queued. */
export function aheadOf(
  accountId: string,
  byAccount: ReadonlyMap<string, AccountQueue>,
  megapixelsMax: number,
): Ahead | undefined {
  const own = byAccount.get(accountId);
  if (own === undefined) return undefined;
  let total = 0;
  for (const { megapixels } of byAccount.values()) total += megapixels;
  const accounts = byAccount.size;
  const queueExcess = total - megapixelsMax;
  const ownExcess = own.megapixels - megapixelsMax / accounts;
  if (queueExcess <= 0 || ownExcess < 0) return undefined;
  const unfetched = Math.min(own.unfetched, Math.ceil(ownExcess / UNFETCHED_MEGAPIXELS));
  return { queueExcess, ownExcess, unfetched, accounts };
}

export interface QueuePace {
  /** The whole fleet's; 0: nothing was finished lately. */
  readonly megapixelsPerS: number;
  /** What a download may take at most. */
  readonly fetchMsMax: number;
}

/** Downloads of an account at once, where it has many to do. */
const FETCHES_AT_ONCE = 16;
export const RETRY_AFTER_MIN_S = 5;
/** Coming too early costs one request, coming too late costs the caller time. */
export const RETRY_AFTER_MAX_S = 120;
/** Nothing was finished: a fleet that starts, or stands still, and may go on at any time. */
export const STANDSTILL_RETRY_AFTER_S = 15;

/**
 * When what is ahead is done at the soonest: whole seconds within the two bounds. Turns are fair,
 * so an account gets at least its part of the fleet's pace; a download that fails leaves the queue
 * too, after `fetchMsMax` at most.
 */
export function retryAfterS(ahead: Ahead, pace: QueuePace): number {
  const { queueExcess, ownExcess, unfetched, accounts } = ahead;
  const { megapixelsPerS, fetchMsMax } = pace;
  if (megapixelsPerS <= 0) return STANDSTILL_RETRY_AFTER_S;
  const ownPerS = megapixelsPerS / accounts;
  const fetchesS = (Math.ceil(unfetched / FETCHES_AT_ONCE) * fetchMsMax) / 1000;
  const storedExcess = Math.max(0, ownExcess - unfetched * UNFETCHED_MEGAPIXELS);
  const seconds = Math.min(
    queueExcess / megapixelsPerS,
    ownExcess / ownPerS,
    fetchesS + storedExcess / ownPerS,
  );
  return Math.min(RETRY_AFTER_MAX_S, Math.max(RETRY_AFTER_MIN_S, Math.ceil(seconds)));
}
