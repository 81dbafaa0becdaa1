/** Sessions of the operator's pages that were signed out before they expired. */
import { type Database, query } from '@matting/database/database.ts';
import { isInserted, removeOldRows } from '@matting/database/statements.ts';

export function createEndedOperatorSessions(database: Database) {
  return {
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
