/** Results that need a look: a person of the account ticks them off, or corrects them. */
import { type Database, type Db, query } from '@matting/database/database.ts';
import { type SqlBool, sql } from 'kysely';

/** Of a job's row: its result waits for somebody's look. */
export const needsLook = ({ nowMs }: Database) => sql<SqlBool>`look_until > ${nowMs}`;

export async function looked(db: Db, jobId: string, accountId?: string): Promise<void> {
  const job = db.updateTable('jobs').set({ look_until: null }).where('id', '=', jobId);
  await (accountId === undefined ? job : job.where('account_id', '=', accountId)).execute();
}

export function jobLooks(database: Database) {
  return {
    /** Does nothing for a job of another account, or one that needs no look. */
    noteLooked: (accountId: string, jobId: string) =>
      query(database, db => looked(db, jobId, accountId)),
  };
}
