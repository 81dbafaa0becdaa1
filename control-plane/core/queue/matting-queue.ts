import type { Database, Schema } from '@matting/database/database.ts';
import { OUTPUT_FORMATS } from '@matting/proto/contract/formats.ts';
import { jobLeases } from '@matting/queue/leases.ts';
import type { ListedJob } from '@matting/queue/queue.ts';
import { type PayloadReads, queueReads } from '@matting/queue/queue-reads.ts';
import { type RawBuilder, type Selectable, sql } from 'kysely';
import { readJob } from '../jobs/job-reading.ts';
import type { JobInput } from '../jobs/job-request.ts';
import {
  baseFromRow,
  finishingFromRow,
  inputColumn,
  inputColumns,
  inputFromRow,
  jsonFrom,
  requireOneOf,
  sourceHostOf,
} from '../jobs/job-rows.ts';
import type { ClaimableJob, OpenJob, WorkerQueue } from './queue.ts';
import {
  MEGAPIXELS_MIN,
  QUEUE_MEGAPIXELS_MAX,
  queuedFramePixels,
  UNFETCHED_MEGAPIXELS,
  UNKNOWN_MEGAPIXELS,
} from './queue-bound.ts';

export function mattingQueue(database: Database): Omit<WorkerQueue, 'succeed' | 'fail'> {
  const { prepared, ...leases } = jobLeases<OpenJob>(database, (db, id) =>
    readJob(database, db, id),
  );
  return {
    ...queueReads(database, PAYLOAD),
    ...leases,
    inputStored(claim, input, { giveUp, backgroundUrl, finishing = null } = {}) {
      const url = backgroundUrl === undefined ? {} : { source_url: backgroundUrl };
      const step = {
        columns: {
          ...url,
          ...inputColumns(input),
          frame_pixels: queuedFramePixels(finishing, input),
        },
        nextHost: backgroundUrl === undefined ? undefined : sourceHostOf(backgroundUrl),
        happened: (job: OpenJob) => job.input?.blob === input.blob,
      };
      return prepared(claim, step, giveUp);
    },
    backgroundStored(claim, background, giveUp) {
      const columns = { background: inputColumn(background) };
      const happened = (job: OpenJob) => job.background?.input?.blob === background.blob;
      return prepared(claim, { columns, happened }, giveUp);
    },
  };
}

function pixelsOf(leastMegapixels: number, pixels: RawBuilder<unknown>): RawBuilder<number> {
  const least = sql.lit(leastMegapixels * 1e6);
  return sql`case when ${pixels} > ${least} then ${pixels} else ${least} end`;
}

const INPUT_PIXELS = sql`input_width * input_height`;
const COUNTED = ['input_blob', 'input_width', 'input_height', 'frame_pixels'] as const;
const REQUESTED = ['output_format', 'finishing', 'background', 'model', 'hints_file'] as const;
const READ = ['input_bytes', 'input_format', ...REQUESTED, 'base_matte', ...COUNTED] as const;

type PayloadRow = Pick<Selectable<Schema['jobs']>, (typeof READ)[number]> & {
  readonly is_hinted: unknown;
};

const PAYLOAD: PayloadReads<PayloadRow, Omit<ClaimableJob, keyof ListedJob>> = {
  columns: [...READ, sql`hints is not null`.as('is_hinted')],
  fromRow: row => ({
    input: inputFromRow(row),
    outputFormat: requireOneOf(OUTPUT_FORMATS, row.output_format),
    model: row.model,
    ...finishingFromRow(row),
    background: { input: jsonFrom(row.background) },
    hints: row.is_hinted ? true : null,
    hintsFile: jsonFrom<JobInput>(row.hints_file),
    correction: baseFromRow(row),
  }),
  isUnbound: sql`model is null and coalesce(base_matte, '') not like '%"cropRun"%'`,
  // Must equal `queuedMegapixels`.
  queuedCost: sql`case
    when input_blob is null then ${pixelsOf(UNFETCHED_MEGAPIXELS, sql`frame_pixels`)}
    when input_width is null or input_height is null then ${sql.lit(UNKNOWN_MEGAPIXELS * 1e6)}
    when frame_pixels > ${INPUT_PIXELS} then ${pixelsOf(MEGAPIXELS_MIN, sql`frame_pixels`)}
    else ${pixelsOf(MEGAPIXELS_MIN, INPUT_PIXELS)} end`,
  costUnit: 1e6,
  doneCost: pixelsOf(MEGAPIXELS_MIN, sql`result_width * result_height`),
  countedColumns: COUNTED,
  isUnfetched: sql`case when input_blob is null then 1 else 0 end`,
  // Twice as many of the smallest jobs as the queue holds by default.
  openCountedMax: (2 * QUEUE_MEGAPIXELS_MAX) / MEGAPIXELS_MIN,
};
