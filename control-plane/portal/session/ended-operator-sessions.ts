/** Sessions of the operator's pages that were signed out and have not expired. */
import { type Database, query } from '@matting/database/database.ts';
import { isInserted, removeOldRows } from '@matting/database/statements.ts';

/** @param database one with the portal's tables */
export function createEndedOperatorSessions(database: Database) {
  return {
    /** Adds the session once, however often it is called. */
    add: (tokenHash: string, expiresAtMs: number): Promise<boolean> =>
      query(database, db =>
        isInserted(
          db
            .insertInto('ended_operator_sessions')
            .values({ token_hash: tokenHash, expires_at: expiresAtMs })
            .execute(),
        ),
      ),
    has: async (tokenHash: string): Promise<boolean> => {
      const row = await query(database, db =>
        db
          .selectFrom('ended_operator_sessions')
          .select('expires_at')
          .where('token_hash', '=', tokenHash)
          .executeTakeFirst(),
      );
      return row !== undefined;
    },
    /** Removes rows of expired sessions for the sweeper, `limit` at most; answers their number. */
    removeOld: (limit: number): Promise<number> =>
      removeOldRows(
        database,
        {
          table: 'ended_operator_sessions',
          key: 'token_hash',
          time: 'expires_at',
          before: database.nowMs,
        },
        limit,
      ),
  };
}

export type EndedOperatorSessions = ReturnType<typeof createEndedOperatorSessions>;
