/** What the sweeper removes of accounts and people once it is over: each step a page of old rows. */
import type { Stores } from '../stores.ts';
import type { SweepStep } from './sweep.ts';

const DAY_MS = 86_400_000;
/** How long ended events and mails are kept at least. */
const MESSAGES_KEPT_MS = 30 * DAY_MS;
/** How long the log of an account is kept. */
const LOG_KEPT_MS = 2 * 365 * DAY_MS;

/** @param jobRetentionMs events are found behind those of jobs, which go at that age */
export function removalSteps(
  { alerts, outbox, people, usage }: Pick<Stores, 'alerts' | 'outbox' | 'people' | 'usage'>,
  jobRetentionMs: number,
): SweepStep[] {
  const eventsKeptMs = Math.max(MESSAGES_KEPT_MS, jobRetentionMs);
  const step = (name: string, remove: (size: number) => Promise<number>): SweepStep => ({
    name,
    page: async size => {
      const done = await remove(size);
      return { done, more: done === size };
    },
  });
  return [
    step('old usage', size => usage.removeOld(size)),
    step('old mails', size => outbox.removeOld('mail', MESSAGES_KEPT_MS, size)),
    step('old counts of messages', size => alerts.removeOldCounts(size)),
    step('old events of accounts', size => outbox.removeOld('webhook', eventsKeptMs, size)),
    step('ended sessions', size => people.removeEndedSessions(size)),
    step('old links', size => people.removeOldLinks(size)),
    step('old failures of sign-in', size => people.removeOldThrottles(size)),
    step('old entries of logs', size => people.removeOldAuditEntries(LOG_KEPT_MS, size)),
  ];
}
