/**
 * The bound of the queue in megapixels, by max-min fairness (Bertsekas and Gallager, "Data
 * Networks", section 6.5.2). Below the bound every account may add jobs. Above it, only accounts
 * below their share may: the bound divided by the number of accounts in the queue.
 */

import { framePixelsUnseen, frameRange } from '@matting/proto/contract/finishing/frame.ts';
import type { Finishing } from '@matting/proto/contract/finishing.ts';
import type { AccountQueue } from '@matting/queue/queue.ts';
import type { Job } from '../jobs/job.ts';
import { type JobInput, sizeOf } from '../jobs/job-request.ts';

/** About 4,000 photos of 12 MP: more than a CPU node does in an hour, the longest wait of a job. */
export const QUEUE_MEGAPIXELS_MAX = 50_000;
/** Each job counts at least this much: a model's run costs the same for a smaller picture. */
export const MEGAPIXELS_MIN = 1;
/** The least for a job whose image is not downloaded yet: about a typical product photo. */
export const UNFETCHED_MEGAPIXELS = 4;
/** The contract's maximum, for a stored image of unknown size. */
export const UNKNOWN_MEGAPIXELS = 100;

/** Pixels of the largest frame that finishing may make; null: no larger than the image. */
export function queuedFramePixels(
  finishing: Finishing | null,
  input: Pick<JobInput, 'width' | 'height'> | null,
): number | null {
  if (finishing === null) return null;
  if (input === null) return framePixelsUnseen(finishing) || null;
  return frameRange(finishing, sizeOf(input), { turned: true }).most;
}

/** Must equal `queuedCost` in matting-queue.ts. */
export function queuedMegapixels({ finishing, input }: Pick<Job, 'finishing' | 'input'>): number {
  const frame = (queuedFramePixels(finishing, input) ?? 0) / 1e6;
  if (input === null) return Math.max(UNFETCHED_MEGAPIXELS, frame);
  const size = sizeOf(input);
  if (size === undefined) return UNKNOWN_MEGAPIXELS;
  return Math.max(MEGAPIXELS_MIN, (size.width * size.height) / 1e6, frame);
}

/** In megapixels. An account may add a job once either excess is gone. */
interface QueueExcess {
  readonly queueExcess: number;
  readonly ownExcess: number;
  /** Jobs in `ownExcess` whose image perhaps has still to be downloaded. */
  readonly unfetched: number;
  readonly accounts: number;
}

/**
 * @param byAccount accounts with queued jobs
 * @returns undefined: the account may add a job
 */
export function excessOf(
  accountId: string,
  byAccount: ReadonlyMap<string, AccountQueue>,
  megapixelsMax: number,
): QueueExcess | undefined {
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
/** For a fleet that starts or stands still: it may continue at any time. */
const STANDSTILL_RETRY_AFTER_S = 15;

/**
 * Estimates when the queue or the account will be below its bound again, in whole seconds. Dispatch
 * is fair, so an account gets at least its part of the fleet's pace. A job whose download fails
 * leaves the queue, so failed downloads make room, too.
 * @param pace of the whole fleet; 0: it finished nothing lately
 */
export function retryAfterS(
  { queueExcess, ownExcess, unfetched, accounts }: QueueExcess,
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
