/** What the sweeper does for alerts. */
import type { MailOutboxStore } from '../../store/alerts/mail-outbox.ts';
import type { WebhookOutboxStore } from '../../store/outbox/webhook-outbox-store.ts';
import type { SweepStep } from '../sweeping/sweep.ts';

/** How long ended events and mails are kept. */
const KEPT_MS = 30 * 86_400_000;

export function alertSweepSteps(
  mails: Pick<MailOutboxStore, 'removeOld'>,
  outbox: Pick<WebhookOutboxStore, 'removeOldEvents'>,
): SweepStep[] {
  const step = (name: string, remove: (size: number) => Promise<number>): SweepStep => ({
    name,
    page: async size => {
      const done = await remove(size);
      return { done, more: done === size };
    },
  });
  return [
    step('old mails', size => mails.removeOld(KEPT_MS, size)),
    step('old events of accounts', size => outbox.removeOldEvents(KEPT_MS, size)),
  ];
}
