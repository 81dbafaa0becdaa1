import type { Database } from '@matting/database/database.ts';
import { nowPlusMs, removeOldRows } from '@matting/database/statements.ts';
import { THROTTLE_WINDOW_MS } from './sign-in-throttle.ts';

/** The operator can tell in this time why an old link does not work. */
const LINK_KEPT_MS = 30 * 86_400_000;

export function peopleRetention(database: Database) {
  const ago = (ms: number) => nowPlusMs(database.nowMs, -ms);
  const sessions = { table: 'sessions', key: 'id_hash', time: 'expires_at' } as const;
  const links = { table: 'one_time_links', key: 'id', time: 'expires_at' } as const;
  const throttles = { table: 'sign_in_throttles', key: 'key_hash', time: 'window_start' } as const;
  return {
    /** Removes sessions only past their absolute bound. */
    removeEndedSessions: (limit: number) =>
      removeOldRows(database, { ...sessions, before: database.nowMs }, limit),
    removeOldLinks: (limit: number) =>
      removeOldRows(database, { ...links, before: ago(LINK_KEPT_MS) }, limit),
    removeOldThrottles: (limit: number) =>
      removeOldRows(database, { ...throttles, before: ago(THROTTLE_WINDOW_MS) }, limit),
  };
}
