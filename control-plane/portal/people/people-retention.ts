/**
 * What of people is past its time, for the sweeper. Nothing that people see depends on it. Each
 * removes `limit` rows at most, oldest first, and answers how many.
 */

import { nowPlusMs } from '../../core/database/clock.ts';
import type { Database } from '../../core/database/connect.ts';
import { removeOldRows } from '../../core/database/old-rows.ts';
import { THROTTLE_WINDOW_MS } from '../sign-in/throttle-rule.ts';

/** How long a link is kept after its end, for who asks why it does not work. */
const LINK_KEPT_MS = 30 * 86_400_000;

export type PeopleRetention = ReturnType<typeof peopleRetention>;

export function peopleRetention(database: Database) {
  const ago = (ms: number) => nowPlusMs(database.nowMs, -ms);
  const sessions = { table: 'sessions', key: 'id_hash', time: 'expires_at' } as const;
  const links = { table: 'one_time_links', key: 'id', time: 'expires_at' } as const;
  const throttles = { table: 'sign_in_throttles', key: 'key_hash', time: 'window_start' } as const;
  return {
    /** Past their absolute bound; those that are only idle wait for it. */
    removeEndedSessions: (limit: number) =>
      removeOldRows(database, { ...sessions, before: database.nowMs }, limit),
    removeOldLinks: (limit: number) =>
      removeOldRows(database, { ...links, before: ago(LINK_KEPT_MS) }, limit),
    removeOldThrottles: (limit: number) =>
      removeOldRows(database, { ...throttles, before: ago(THROTTLE_WINDOW_MS) }, limit),
  };
}
