/** What the sweeper does for alerts. */
import type { MailOutboxStore } from '../../store/alerts/mail-outbox.ts';
import type { WebhookOutboxStore } from '../../store/outbox/webhook-outbox-store.ts';
import type { SweepStep } from '../sweeping/sweep.ts';

/** How long ended events and mails are kept at least. */
const KEPT_MS = 30 * 86_400_000;

export interface AlertSweepStores {
  readonly mailOutbox: Pick<MailOutboxStore, 'removeOld' | 'removeOldCounts'>;
  readonly webhookOutbox: Pick<WebhookOutboxStore, 'removeOldEvents'>;
}

/** @param jobRetentionMs events are found behind those of jobs, which go at that age */
export function alertSweepSteps(
  { mailOutbox, webhookOutbox }: AlertSweepStores,
  jobRetentionMs: number,
): SweepStep[] {
  const eventsKeptMs = Math.max(KEPT_MS, jobRetentionMs);
  const step = (name: string, remove: (size: number) => Promise<number>): SweepStep => ({
    name,
    page: async size => {
      const done = await remove(size);
      return { done, more: done === size };
    },
  });
  return [
    step('old mails', size => mailOutbox.removeOld(KEPT_MS, size)),
    step('old counts of messages', size => mailOutbox.removeOldCounts(size)),
    step('old events of accounts', size => webhookOutbox.removeOldEvents(eventsKeptMs, size)),
  ];
}
