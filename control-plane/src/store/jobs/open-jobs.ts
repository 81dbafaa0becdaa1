/** The open jobs of one account, for the account's own pages. */
import { OPEN_STATES } from '../../domain/job.ts';
import type { Database } from '../database/connect.ts';
import { throughIndex } from '../database/through-index.ts';
import { query } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';
import type { JobStore } from './job-store.ts';

/** Entries of the index that are looked at: of more open jobs than that, any of them. */
const LOOKED_AT_MAX = 200;
const JOBS_BY_ACCOUNT_AND_STATE = throughIndex('jobs', 'jobs_account_state');

export function openJobs(database: Database): Pick<JobStore, 'openOf'> {
  return {
    async openOf(accountId, limit) {
      if (!isAsciiWord(accountId)) return [];
      const rows = await query(database, db =>
        db
          .selectFrom(JOBS_BY_ACCOUNT_AND_STATE[database.dialect])
          .select(['id', 'state', 'created_at'])
          .where('account_id', '=', accountId)
          .where('state', 'in', OPEN_STATES)
          .limit(LOOKED_AT_MAX)
          .execute(),
      );
      const jobs = rows.map(row => ({ id: row.id, state: row.state, createdAtMs: row.created_at }));
      return jobs.sort((one, other) => one.createdAtMs - other.createdAtMs).slice(0, limit);
    },
  };
}
