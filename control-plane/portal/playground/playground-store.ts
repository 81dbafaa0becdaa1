/**
 * A playground has a key, and a daily allowance in place of credits (docs/adr/0022). A picture
 * counts before its job is submitted. The row serializes an account's counts over all replicas, and
 * a job's end may return the picture.
 */

import { insertInternalKey } from '@matting/accounts/keys/change-api-keys.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import { isInserted, matchesOne, startOfDay } from '@matting/database/statements.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { sql } from 'kysely';

/** Pictures of an account a day. 0 turns the playground off. */
export const PLAYGROUND_IMAGES_DEFAULT = 20;
export const PLAYGROUND_IMAGES_MAX = 10_000;
export type PlaygroundStore = ReturnType<typeof createPlaygroundStore>;

export function createPlaygroundStore(database: Database) {
  return {
    /** Makes the key on first use, and forgets its secret at once. */
    internalKey: (accountId: string) => internalKey(database, accountId),
    findKey: (accountId: string) => findKey(database, accountId),
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
     * @returns the start of the counted day; undefined: `imagesMax` are used. A lost answer of the
     * database may count the picture twice.
     */
    take: (accountId: string, imagesMax: number) => takeImage(database, accountId, imagesMax),
    /** Runs at most once: after a lost answer of the database the picture stays counted. */
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

/** A clock that is set back does not reset a day. */
function takeImage(
  database: Database,
  accountId: string,
  imagesMax: number,
): Promise<number | undefined> {
  return transact(database, async tx => {
    const day = startOfDay(database.nowMs);
    const update = tx
      .updateTable('playgrounds')
      // MySQL assigns from left to right, so `used` must come before `day_at`.
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

export async function giveImageBack(tx: Db, accountId: string, dayMs: number): Promise<void> {
  await tx
    .updateTable('playgrounds')
    .set(eb => ({ used: eb('used', '-', 1) }))
    .where('account_id', '=', accountId)
    .where('day_at', '=', dayMs)
    .where('used', '>', 0)
    .execute();
}
