/**
 * Counts a key's cap in the transactions that reserve and release credits. They lock the account's
 * row first; compare-and-set notices changes of the key.
 */

import { type Database, type Db, OvertakenError } from '@matting/database/database.ts';
import { matchesOne } from '@matting/database/statements.ts';
import { capReached, capResetsAtMs, type KeyCap, takeOfCap } from './key-policy.ts';
import { capFromRow } from './policy-columns.ts';

/** Rolls back the transaction. */
export class CapReachedError extends Error {
  readonly detail: string;

  constructor(cap: KeyCap, nowMs: number) {
    super('the cap of the API key is reached');
    this.detail = capReached(cap, capResetsAtMs(cap.period, nowMs));
  }
}

/**
 * @returns the start of the count, for `giveBackToCap`; null: no cap
 * @throws CapReachedError
 */
export async function countForCap(
  database: Database,
  tx: Db,
  apiKeyId: string,
  credits: number,
): Promise<number | null> {
  const row = await tx
    .selectFrom('api_keys')
    .select(['cap_credits', 'cap_period', 'cap_window_start', 'cap_used'])
    .select(database.nowMs.as('now'))
    .where('id', '=', apiKeyId)
    .executeTakeFirst();
  const cap = row && capFromRow(row);
  if (row === undefined || cap === undefined) return null;
  const before = { windowStartMs: row.cap_window_start, used: row.cap_used ?? 0 };
  const after = takeOfCap(cap, before, credits, row.now);
  if (after === undefined) throw new CapReachedError(cap, row.now);
  const counted = await matchesOne(
    tx
      .updateTable('api_keys')
      .set({ cap_window_start: after.windowStartMs, cap_used: after.used })
      .where('id', '=', apiKeyId)
      .where('cap_credits', '=', cap.credits)
      .where('cap_period', '=', cap.period)
      .where('cap_window_start', row.cap_window_start === null ? 'is' : '=', row.cap_window_start)
      .where('cap_used', row.cap_used === null ? 'is' : '=', row.cap_used),
  );
  if (!counted) throw new OvertakenError('the cap of the API key was changed');
  return after.windowStartMs;
}

/** Gives back a released job's credits, unless a new count began. */
export async function giveBackToCap(
  tx: Db,
  apiKeyId: string,
  windowStartMs: number,
  credits: number,
): Promise<void> {
  await tx
    .updateTable('api_keys')
    .set(eb => ({ cap_used: eb('cap_used', '-', credits) }))
    .where('id', '=', apiKeyId)
    .where('cap_window_start', '=', windowStartMs)
    .where('cap_used', '>=', credits)
    .execute();
}
