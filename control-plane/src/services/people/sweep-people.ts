/** What the sweeper does for people: sessions, links and failures that are over, old entries of logs. */
import type { PeopleRetention } from '../../store/people/people-retention.ts';
import type { SweepStep } from '../sweeping/sweep.ts';

/** How long the log of an account is kept. */
const LOG_KEPT_MS = 2 * 365 * 86_400_000;

export function peopleSweepSteps(people: PeopleRetention): SweepStep[] {
  const step = (name: string, remove: (size: number) => Promise<number>): SweepStep => ({
    name,
    page: async size => {
      const done = await remove(size);
      return { done, more: done === size };
    },
  });
  return [
    step('ended sessions', size => people.removeEndedSessions(size)),
    step('old links', size => people.removeOldLinks(size)),
    step('old failures of sign-in', size => people.removeOldThrottles(size)),
    step('old entries of logs', size => people.removeOldAuditEntries(LOG_KEPT_MS, size)),
  ];
}
