/**
 * Counts settlements that a control plane from before usage_days entered, before the migration or
 * beside newer ones during an upgrade. Each entry says whether it was counted with the job's end
 * (`usage_counted`), and the entries of an account become visible in the order of their creation
 * (ledger-writer.ts). So a walk along them, whose place moves in the transaction that counts,
 * counts each of the others once, whatever dies and however many walk at once.
 *
 * A pass goes over all accounts. Passes are PASS_EVERY_MS apart for OLDER_WITHIN_MS after the first
 * began; an account without new entries costs a seek. What an older control plane enters later than
 * that is in the ledger alone. A settlement whose job's row is gone has no key and no format.
 */
import type { Kysely } from 'kysely';
import { DAY_MS, dayOf, USAGE_KEPT_DAYS } from '../../domain/account/usage.ts';
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import { ofAccount } from '../database/of-account.ts';
import type { Schema } from '../database/schema.ts';
import { OvertakenError, query, readBack, transact } from '../database/transact.ts';
import { outputFormatFromRow } from '../jobs/job-finishing.ts';
import { takeAccount } from '../ledger/ledger-writer.ts';
import { addUsageRow, type UsageRow } from './usage-days.ts';

export interface UsageWalkOptions {
  /** Between the end of a pass and the beginning of the next. */
  readonly passEveryMs?: number;
  /** No pass begins later than this after the first. */
  readonly olderWithinMs?: number;
  /** Entries younger than this are left to the next pass, in case the clock is set back. */
  readonly marginMs?: number;
}

/** What a page of the walk found. */
export interface UsageWalked {
  /** Settlements that were counted. */
  readonly counted: number;
  /** False: until the next pass there is nothing to do. */
  readonly more: boolean;
}

const PASS_EVERY_MS = 3_600_000;
const OLDER_WITHIN_MS = 7 * DAY_MS;
/** As that of the ledger's checkpoints. */
const MARGIN_MS = 600_000;
/** Accounts without new entries that a page passes. */
const ACCOUNTS_MAX = 20;
const ID = 'usage';

interface WalkRow {
  readonly account_after: string;
  readonly first_began_at: number;
  readonly pass_ended_at: number | null;
  readonly read_at: number;
}

/** Reads at most `limit` entries. */
export async function walkUsage(
  database: Database,
  limit: number,
  options: UsageWalkOptions = {},
): Promise<UsageWalked> {
  const { marginMs = MARGIN_MS } = options;
  const walk = await beginPass(database, options);
  if (walk === undefined) return { counted: 0, more: false };
  let after = walk.account_after;
  for (let passed = 0; passed < ACCOUNTS_MAX; passed += 1) {
    const accountId = await readAccountAfter(database, after);
    if (accountId === undefined) {
      await saveWalk(database, walk, { account_after: '', pass_ended_at: database.nowMs });
      return { counted: 0, more: false };
    }
    const { read, counted } = await countPage(database, accountId, { limit, marginMs });
    // The account is at its end where the page was not full.
    if (read < limit) after = accountId;
    if (read === 0) continue;
    await saveWalk(database, walk, { account_after: after });
    return { counted, more: true };
  }
  await saveWalk(database, walk, { account_after: after });
  return { counted: 0, more: true };
}

/** Undefined: no pass is due. */
async function beginPass(
  database: Database,
  { passEveryMs = PASS_EVERY_MS, olderWithinMs = OLDER_WITHIN_MS }: UsageWalkOptions,
): Promise<WalkRow | undefined> {
  const row = (await readWalk(database)) ?? (await createWalk(database));
  if (row.pass_ended_at === null) return row;
  const passDue = row.read_at - row.pass_ended_at >= passEveryMs;
  if (!passDue || row.read_at - row.first_began_at > olderWithinMs) return undefined;
  await saveWalk(database, row, { account_after: '', pass_ended_at: null });
  return { ...row, account_after: '', pass_ended_at: null };
}

/**
 * Only an order in which accounts are come to: another replica that has moved it meanwhile loses
 * nothing by it, and neither does an account that is come to twice.
 */
async function saveWalk(
  database: Database,
  { account_after }: WalkRow,
  place: { account_after: string; pass_ended_at?: Database['nowMs'] | null },
): Promise<void> {
  await query(database, db =>
    db
      .updateTable('usage_walks')
      .set(place)
      .where('id', '=', ID)
      .where('account_after', '=', account_after)
      .execute(),
  );
}

function readWalk(database: Database): Promise<WalkRow | undefined> {
  return readBack(database, db =>
    db
      .selectFrom('usage_walks')
      .select(['account_after', 'first_began_at', 'pass_ended_at'])
      .select(() => database.nowMs.as('read_at'))
      .where('id', '=', ID)
      .executeTakeFirst(),
  );
}

/** Another replica may make it in the meantime. */
async function createWalk(database: Database): Promise<WalkRow> {
  const first = { id: ID, account_after: '', first_began_at: database.nowMs };
  try {
    await query(database, db => db.insertInto('usage_walks').values(first).execute());
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const row = await readWalk(database);
  if (row === undefined) throw new Error('the row of the walk over usage vanished');
  return row;
}

async function readAccountAfter(database: Database, after: string): Promise<string | undefined> {
  const row = await query(database, db =>
    db
      .selectFrom('accounts')
      .select('id')
      .where('id', '>', after)
      .orderBy('id')
      .limit(1)
      .executeTakeFirst(),
  );
  return row?.id;
}

interface Place {
  readonly atMs: number;
  readonly id: string;
}

const BEGINNING: Place = { atMs: 0, id: '' };

interface PageBounds {
  readonly limit: number;
  readonly marginMs: number;
}

/** The account's next entries; its row is taken only where there are some. */
async function countPage(
  database: Database,
  accountId: string,
  bounds: PageBounds,
): Promise<{ read: number; counted: number }> {
  const seen = await query(database, async db => {
    const place = (await readPlace(db, accountId)) ?? BEGINNING;
    return selectEntries(database, db, accountId, place, { ...bounds, limit: 1 }).execute();
  });
  if (seen.length === 0) return { read: 0, counted: 0 };
  return transact(database, async tx => {
    // Whoever else walks here waits, and then finds the place moved.
    await takeAccount(database, tx, accountId);
    const place = await readPlace(tx, accountId);
    const entries = await selectEntries(
      database,
      tx,
      accountId,
      place ?? BEGINNING,
      bounds,
    ).execute();
    const last = entries.at(-1);
    if (last === undefined) return { read: 0, counted: 0 };
    const uncounted = entries.filter(({ slot, usage_counted }) => {
      return slot === 'settle' && usage_counted === null;
    });
    for (const row of rowsOf(accountId, uncounted)) await addUsageRow(database, tx, row);
    await movePlace(tx, accountId, place, { atMs: last.created_at, id: last.id });
    return { read: entries.length, counted: uncounted.length };
  });
}

async function readPlace(db: Kysely<Schema>, accountId: string): Promise<Place | undefined> {
  const row = await db
    .selectFrom('usage_places')
    .select(['counted_to_at', 'counted_to_id'])
    .where('account_id', '=', accountId)
    .executeTakeFirst();
  return row && { atMs: row.counted_to_at, id: row.counted_to_id };
}

async function movePlace(
  tx: Kysely<Schema>,
  accountId: string,
  from: Place | undefined,
  to: Place,
): Promise<void> {
  const columns = { counted_to_at: to.atMs, counted_to_id: to.id };
  if (from === undefined) {
    await tx
      .insertInto('usage_places')
      .values({ account_id: accountId, ...columns })
      .execute();
    return;
  }
  const { numUpdatedRows } = await tx
    .updateTable('usage_places')
    .set(columns)
    .where('account_id', '=', accountId)
    .where('counted_to_at', '=', from.atMs)
    .where('counted_to_id', '=', from.id)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows !== 1n) throw new OvertakenError('another replica has counted these entries');
}

function selectEntries(
  database: Database,
  db: Kysely<Schema>,
  accountId: string,
  after: Place,
  { limit, marginMs }: PageBounds,
) {
  const page = db
    .selectFrom('ledger_entries')
    .select(['id', 'account_id', 'kind', 'slot', 'amount', 'created_at'])
    .select(['job_id', 'usage_counted'])
    .select(() => database.nowMs.as('read_at'))
    .where(ofAccount(database.dialect, accountId))
    .where('created_at', '>=', after.atMs)
    .where('created_at', '<', nowPlusMs(database.nowMs, -marginMs))
    .where(eb => eb.or([eb('created_at', '>', after.atMs), eb('id', '>', after.id)]))
    .orderBy('account_id')
    .orderBy('created_at')
    .orderBy('id')
    .limit(limit);
  return db
    .selectFrom(page.as('entry'))
    .leftJoin('jobs as job', 'job.id', 'entry.job_id')
    .selectAll('entry')
    .select(['job.api_key_id', 'job.output_format', 'job.finishing'])
    .orderBy('entry.created_at')
    .orderBy('entry.id');
}

type Entry = Awaited<ReturnType<ReturnType<typeof selectEntries>['execute']>>[number];

/** Summed up; without those that would be removed at once. */
function rowsOf(accountId: string, entries: readonly Entry[]): UsageRow[] {
  const rows = new Map<string, UsageRow>();
  for (const entry of entries) {
    const day = dayOf(entry.created_at);
    if (day < dayOf(entry.read_at) - USAGE_KEPT_DAYS) continue;
    const outcome = entry.kind === 'charge' ? 'succeeded' : 'failed';
    const key = { apiKeyId: entry.api_key_id ?? '', outcome, format: formatOf(entry) } as const;
    const name = [day, ...Object.values(key)].join(' ');
    const { images, credits } = rows.get(name) ?? { images: 0, credits: 0 };
    const charged = outcome === 'succeeded' ? entry.amount : 0;
    rows.set(name, {
      accountId,
      day,
      ...key,
      images: images + 1,
      credits: credits + charged,
    });
  }
  return [...rows.values()];
}

function formatOf({ output_format, finishing }: Entry): string {
  return output_format === null ? '' : outputFormatFromRow({ output_format, finishing });
}
