/**
 * The bound of the queue, in megapixels: what each job counts, who may add one, and when to try
 * again. It is shared by max-min fairness (Bertsekas and Gallager, "Data Networks", section 6.5.2):
 * below it everybody is accepted; above it, only accounts that hold less than their share, which is
 * the bound divided by the accounts that have something queued.
 */

import { framePixelsUnseen, frameRange } from '@matting/proto/contract/finishing/frame.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import type { AccountQueue } from '@matting/queue/queue.ts';
import type { Job } from '../jobs/job.ts';
import { type JobInput, sizeOf } from '../jobs/job-request.ts';

/** The default: about 4,000 photos of 12, more than a CPU node does in the hour a job may queue. */
export const QUEUE_MEGAPIXELS_MAX = 50_000;
/** The least for any job: a model's run costs the same for a smaller picture. */
export const MEGAPIXELS_MIN = 1;
/** A job without a downloaded image counts so much at least: about a photo of a shop. */
export const UNFETCHED_MEGAPIXELS = 4;
/** A stored image of unknown size: the contract's largest. */
export const UNKNOWN_MEGAPIXELS = 100;

/** Pixels of its frame, which count where they are more than its image's; null: never more. */
export function queuedFramePixels(
  finishing: Finishing | null,
  input: Pick<JobInput, 'width' | 'height'> | null,
): number | null {
  if (finishing === null) return null;
  if (input === null) return framePixelsUnseen(finishing) || null;
  return frameRange(finishing, sizeOf(input), { turned: true }).most;
}

/** Counts one job as queue-reads.ts sums them in the table. */
export function queuedMegapixels({ finishing, input }: Pick<Job, 'finishing' | 'input'>): number {
  const frame = (queuedFramePixels(finishing, input) ?? 0) / 1e6;
  if (input === null) return Math.max(UNFETCHED_MEGAPIXELS, frame);
  const size = sizeOf(input);
  if (size === undefined) return UNKNOWN_MEGAPIXELS;
  return Math.max(MEGAPIXELS_MIN, (size.width * size.height) / 1e6, frame);
}

/** Megapixels over the bound and over the account's share: a caller gets in when either is gone. */
interface Ahead {
  readonly queueExcess: number;
  readonly ownExcess: number;
  /** Jobs of `ownExcess` that may be downloads. */
  readonly unfetched: number;
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
  for (const { cost } of byAccount.values()) total += cost;
  const accounts = byAccount.size;
  const queueExcess = total - megapixelsMax;
  const ownExcess = own.cost - megapixelsMax / accounts;
  if (queueExcess <= 0 || ownExcess < 0) return undefined;
  const unfetched = Math.min(own.unfetched, Math.ceil(ownExcess / UNFETCHED_MEGAPIXELS));
  return { queueExcess, ownExcess, unfetched, accounts };
}

const FETCHES_AT_ONCE = 16;
const RETRY_AFTER_MIN_S = 5;
export const RETRY_AFTER_MAX_S = 120;
/** If nothing was finished, the fleet starts, or stands still, and may continue at any time. */
const STANDSTILL_RETRY_AFTER_S = 15;

/**
 * When what is ahead is done at the soonest: whole seconds within the two bounds. Turns are fair,
 * so an account gets at least its part of the fleet's pace; a download that fails leaves the queue.
 * @param pace the whole fleet's; 0: nothing was finished lately
 */
export function retryAfterS(
  { queueExcess, ownExcess, unfetched, accounts }: Ahead,
  pace: { readonly megapixelsPerS: number; readonly fetchMsMax: number },
): number {
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
