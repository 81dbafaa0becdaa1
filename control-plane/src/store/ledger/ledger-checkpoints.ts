/** The rows of ledger_checkpoints. One is written once and never changed. */
import type { Selectable } from 'kysely';
import { type LedgerCheckpoint, sameSums } from '../../domain/ledger-checkpoint.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import type { LedgerCheckpointsTable } from '../database/schema.ts';
import { query, readBack } from '../database/transact.ts';

/** Checkpoints of one statement. */
const CHECKPOINTS_PAGE_ROWS = 500;

/** Undefined: the account has none. */
export async function readLastCheckpoint(
  database: Database,
  accountId: string,
): Promise<LedgerCheckpoint | undefined> {
  const row = await readBack(database, db =>
    db
      .selectFrom('ledger_checkpoints')
      .selectAll()
      .where('account_id', '=', accountId)
      .orderBy('closed_to', 'desc')
      .limit(1)
      .executeTakeFirst(),
  );
  return row && checkpointFromRow(row);
}

/** The account's next ones, in order. An empty page: there are no more. */
export async function readCheckpointsAfter(
  database: Database,
  accountId: string,
  closedToMs: number,
): Promise<LedgerCheckpoint[]> {
  const rows = await readBack(database, db =>
    db
      .selectFrom('ledger_checkpoints')
      .selectAll()
      .where('account_id', '=', accountId)
      .where('closed_to', '>', closedToMs)
      .orderBy('closed_to')
      .limit(CHECKPOINTS_PAGE_ROWS)
      .execute(),
  );
  return rows.map(checkpointFromRow);
}

/**
 * Writes one, once. Where another audit, or this one in a try whose answer was lost, has written it
 * already, the answer is the stored one if it differs.
 */
export async function writeCheckpoint(
  database: Database,
  accountId: string,
  checkpoint: LedgerCheckpoint,
): Promise<LedgerCheckpoint | undefined> {
  const { closedToMs, entries, sums } = checkpoint;
  try {
    await query(database, db =>
      db
        .insertInto('ledger_checkpoints')
        .values({
          account_id: accountId,
          closed_to: closedToMs,
          entries,
          granted: sums.grant,
          reserved: sums.reserve,
          charged: sums.charge,
          released: sums.release,
          revoked: sums.revoke,
          created_at: database.nowMs,
        })
        .execute(),
    );
    return undefined;
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
  }
  const [standing] = await readCheckpointsAfter(database, accountId, closedToMs - 1);
  return standing === undefined || sameSums(standing, checkpoint) ? undefined : standing;
}

/** Removes an account's checkpoints from one on. */
export async function removeCheckpointsFrom(
  database: Database,
  accountId: string,
  closedToMs: number,
): Promise<void> {
  await query(database, db =>
    db
      .deleteFrom('ledger_checkpoints')
      .where('account_id', '=', accountId)
      .where('closed_to', '>=', closedToMs)
      .execute(),
  );
}

function checkpointFromRow(row: Selectable<LedgerCheckpointsTable>): LedgerCheckpoint {
  return {
    closedToMs: row.closed_to,
    entries: row.entries,
    sums: {
      grant: row.granted,
      reserve: row.reserved,
      charge: row.charged,
      release: row.released,
      revoke: row.revoked,
    },
  };
}
