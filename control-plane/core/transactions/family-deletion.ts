/**
 * Deletes with a job what it kept for corrections, and fails the open corrections that need it. The
 * job's account is held, so none is made or ends meanwhile (docs/adr/0052).
 */
import type { Database, Schema } from '@matting/database/database.ts';
import type { Transaction } from 'kysely';
import { type Job, OPEN_STATES } from '../jobs/job.ts';
import type { FamilyJob } from '../jobs/job-family.ts';
import type { JobFailure } from '../jobs/job-outcome.ts';
import { readJob } from '../jobs/job-reading.ts';
import { failureColumns } from '../jobs/job-rows.ts';
import { blobsOfKept, KEPT_COLUMNS, NOTHING_KEPT } from '../jobs/kept-files.ts';
import { closing, type EndWork, endJob } from './job-completion.ts';

const DELETED: JobFailure = {
  code: 'RESULT_EXPIRED',
  detail: 'The job that this one corrects was deleted. Submit the image again.',
  retryable: false,
};

export interface EndedFamily {
  /** Corrections that failed with it. */
  readonly ended: readonly Pick<Job, 'id' | 'callback'>[];
  /** Blobs to erase once no row names them: jobs of a family share them. */
  readonly shared: readonly string[];
}

export async function endFamily(
  database: Database,
  tx: Transaction<Schema>,
  job: Pick<Job, 'id'> & FamilyJob,
  work: Omit<EndWork, 'ending'>,
): Promise<EndedFamily> {
  const ofFirst = job.correction === null;
  const rows = await tx
    .selectFrom('jobs')
    .select(['id', 'corrects', 'state', ...KEPT_COLUMNS])
    .where('family', '=', job.correction?.first ?? job.id)
    .orderBy('id')
    .execute();
  const ended: Job[] = [];
  for (const { id, corrects, state } of rows) {
    const isOpen = OPEN_STATES.some(one => one === state);
    if (isOpen && (ofFirst || corrects === job.id)) {
      ended.push(await failCorrection(database, tx, id, work));
    }
  }
  const keeping = ofFirst ? rows : rows.filter(({ id }) => id === job.id);
  const ids = [job.id, ...keeping.map(({ id }) => id)];
  await tx
    .updateTable('jobs')
    .set(NOTHING_KEPT)
    .where('id', 'in', [...new Set(ids)].sort())
    .execute();
  const kept = [...keptBlobs(job), ...keeping.flatMap(blobsOfKept), ...ended.flatMap(filesOfOpen)];
  return { ended, shared: [...new Set(kept)] };
}

function keptBlobs({ kept }: Pick<FamilyJob, 'kept'>): string[] {
  return [kept?.input, kept?.matte].flatMap(file => file?.blob ?? []);
}

export type JobFiles = Pick<Job, 'input' | 'background' | 'hintsFile' | 'correction'>;

/** Files of an open job, some of which another job may name, too. */
export function filesOfOpen({ input, background, hintsFile, correction }: JobFiles): string[] {
  return [input, background?.input, hintsFile, correction?.matte].flatMap(file => file?.blob ?? []);
}

/** Moves the fence, so that the holder of the lease can neither admit nor finish the job. */
async function failCorrection(
  database: Database,
  tx: Transaction<Schema>,
  jobId: string,
  work: Omit<EndWork, 'ending'>,
): Promise<Job> {
  const job = await readJob(database, tx, jobId);
  if (job === undefined) throw new Error(`correction ${jobId} is gone`);
  const columns = { state: 'failed' as const, ...failureColumns(DELETED), fence: job.fence + 1 };
  const open = closing(database, jobId, [...OPEN_STATES], columns);
  const statement = open.where('fence', '=', job.fence).compile();
  const ending = { kind: 'release', retryable: false, statement } as const;
  await endJob(database, tx, job, { ...work, ending });
  return job;
}
