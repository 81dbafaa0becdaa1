/**
 * Bounds of how many requests images are received at once: each holds a slot, a file, a second one
 * where it has a background, and a few hundred KiB of buffers. A request without a slot waits for
 * one, its body unread.
 */
import { ContractError } from '#contract/errors.ts';
import { SharedSlots, type SharedSlotsOptions } from '../../domain/shared-slots.ts';

/** All of them together take less than 200 MB of memory and 16 GB of disk. */
export const UPLOADS_MAX = 256;
/** Each holds one chunk of its body, 64 KiB at most. */
export const UPLOADS_WAITING_MAX = 2048;
/** Far above what a burst of photos takes, far below what callers and proxies wait. */
const WAIT_MS = 10_000;
const BUSY_RETRY_AFTER_S = 5;

export type UploadSlotsOptions = Partial<Omit<SharedSlotsOptions, 'refusal'>>;

/** Refuses with SERVICE_UNAVAILABLE. */
export function createUploadSlots(options: UploadSlotsOptions = {}): SharedSlots {
  return new SharedSlots({
    slotsMax: UPLOADS_MAX,
    waitingMax: UPLOADS_WAITING_MAX,
    waitMs: WAIT_MS,
    refusal: () =>
      new ContractError('SERVICE_UNAVAILABLE', 'too many uploads at once', {
        retryAfterS: BUSY_RETRY_AFTER_S,
      }),
    ...options,
  });
}
