/**
 * Each claim raises the fence; the holder of an old fence renews and saves nothing. It may still
 * remove expired data, which does no harm: the lease only avoids double work.
 */

import { type Database, query, type Schema } from '@matting/database/database.ts';
import { FREE, isFree, isHeldBy, type LeaseClaim, takenBy } from '@matting/database/leases.ts';
import { isInserted, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type { UpdateQueryBuilder, UpdateResult } from 'kysely';

export type SweepClaim = LeaseClaim;

export type SweepWalk = NonNullable<Awaited<ReturnType<typeof claimSweep>>>['walk'];

/** How long the oldest due row has been due, in ms; 0: nothing is due. */
export type SweepBacklog = Awaited<ReturnType<typeof readBacklog>>;

export type SweepStore = ReturnType<typeof createSweepStore>;

const ID = 'sweep';

type SweepUpdate = UpdateQueryBuilder<Schema, 'sweeps', 'sweeps', UpdateResult>;

export function createSweepStore(database: Database) {
  const { nowMs } = database;
  const held = (claim: SweepClaim, set: (update: SweepUpdate) => SweepUpdate) =>
    query(database, db =>
      matchesOne(set(db.updateTable('sweeps')).where('id', '=', ID).where(isHeldBy(claim))),
    );
  return {
    /** Undefined: another replica sweeps. */
    claim: (holder: string, leaseMs: number) => claimSweep(database, holder, leaseMs),
    renew: (claim: SweepClaim, leaseMs: number) =>
      held(claim, update => update.set({ lease_expires_at: nowPlusMs(nowMs, leaseMs) })),
    release: (claim: SweepClaim) => held(claim, update => update.set(FREE)),
    /** @param began true for the first part of a new walk @returns false if the lease is lost */
    saveWalk: (claim: SweepClaim, part: number, began: boolean) =>
      held(claim, update =>
        update.set({ walk_part: part, ...(began ? { walk_began_at: nowMs } : {}) }),
      ),
    backlog: (rowAgeMs: number) => readBacklog(database, rowAgeMs),
  };
}

async function claimSweep(database: Database, holder: string, leaseMs: number) {
  const row = (await readRow(database)) ?? (await createRow(database));
  const claim: SweepClaim = { holder, fence: row.fence + 1 };
  const claimed = await query(database, db =>
    matchesOne(
      db
        .updateTable('sweeps')
        .set(takenBy(database, claim, leaseMs))
        .where('id', '=', ID)
        .where('fence', '=', row.fence)
        .where(isFree(database)),
    ),
  );
  if (!claimed) return undefined;
  const began = row.walk_began_at;
  return {
    claim,
    walk: {
      /** From 0; WALK_PARTS: the walk has ended. */
      part: row.walk_part,
      /** Time since the current or last walk began; null: there was none. */
      ageMs: began === null ? null : row.read_at - began,
    },
  };
}

function readRow(database: Database) {
  return query(database, db =>
    db
      .selectFrom('sweeps')
      .select(['fence', 'walk_part', 'walk_began_at'])
      .select(() => database.nowMs.as('read_at'))
      .where('id', '=', ID)
      .executeTakeFirst(),
  );
}

async function createRow(database: Database) {
  const values = { id: ID, fence: 0, walk_part: 0 };
  await isInserted(query(database, db => db.insertInto('sweeps').values(values).execute()));
  const row = await readRow(database);
  if (row === undefined) throw new Error('the row of the sweeps vanished');
  return row;
}

async function readBacklog(database: Database, rowAgeMs: number) {
  const { nowMs } = database;
  const now = () => nowMs.as('read_at');
  const result = await query(database, db =>
    db
      .selectFrom('jobs')
      .select('result_blob_expires_at as due_at')
      .select(now)
      .where('result_blob_expires_at', '<=', nowMs)
      .orderBy('result_blob_expires_at')
      .limit(1)
      .executeTakeFirst(),
  );
  const secret = await query(database, db =>
    db
      .selectFrom('outbox')
      .select('secret_erase_at as due_at')
      .select(now)
      .where('secret_erase_at', '<=', nowMs)
      .orderBy('secret_erase_at')
      .limit(1)
      .executeTakeFirst(),
  );
  const row = await query(database, db =>
    db
      .selectFrom('jobs')
      .select(eb => eb('finished_at', '+', rowAgeMs).as('due_at'))
      .select(now)
      .where('finished_at', '<=', nowPlusMs(nowMs, -rowAgeMs))
      .orderBy('finished_at')
      .limit(1)
      .executeTakeFirst(),
  );
  const sweep = await readRow(database);
  const began = sweep?.walk_began_at ?? null;
  return {
    resultsMs: sinceMs(result),
    secretsMs: sinceMs(secret),
    rowsMs: sinceMs(row),
    /** Time since the last walk began; null: there was none. */
    walkMs: sweep === undefined || began === null ? null : sweep.read_at - began,
  };
}

function sinceMs(due: { due_at: number | null; read_at: number } | undefined): number {
  return due === undefined || due.due_at === null ? 0 : Math.max(0, due.read_at - due.due_at);
}
