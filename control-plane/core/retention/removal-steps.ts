/** What the sweeper removes of accounts once it is over: each step a page of old rows. */
import type { Stores } from '../stores.ts';
import type { SweepStep } from './sweep.ts';

const DAY_MS = 86_400_000;
/** How long ended events and mails are kept at least. */
const MESSAGES_KEPT_MS = 30 * DAY_MS;
/** How long the log of an account is kept. */
const LOG_KEPT_MS = 2 * 365 * DAY_MS;

/** @param remove removes so many rows at most, and answers how many */
export function removalStep(name: string, remove: (size: number) => Promise<number>): SweepStep {
  return {
    name,
    page: async size => {
      const done = await remove(size);
      return { done, more: done === size };
    },
  };
}

/** @param jobRetentionMs events are found behind those of jobs, which go at that age */
export function removalSteps(
  { audit, outbox }: Pick<Stores, 'audit' | 'outbox'>,
  jobRetentionMs: number,
): SweepStep[] {
  const eventsKeptMs = Math.max(MESSAGES_KEPT_MS, jobRetentionMs);
  return [
    removalStep('old mails', size => outbox.removeOld('mail', MESSAGES_KEPT_MS, size)),
    removalStep('old events of accounts', size => outbox.removeOld('webhook', eventsKeptMs, size)),
    removalStep('old entries of logs', size => audit.removeOld(LOG_KEPT_MS, size)),
  ];
}
