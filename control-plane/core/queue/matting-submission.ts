import type { Database, Schema } from '@matting/database/database.ts';
import type { Channels, Finishing } from '@matting/proto/contract/finishing.ts';
import { isTransparentFormat, type OutputFormat } from '@matting/proto/contract/formats.ts';
import type { Hints } from '@matting/proto/contract/hints.ts';
import {
  JobSubmission,
  jobInsertion,
  type KeyedJob,
  type NewQueueJob,
  type PayloadSubmission,
  type SubmissionStep,
} from '@matting/queue/submit-job.ts';
import { countInFamily, NotCorrectableError } from '../corrections/family.ts';
import type { Job } from '../jobs/job.ts';
import type { JobCorrection } from '../jobs/job-family.ts';
import { fundingKindOf, takesCredit } from '../jobs/job-funding.ts';
import { readByIdempotencyKey, readJob } from '../jobs/job-reading.ts';
import type { JobBackground, JobInput } from '../jobs/job-request.ts';
import { inputColumn, inputColumns, type StoredFinishing, sourceHostOf } from '../jobs/job-rows.ts';
import { queuedFramePixels } from './queue-bound.ts';

/** The part of a request that does not depend on its picture. It must survive JSON. */
export interface JobTemplate {
  readonly outputFormat: OutputFormat;
  readonly hints?: Hints | undefined;
  readonly model?: string | undefined;
  readonly noSubject?: 'fail' | undefined;
  readonly channels?: Channels;
  readonly finishing?: Finishing;
  /** Set exactly if `finishing` has a background picture. */
  readonly background?: JobBackground;
  /** Form fields that corrections inherit. If set, the job keeps its input and matte for them. */
  readonly correctable?: Readonly<Record<string, string>> | undefined;
  readonly traceContext?: string | undefined;
}

interface NewJobRequest extends JobTemplate {
  /** Set exactly if `sourceUrl` is null; the job is then ready at once. */
  readonly input: JobInput | null;
  readonly sourceUrl: string | null;
  /** Set exactly if `hints` are a picture. */
  readonly hintsFile?: JobInput | undefined;
  readonly callback?: {
    readonly url: string;
    readonly secret: Uint8Array | null;
    /** Names the key that encrypts the secret; null exactly if `secret` is. */
    readonly secretKeyId: string | null;
  };
  readonly reference?: string | undefined;
  /** The job this one corrects. A correction uses the input of the first job, which owns it. */
  readonly correction?: Omit<JobCorrection, 'matte'> | undefined;
}

export interface NewJob extends KeyedJob, NewJobRequest {}
type ItemJob = NewQueueJob & NewJobRequest;

/** For jobs with a credit that is already held and counted for the key's cap. */
export const insertJob = jobInsertion<ItemJob>(columnsOf);

const SUBMISSION: PayloadSubmission<NewJob, Job> = {
  fundingOf: fundingKindOf,
  columns: columnsOf,
  join: async (database, tx, { correction }) =>
    correction === undefined ? {} : countInFamily(database, tx, correction),
  refusalOf: error => (error instanceof NotCorrectableError ? { kind: 'refused' } : undefined),
  read: readJob,
  readByKey: readByIdempotencyKey,
};

export function mattingSubmission(database: Database, steps: readonly SubmissionStep[] = []) {
  const submission = new JobSubmission(database, SUBMISSION, insertJob, steps);
  const { submit, isKeyTaken, findByKey } = submission;
  return {
    isKeyTaken: isKeyTaken.bind(submission),
    findByKey: findByKey.bind(submission),
    submit: async (...[job, limits]: Parameters<typeof submit>) => {
      requireConsistent(job);
      return submission.submit(job, limits);
    },
  };
}

function columnsOf(job: ItemJob) {
  const nextUrl = job.input === null ? job.sourceUrl : (job.background?.url ?? null);
  return {
    source_url: nextUrl,
    source_host: nextUrl === null ? null : sourceHostOf(nextUrl),
    ...inputColumns(job.input),
    model: job.model ?? null,
    no_subject: job.noSubject ?? null,
    ...finishingColumns(job),
    background_url: job.background?.url ?? null,
    background: inputColumn(job.background?.input ?? null),
    hints: job.hints ? JSON.stringify(job.hints) : null,
    hints_file: inputColumn(job.hintsFile ?? null),
    callback_url: job.callback?.url ?? null,
    callback_secret: job.callback?.secret ?? null,
    callback_secret_key_id: job.callback?.secretKeyId ?? null,
    reference: job.reference ?? null,
    trace_context: job.traceContext ?? null,
    correctable: job.correctable === undefined ? null : JSON.stringify(job.correctable),
    corrects: job.correction?.of ?? null,
    family: job.correction?.first ?? null,
    base_matte: null,
  };
}

function finishingColumns(
  job: ItemJob,
): Pick<Schema['jobs'], 'output_format' | 'finishing' | 'frame_pixels'> {
  const { outputFormat, channels = 'rgba', finishing } = job;
  if (finishing === undefined) {
    if (channels === 'rgba' && isTransparentFormat(outputFormat)) {
      return { output_format: outputFormat, finishing: null, frame_pixels: null };
    }
    throw new Error(`a job for ${outputFormat}, ${channels} is one with finishing`);
  }
  const stored: StoredFinishing = {
    ...(channels === 'rgba' ? {} : { channels }),
    steps: finishing,
  };
  return {
    output_format: outputFormat,
    finishing: JSON.stringify(stored),
    frame_pixels: queuedFramePixels(finishing, job.input),
  };
}

function requireConsistent(job: NewJob): void {
  const { input, sourceUrl, background, finishing } = job;
  if (!takesCredit(job) && input === null) throw new Error('a job without a credit has its image');
  if ((input === null) === (sourceUrl === null)) {
    throw new Error('a new job has either a stored input or a URL');
  }
  if (Boolean(job.hints?.picture) !== (job.hintsFile !== undefined)) {
    throw new Error('a new job has a file of hints exactly where they are one');
  }
  const hasPicture = finishing?.background?.kind === 'picture';
  if (hasPicture !== (background !== undefined)) {
    throw new Error('a new job has a picture for its background exactly where it asks for one');
  }
  if (background !== undefined && (background.input === null) === (background.url === null)) {
    throw new Error('a background has either a stored picture or a URL');
  }
}
