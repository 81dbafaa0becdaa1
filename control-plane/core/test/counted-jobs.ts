/** A package whose step counts ended jobs in its own table. */
import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import type { SettledStep } from '@matting/queue/settled-steps.ts';
import { sql } from 'kysely';
import { storeFixtures } from './fixtures.ts';

export const COUNTING_STEP: SettledStep = {
  name: 'counting',
  async settled(_database, tx, { jobId }) {
    await sql`insert into counted_jobs (job_id) values (${jobId})`.execute(tx);
  },
};

export const COUNTING = storeFixtures({
  packages: [{ name: 'counting', settled: [COUNTING_STEP] }],
});

export async function createCountedJobs({ kysely }: Database): Promise<void> {
  await sql`create table counted_jobs (job_id varchar(36) primary key)`.execute(kysely);
}

/** The table's key excludes a second count. */
export async function assertCounted({ kysely }: Database): Promise<void> {
  const { rows } = await sql`select jobs.id from jobs left join counted_jobs
    on counted_jobs.job_id = jobs.id
    where jobs.finished_at is not null and counted_jobs.job_id is null`.execute(kysely);
  assert.deepEqual(rows, []);
}
