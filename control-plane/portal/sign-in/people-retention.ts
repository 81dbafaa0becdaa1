/** The sweeper removes ended sessions, old links, and old failures of sign-in. */

import type { Database } from '@matting/database/database.ts';
import { nowPlusMs, removeOldRows } from '@matting/database/statements.ts';
import { THROTTLE_WINDOW_MS } from './sign-in-throttle.ts';

/** A link is kept this long after its end, for people who ask why it does not work. */
const LINK_KEPT_MS = 30 * 86_400_000;

/** Each method removes `limit` rows at most for the sweeper, oldest first, and answers how many. */
export function peopleRetention(database: Database) {
  const ago = (ms: number) => nowPlusMs(database.nowMs, -ms);
  const sessions = { table: 'sessions', key: 'id_hash', time: 'expires_at' } as const;
  const links = { table: 'one_time_links', key: 'id', time: 'expires_at' } as const;
  const throttles = { table: 'sign_in_throttles', key: 'key_hash', time: 'window_start' } as const;
  return {
    /** Removes sessions past their absolute bound; idle ones wait for it. */
    removeEndedSessions: (limit: number) =>
      removeOldRows(database, { ...sessions, before: database.nowMs }, limit),
    removeOldLinks: (limit: number) =>
      removeOldRows(database, { ...links, before: ago(LINK_KEPT_MS) }, limit),
    removeOldThrottles: (limit: number) =>
      removeOldRows(database, { ...throttles, before: ago(THROTTLE_WINDOW_MS) }, limit),
  };
}
