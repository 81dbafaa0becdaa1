/** What of people is past its time, for the sweeper. Nothing that people see depends on it. */

import { THROTTLE_WINDOW_MS } from '../../domain/account/sign-in-throttle.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';

/** How long a link is kept after its end, for who asks why it does not work. */
const LINK_KEPT_MS = 30 * 86_400_000;

/** Each removes `limit` rows at most, oldest first, and answers how many. */
export type PeopleRetention = ReturnType<typeof peopleRetention>;

export function peopleRetention(database: Database) {
  const { nowMs } = database;
  return {
    /** Past their absolute bound; those that are only idle wait for it. */
    removeEndedSessions: (limit: number) =>
      query(database, async db => {
        const old = await db
          .selectFrom('sessions')
          .select('id_hash')
          .where('expires_at', '<', nowMs)
          .orderBy('expires_at')
          .limit(limit)
          .execute();
        if (old.length === 0) return 0;
        // In one order everywhere: two sweepers then wait for each other and never in a circle.
        const hashes = old.map(row => row.id_hash).sort();
        await db.deleteFrom('sessions').where('id_hash', 'in', hashes).execute();
        return old.length;
      }),
    removeOldLinks: (limit: number) =>
      query(database, async db => {
        const old = await db
          .selectFrom('one_time_links')
          .select('id')
          .where('expires_at', '<', nowPlusMs(nowMs, -LINK_KEPT_MS))
          .orderBy('expires_at')
          .limit(limit)
          .execute();
        if (old.length === 0) return 0;
        const ids = old.map(({ id }) => id).sort();
        await db.deleteFrom('one_time_links').where('id', 'in', ids).execute();
        return old.length;
      }),
    removeOldThrottles: (limit: number) =>
      query(database, async db => {
        const old = await db
          .selectFrom('sign_in_throttles')
          .select('key_hash')
          .where('window_start', '<', nowPlusMs(nowMs, -THROTTLE_WINDOW_MS))
          .orderBy('window_start')
          .limit(limit)
          .execute();
        if (old.length === 0) return 0;
        const hashes = old.map(row => row.key_hash).sort();
        // One that has begun again since stays.
        const { numDeletedRows } = await db
          .deleteFrom('sign_in_throttles')
          .where('key_hash', 'in', hashes)
          .where('window_start', '<', nowPlusMs(nowMs, -THROTTLE_WINDOW_MS))
          .executeTakeFirstOrThrow();
        return Number(numDeletedRows);
      }),
    removeOldAuditEntries: (keptMs: number, limit: number) =>
      query(database, async db => {
        const old = await db
          .selectFrom('audit_entries')
          .select('id')
          .where('created_at', '<', nowPlusMs(nowMs, -keptMs))
          .orderBy('created_at')
          .limit(limit)
          .execute();
        if (old.length === 0) return 0;
        const ids = old.map(({ id }) => id).sort();
        await db.deleteFrom('audit_entries').where('id', 'in', ids).execute();
        return old.length;
      }),
  };
}
