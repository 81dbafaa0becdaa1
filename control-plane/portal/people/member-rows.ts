/**
 * What the stores of people share: the order in which people are changed. The account's row comes
 * first, then the person's, then those of links and sessions.
 */
import type { Database } from '../../core/database/connect.ts';
import type { Db } from '../../core/database/schema.ts';

/** Of one account. */
export const MEMBERS_MAX = 200;

/**
 * Waits for whoever changes the person at this moment, or signs them in by what is stored of their
 * password: what is answered stays so until the transaction ends. Undefined: there is nobody (any
 * more).
 */
export async function takePerson({ engine }: Database, tx: Db, userId: string) {
  await tx
    .updateTable('users')
    // As takeAccount: a lock that changes nothing keeps out nobody at another member of a cluster.
    .set(eb => ({ turns: engine.conflicts === 'locks' ? eb.ref('turns') : eb('turns', '+', 1) }))
    .where('id', '=', userId)
    .execute();
  const row = await tx
    .selectFrom('users')
    .select(['mail', 'mail_key as mailKey', 'password_hash as passwordHash'])
    .select(['proven_at', 'disabled_at'])
    .where('id', '=', userId)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const { proven_at, disabled_at, ...person } = row;
  return { ...person, isProven: proven_at !== null, isDisabled: disabled_at !== null };
}
