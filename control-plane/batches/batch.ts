/**
 * Reads batches. Items become jobs in their order. Those from `next_item` on wait, and each holds a
 * credit under the id of its later job (docs/adr/0054).
 *
 * | status     | means                                                    |
 * |------------|----------------------------------------------------------|
 * | queued     | no node has begun an item                                |
 * | processing | a node has begun an item                                 |
 * | cancelled  | the caller cancelled it, or its key was revoked          |
 * |            | (docs/adr/0055); some jobs may still be running          |
 * | finished   | every item has ended                                     |
 */
import type { CoreServices, CoreStores } from '@matting/core/package.ts';
import { type Database, type Db, query, type Schema } from '@matting/database/database.ts';
import { isAsciiWord, keepStatement } from '@matting/database/statements.ts';
import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import { type Selectable, sql } from 'kysely';
import type {} from './tables.ts';

export type JobGroups = CoreStores['groups'];
type JobsPage = Parameters<JobGroups['list']>[2];
export type GroupReading = Pick<JobGroups, 'counts' | 'hasOpen' | 'list'>;
export type ManyJobs = CoreServices['manyJobs'];

export const BATCH_ITEMS_MAX = 1000;
type BatchRow = NonNullable<Awaited<ReturnType<typeof readRow>>>;
/** The items before `nextItem` have become jobs. */
export type Batch = Readonly<BatchRow> & {
  readonly counts: Readonly<Awaited<ReturnType<GroupReading['counts']>>> & {
    readonly waiting: number;
  };
};

type BatchStatus = (typeof BATCH_STATUSES)[number];

export function batchStatus({ counts, cancelledAtMs, finishedAtMs }: Batch): BatchStatus {
  if (cancelledAtMs !== null) return 'cancelled';
  if (finishedAtMs !== null) return 'finished';
  const { waiting, queued, ...begun } = counts;
  return Object.values(begun).some(count => count > 0) ? 'processing' : 'queued';
}

export const BATCH_STATUSES = ['queued', 'processing', 'finished', 'cancelled'] as const;
const BATCHES_MAX = 100;
/** Rows that one page of a key's batches reads to find those of a status. */
const LOOKED_AT_MAX = 500;
const CURSOR = /^(\d{1,15})-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

export function isBatchCursor(text: string): boolean {
  return CURSOR.test(text);
}

/** Every replica reads it each second. */
const OPEN = keepStatement(({ kysely }, { openAtMs, id }: { openAtMs: number; id: string }) =>
  kysely
    .selectFrom('batches')
    .select(['id', 'account_id as accountId', 'api_key_id as apiKeyId'])
    .select(['open_at as openAtMs', 'cancelled_at as cancelledAtMs'])
    .select(eb => eb('items', '-', eb.ref('next_item')).as('waiting'))
    .where('open_at', '>=', openAtMs)
    .where(eb => eb.or([eb('open_at', '>', openAtMs), eb('id', '>', id)]))
    .orderBy('open_at')
    .orderBy('id')
    .limit(sql.lit(BATCHES_MAX))
    .$narrowType<{ openAtMs: number }>(),
);

/** Without a job, the item waits, or its job's row was removed. */
export interface BatchItem {
  readonly item: number;
  readonly jobId: string;
  readonly reference: string | null;
  readonly job: Awaited<ReturnType<GroupReading['list']>>[number] | undefined;
  readonly isWaiting: boolean;
}

export type BatchReading = ReturnType<typeof batchReading>;

export function batchReading(database: Database, groups: GroupReading) {
  return {
    /** Undefined also for another key's batch. */
    findForKey: (id: string, apiKeyId: string) =>
      query(database, db => readBatch(groups, db, { id, api_key_id: apiKeyId })),
    /** Undefined also for another account's batch. */
    findForAccount: (id: string, accountId: string) =>
      query(database, async db =>
        isAsciiWord(id) ? readBatch(groups, db, { id, account_id: accountId }) : undefined,
      ),
    findByIdempotencyKey: (apiKeyId: string, keyHash: string) =>
      query(database, db => readBatchByKey(groups, db, apiKeyId, keyHash)),
    /** Open batches after that one, the oldest first. */
    listOpen: (after?: { readonly openAtMs: number; readonly id: string }) =>
      query(database, async db => {
        const { openAtMs, id } = after ?? { openAtMs: 0, id: '' };
        return (await db.executeQuery(OPEN(database, { openAtMs, id }))).rows;
      }),
    async listOf(accountId: string, limit: number) {
      const rows = await query(database, db =>
        selectBatches(db)
          .where('account_id', '=', accountId)
          .orderBy('created_at', 'desc')
          .orderBy('id', 'desc')
          .limit(limit)
          .execute(),
      );
      const batches: Batch[] = [];
      for (const row of rows) batches.push(await readCounts(database, groups, row));
      return batches;
    },
    listOfKey: (filter: KeyBatches) => listOfKey(database, groups, filter),
    items: ({ id }: Pick<Batch, 'id'>, from: number, limit: number) =>
      query(database, async db => {
        const rows = await db
          .selectFrom('batch_items')
          .select(['item', 'job_id as jobId', 'reference', 'image_url as url'])
          .where('batch_id', '=', id)
          .where('item', '>=', from)
          .orderBy('item')
          .limit(limit)
          .execute();
        const read = await groups.list(db, id, { from, limit });
        const jobs = new Map(read.map(job => [job.id, job]));
        return rows.map(({ url, ...row }): BatchItem => {
          return { ...row, job: jobs.get(row.jobId), isWaiting: url !== null };
        });
      }),
    /** The jobs of `limit` items from number `from` on. With `only`, `limit` jobs of that kind. */
    jobs: ({ id }: Pick<Batch, 'id'>, page: JobsPage) =>
      query(database, db => groups.list(db, id, page)),
  };
}

interface KeyBatches {
  readonly apiKeyId: string;
  readonly status?: BatchStatus | undefined;
  readonly limit: number;
  readonly after?: string | undefined;
}

/** Whether the row alone allows the status. Only an open batch is queued or processing. */
function mayBe({ cancelledAtMs, finishedAtMs }: BatchRow, status: BatchStatus | undefined) {
  if (status === undefined) return true;
  if (cancelledAtMs !== null || status === 'cancelled')
    return cancelledAtMs !== null && status === 'cancelled';
  return (finishedAtMs !== null) === (status === 'finished');
}

/** The newest first. `next` is null on the last page, which can be empty. */
async function listOfKey(
  database: Database,
  groups: GroupReading,
  { apiKeyId, status, limit, after = '' }: KeyBatches,
) {
  const [, atMs = '', afterId = ''] = CURSOR.exec(after) ?? [];
  const look = status === undefined ? limit + 1 : LOOKED_AT_MAX;
  const rows = await query(database, db => {
    const all = selectBatches(db).where('api_key_id', '=', apiKeyId);
    const at = Number(atMs);
    const rest = all
      .where('created_at', '<=', at)
      .where(eb => eb.or([eb('created_at', '<', at), eb('id', '<', afterId)]));
    const from = atMs === '' ? all : rest;
    return from.orderBy('created_at', 'desc').orderBy('id', 'desc').limit(look).execute();
  });
  const batches: Batch[] = [];
  let last: BatchRow | undefined;
  for (const row of rows) {
    if (batches.length === limit) break;
    last = row;
    if (!mayBe(row, status)) continue;
    const batch = await readCounts(database, groups, row);
    if (status === undefined || batchStatus(batch) === status) batches.push(batch);
  }
  const isLast = last === rows.at(-1) && rows.length < look;
  const next = last === undefined || isLast ? null : `${last.createdAtMs}-${last.id}`;
  return { batches, next };
}

function selectBatches(db: Db) {
  return db
    .selectFrom('batches')
    .select(['id', 'account_id as accountId', 'api_key_id as apiKeyId', 'fingerprint', 'items'])
    .select('name')
    .select(['next_item as nextItem', 'created_at as createdAtMs'])
    .select(['cancelled_at as cancelledAtMs', 'finished_at as finishedAtMs']);
}

type BatchName = Partial<
  Pick<Selectable<Schema['batches']>, 'id' | 'account_id' | 'api_key_id' | 'idempotency_key_hash'>
>;

function readRow(db: Db, name: BatchName) {
  return selectBatches(db)
    .where(eb => eb.and(name))
    .executeTakeFirst();
}

export async function readBatch(groups: GroupReading, db: Db, name: BatchName) {
  const row = await readRow(db, name);
  return row && withCounts(groups, db, row);
}

export function readBatchByKey(groups: GroupReading, db: Db, apiKeyId: string, keyHash: string) {
  return readBatch(groups, db, { api_key_id: apiKeyId, idempotency_key_hash: keyHash });
}

async function readCounts(database: Database, groups: GroupReading, row: BatchRow) {
  await yieldToEventLoop();
  return await query(database, db => withCounts(groups, db, row));
}

async function withCounts(groups: GroupReading, db: Db, row: BatchRow): Promise<Batch> {
  const counted = await groups.counts(db, row.id);
  const all = Object.values(counted).reduce((sum, count) => sum + count);
  // Rows of the first jobs are removed before the batch's own row.
  const expired = counted.expired + Math.max(0, row.nextItem - all);
  return { ...row, counts: { waiting: row.items - row.nextItem, ...counted, expired } };
}
