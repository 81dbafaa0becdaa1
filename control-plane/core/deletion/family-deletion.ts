/**
 * Deletes a job's kept files, and fails the open corrections that need them. The transaction holds
 * the account's row, so no correction is made or ends meanwhile (docs/adr/0052).
 */
import type { Database, Db } from '@matting/database/database.ts';
import { type JobFailure, OPEN_STATES } from '@matting/queue/job.ts';
import { readCorrections } from '../corrections/family.ts';
import { blobsOfKept, blobsOfRow, clearKept } from '../corrections/kept-files.ts';
import type { Job } from '../jobs/job.ts';
import type { FamilyJob } from '../jobs/job-family.ts';
import { readJob } from '../jobs/job-reading.ts';
import type { EndedFamily } from '../queue/queue.ts';

const DELETED: JobFailure = {
  code: 'RESULT_EXPIRED',
  detail: 'The job that this one corrects was deleted. Submit the image again.',
  retryable: false,
};

export async function endFamily(
  database: Database,
  tx: Db,
  job: Pick<Job, 'id'> & FamilyJob,
  fail: (correction: Job, failure: JobFailure) => Promise<void>,
): Promise<EndedFamily> {
  const ofFirst = job.correction === null;
  const rows = await readCorrections(tx, job.correction?.first ?? job.id);
  const ended: Job[] = [];
  for (const { id, corrects, state } of rows) {
    const isOpen = OPEN_STATES.some(one => one === state);
    if (!isOpen || !(ofFirst || corrects === job.id)) continue;
    const correction = await readJob(database, tx, id);
    if (correction === undefined) throw new Error(`correction ${id} is gone`);
    await fail(correction, DELETED);
    ended.push(correction);
  }
  const keeping = ofFirst ? rows : rows.filter(({ id }) => id === job.id);
  await clearKept(tx, [job.id, ...keeping.map(({ id }) => id)]);
  const kept = [...blobsOfKept(job.kept), ...keeping.flatMap(blobsOfRow)];
  return { ended, shared: [...new Set([...kept, ...ended.flatMap(filesOfOpen)])] };
}

export type JobFiles = Pick<Job, 'input' | 'background' | 'hintsFile' | 'correction'>;

/** Other jobs of the family may share these files. */
export function filesOfOpen({ input, background, hintsFile, correction }: JobFiles): string[] {
  return [input, background?.input, hintsFile, correction?.matte].flatMap(file => file?.blob ?? []);
}
