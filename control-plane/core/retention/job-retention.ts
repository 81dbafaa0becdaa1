import {
  type Database,
  type Db,
  query,
  type Schema,
  transact,
} from '@matting/database/database.ts';
import { nowPlusMs } from '@matting/database/statements.ts';
import type { Selectable } from 'kysely';
import {
  blobsOfRow,
  KEPT_COLUMNS,
  keptFilesOf,
  keptUntilOf,
  takeExpiredKept,
} from '../corrections/kept-files.ts';
import { jobOfBackground, resultOfThumbnail, thumbnailBlob } from '../jobs/blob-names.ts';
import type { JobInput } from '../jobs/job-request.ts';
import { backgroundFromRow, jsonFrom } from '../jobs/job-rows.ts';

export type JobRetention = ReturnType<typeof jobRetention>;

/**
 * Names in one statement. With 200 or more, MySQL and MariaDB trust their statistics and read the
 * whole table.
 */
const BLOB_NAMES_MAX = 100;

interface RemovedJobs {
  readonly rows: number;
  /** No row names these any more. */
  readonly blobs: readonly string[];
}

export function jobRetention(database: Database) {
  return {
    /** Returns the names of results and of their thumbnails. */
    takeExpiredResultBlobs: (limit: number) => takeExpiredResultBlobs(database, limit),
    /**
     * Clears and returns the names of expired files that were kept for corrections. An open
     * correction may still name one (referencedBlobs).
     */
    takeExpiredKept: (limit: number) => takeExpiredKept(database, limit),
    /** Ledger entries stay. */
    removeFinalOlderThan: (afterMs: number, limit: number) =>
      removeFinalOlderThan(database, afterMs, limit),
    resultErased: (jobId: string, blob: string) =>
      query(database, db =>
        db
          .updateTable('jobs')
          .set({ result_blob: null, result_blob_expires_at: null })
          .where('id', '=', jobId)
          .where('result_blob', '=', blob)
          .where('deleted_at', 'is not', null)
          .execute(),
      ),
    async deletedAmong(jobIds: readonly string[]): Promise<string[]> {
      const found: string[] = [];
      for (let start = 0; start < jobIds.length; start += BLOB_NAMES_MAX) {
        const rows = await query(database, db =>
          db
            .selectFrom('jobs')
            .select('id')
            .where('id', 'in', jobIds.slice(start, start + BLOB_NAMES_MAX))
            .where('deleted_at', 'is not', null)
            .execute(),
        );
        found.push(...rows.map(({ id }) => id));
      }
      return found;
    },
    async referencedBlobs(names: readonly string[]): Promise<Set<string>> {
      const found = new Set<string>();
      for (let start = 0; start < names.length; start += BLOB_NAMES_MAX) {
        const some = names.slice(start, start + BLOB_NAMES_MAX);
        for (const read of [inputsIn, resultsIn, backgroundsIn, keptFilesOf]) {
          for (const name of await query(database, db => read(db, some))) found.add(name);
        }
      }
      // The search for a thumbnail also finds its result.
      return new Set(names.filter(name => found.has(name)));
    },
  };
}

/**
 * Clears the name before the caller removes the blob. If the sweeper dies in between, the orphan
 * walk finds the blob.
 */
function takeExpiredResultBlobs(database: Database, limit: number): Promise<string[]> {
  return transact(database, async tx => {
    const rows = await tx
      .selectFrom('jobs')
      .select(['id', 'result_blob', 'result_thumbnail_bytes'])
      .where('result_blob_expires_at', '<=', database.nowMs)
      .orderBy('result_blob_expires_at')
      .limit(limit)
      .execute();
    if (rows.length === 0) return [];
    // Every statement takes rows in the order of their ids; otherwise sweepers could deadlock.
    await tx
      .updateTable('jobs')
      .set({ result_blob: null, result_blob_expires_at: null })
      .where('id', 'in', rows.map(row => row.id).sort())
      .execute();
    return rows.flatMap(blobsOfResult);
  });
}

/**
 * Selects only by the time of the end: with another condition a database may choose another index
 * and read all final rows. A row whose result has not expired stays.
 */
async function removeFinalOlderThan(
  database: Database,
  afterMs: number,
  limit: number,
): Promise<RemovedJobs> {
  const { nowMs } = database;
  const found = await query(database, db =>
    db
      .selectFrom('jobs')
      .select(['id', 'result_blob', 'result_thumbnail_bytes', 'result_blob_expires_at'])
      .select(KEPT_COLUMNS)
      .select(() => nowMs.as('read_at'))
      .where('finished_at', '<=', nowPlusMs(nowMs, -afterMs))
      .orderBy('finished_at')
      .limit(limit)
      .execute(),
  );
  const due = found.filter(row => {
    const untilMs = Math.max(row.result_blob_expires_at ?? 0, keptUntilOf(row));
    return untilMs <= row.read_at;
  });
  if (due.length === 0) return { rows: 0, blobs: [] };
  const ids = due.map(row => row.id).sort();
  const rows = await transact(database, async tx => {
    const { numDeletedRows } = await tx
      .deleteFrom('jobs')
      .where('id', 'in', ids)
      .where('finished_at', 'is not', null)
      .executeTakeFirstOrThrow();
    await tx.deleteFrom('outbox').where('id', 'in', ids).execute();
    return Number(numDeletedRows);
  });
  return { rows, blobs: due.flatMap(row => [...blobsOfResult(row), ...blobsOfRow(row)]) };
}

function blobsOfResult(
  row: Pick<Selectable<Schema['jobs']>, 'result_blob' | 'result_thumbnail_bytes'>,
): string[] {
  const { result_blob: blob, result_thumbnail_bytes: thumbnailBytes } = row;
  if (blob === null) return [];
  return thumbnailBytes === null ? [blob] : [blob, thumbnailBlob(blob)];
}

async function inputsIn(db: Db, names: readonly string[]): Promise<string[]> {
  const inputs = db.selectFrom('jobs').select('input_blob').where('input_blob', 'in', names);
  return (await inputs.execute()).flatMap(row => row.input_blob ?? []);
}

async function resultsIn(db: Db, names: readonly string[]): Promise<string[]> {
  const rows = await db
    .selectFrom('jobs')
    .select(['result_blob', 'result_thumbnail_bytes'])
    .where('result_blob', 'in', [...new Set(names.map(resultOfThumbnail))])
    .execute();
  return rows.flatMap(blobsOfResult);
}

/** Finds rows by the job ids in the names, because an index would cost every job time. */
async function backgroundsIn(db: Db, names: readonly string[]): Promise<string[]> {
  const ids = names.flatMap(name => jobOfBackground(name) ?? []);
  if (ids.length === 0) return [];
  const rows = await db
    .selectFrom('jobs')
    .select(['background', 'background_url', 'hints_file'])
    .where('id', 'in', ids)
    .execute();
  return rows.flatMap(row => {
    const files = [backgroundFromRow(row)?.input, jsonFrom<JobInput>(row.hints_file)];
    return files.flatMap(file => file?.blob ?? []);
  });
}
