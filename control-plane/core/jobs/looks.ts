/** Results that a person should look at, who then ticks them off or corrects them. */
import { type Database, type Db, query } from '@matting/database/database.ts';
import { type SqlBool, sql } from 'kysely';

export const needsLook = ({ nowMs }: Database) => sql<SqlBool>`look_until > ${nowMs}`;

export async function clearLook(db: Db, jobId: string, accountId?: string): Promise<void> {
  const job = db.updateTable('jobs').set({ look_until: null }).where('id', '=', jobId);
  await (accountId === undefined ? job : job.where('account_id', '=', accountId)).execute();
}

export function jobLooks(database: Database) {
  return {
    noteLooked: (accountId: string, jobId: string) =>
      query(database, db => clearLook(db, jobId, accountId)),
  };
}
