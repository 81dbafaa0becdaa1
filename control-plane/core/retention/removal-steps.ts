import type { createAuditStore } from '@matting/accounts/audit-log.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import type { OutboxStore } from '../webhooks/outbox-store.ts';
import type { SweepStep } from './sweep.ts';

const MESSAGES_KEPT_MS = 30 * DAY_MS;
const LOG_KEPT_MS = 2 * 365 * DAY_MS;

interface SweptStores {
  readonly audit: Pick<ReturnType<typeof createAuditStore>, 'removeOld'>;
  readonly outbox: Pick<OutboxStore, 'removeOld'>;
}

export interface Removal {
  readonly name: string;
  /** Removes at most `size` old rows, and returns their number. */
  remove(size: number): Promise<number>;
}

export function removalStep({ name, remove }: Removal): SweepStep {
  return {
    name,
    page: async size => {
      const done = await remove(size);
      return { done, more: done === size };
    },
  };
}

/**
 * @param jobRetentionMs events are kept at least as long: until then, the search for old events
 * would also read the webhooks of jobs
 */
export function removalsOf({ audit, outbox }: SweptStores, jobRetentionMs: number): Removal[] {
  const eventsKeptMs = Math.max(MESSAGES_KEPT_MS, jobRetentionMs);
  return [
    { name: 'old mails', remove: size => outbox.removeOld('mail', MESSAGES_KEPT_MS, size) },
    {
      name: 'old events of accounts',
      remove: size => outbox.removeOld('webhook', eventsKeptMs, size),
    },
    { name: 'old entries of logs', remove: size => audit.removeOld(LOG_KEPT_MS, size) },
  ];
}
