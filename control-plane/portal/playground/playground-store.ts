/**
 * An account's playground has a key, and an allowance of a day in place of credits (docs/adr/0022).
 * A picture is counted before its job is submitted. Its row serialises an account's counts over all
 * replicas; a job's end may give the picture back.
 */

import { insertInternalKey } from '@matting/accounts/keys/change-api-keys.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { isInserted, matchesOne, startOfDay } from '@matting/database/statements.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { sql } from 'kysely';

/**
 * An account has so many pictures a day unless the operator sets another number; 0 turns it off.
 */
export const PLAYGROUND_IMAGES_DEFAULT = 20;
export const PLAYGROUND_IMAGES_MAX = 10_000;
export type PlaygroundStore = ReturnType<typeof createPlaygroundStore>;

export function createPlaygroundStore(database: Database) {
  return {
    /**
     * Finds the key of its jobs, or makes it on first use. Its secret is forgotten as it is made.
     */
    internalKey: (accountId: string) => internalKey(database, accountId),
    /** Undefined: the account has not used its playground yet. */
    findKey: (accountId: string) => findKey(database, accountId),
    /** Counts pictures that the account has used today, and says when the next day begins. */
    async usage(accountId: string) {
      const row = await query(database, db =>
        db
          .selectNoFrom([
            startOfDay(database.nowMs).as('day'),
            db
              .selectFrom('playgrounds')
              .select('used')
              .where('account_id', '=', accountId)
              .where('day_at', '=', startOfDay(database.nowMs))
              .as('used'),
          ])
          .executeTakeFirstOrThrow(),
      );
      return { used: row.used ?? 0, resetsAtMs: row.day + DAY_MS };
    },
    /**
     * Counts a picture, and answers the first instant of its day; undefined: `imagesMax` are
     * counted. If the answer of the database is lost, it may count the picture twice.
     */
    take: (accountId: string, imagesMax: number) => takeImage(database, accountId, imagesMax),
    /** At most once: if the answer of the database is lost, the picture stays counted. */
    async giveBack(accountId: string, dayMs: number): Promise<void> {
      let isTried = false;
      await query(database, async db => {
        if (isTried) return;
        isTried = true;
        await giveImageBack(db, accountId, dayMs);
      });
    },
  };
}

async function internalKey(database: Database, accountId: string): Promise<string> {
  const known = await findKey(database, accountId);
  if (known !== undefined) return known;
  const insert = transact(database, async tx => {
    const keyId = await insertInternalKey(database, tx, accountId, 'playground');
    const playground = { account_id: accountId, api_key_id: keyId, day_at: 0, used: 0 };
    await tx.insertInto('playgrounds').values(playground).execute();
  });
  await isInserted(insert);
  const key = await findKey(database, accountId);
  if (key === undefined) throw new Error(`the playground of account ${accountId} has no key`);
  return key;
}

async function findKey(database: Database, accountId: string): Promise<string | undefined> {
  const row = await query(database, db =>
    db
      .selectFrom('playgrounds')
      .select('api_key_id')
      .where('account_id', '=', accountId)
      .executeTakeFirst(),
  );
  return row?.api_key_id;
}

/** A clock set back resets no day. */
function takeImage(
  database: Database,
  accountId: string,
  imagesMax: number,
): Promise<number | undefined> {
  return transact(database, async tx => {
    const day = startOfDay(database.nowMs);
    const update = tx
      .updateTable('playgrounds')
      // MySQL assigns from left to right, so reads of the old day come before the new one.
      .set({
        used: sql<number>`case when day_at < ${day} then 1 else used + 1 end`,
        day_at: sql<number>`case when day_at < ${day} then ${day} else day_at end`,
      })
      .where('account_id', '=', accountId)
      .where(eb => eb.or([eb('day_at', '<', day), eb('used', '<', imagesMax)]));
    if (imagesMax < 1 || !(await matchesOne(update))) return undefined;
    const row = await tx
      .selectFrom('playgrounds')
      .select('day_at')
      .where('account_id', '=', accountId)
      .executeTakeFirstOrThrow();
    return row.day_at;
  });
}

/** Does nothing once another day is counted. */
export async function giveImageBack(tx: Db, accountId: string, dayMs: number): Promise<void> {
  await tx
    .updateTable('playgrounds')
    .set(eb => ({ used: eb('used', '-', 1) }))
    .where('account_id', '=', accountId)
    .where('day_at', '=', dayMs)
    .where('used', '>', 0)
    .execute();
}
