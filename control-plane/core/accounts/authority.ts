/**
 * A change of an account: who makes it is asked in its transaction whether they may, since between
 * the door and the transaction they may have lost the right, at another replica too. Nothing of a
 * person's gets into the audit log without having been asked (audit.ts).
 */
import type { Database, Db } from '../../database/database.ts';
import { takeAccount } from '../ledger/ledger-writer.ts';
import type { Actor } from './actor.ts';
import { type AuditEntry, type Authorized, insertAuditEntry, isEntered } from './audit.ts';

interface AskedChange {
  readonly accountId: string;
  readonly actor: Actor;
  /** Of the change's audit entry: one that is there was allowed when it was made. */
  readonly entryId: string;
  /** It takes away a right that was given before, and that ends once. */
  readonly endsRight?: boolean;
}

/**
 * Called first in a transaction. It takes the account's row, so that what is counted of the account
 * stays so until the end.
 * @throws what the actor's `refusal` resolves with
 */
export async function requireAuthority(database: Database, tx: Db, change: AskedChange) {
  const { accountId, actor: by, entryId, endsRight = false } = change;
  const asked = { accountId, endsRight };
  await lockAccount(database, tx, accountId);
  const error = by.kind === 'person' ? await by.refusal(database, tx, asked) : undefined;
  if (error !== undefined && !(await isEntered(tx, entryId))) throw error;
  const actor = by as Authorized;
  return {
    actor,
    /** Enters the change in the account's log, once, however often it is tried. */
    log: (entry: Pick<AuditEntry, 'action' | 'subject' | 'before' | 'after'>) =>
      insertAuditEntry(database, tx, { id: entryId, accountId, actor, ...entry }),
  };
}

/**
 * Waits for whoever changes the account at this moment: what is counted then stays so
 * until the transaction ends. The account's row comes first, as everywhere.
 */
export async function lockAccount(database: Database, tx: Db, accountId: string): Promise<void> {
  if (database.engine.conflicts === 'certification') {
    await takeAccount(database, tx, accountId);
    return;
  }
  const account = tx.selectFrom('accounts').select('id').where('id', '=', accountId);
  // SQLite runs one writing transaction at a time.
  await (database.dialect === 'sqlite' ? account : account.forUpdate()).execute();
}
