import { randomUUID } from 'node:crypto';
import { type Database, type Db, query, type Schema } from '@matting/database/database.ts';
import { isAsciiWord, isInserted } from '@matting/database/statements.ts';
import type { Kysely } from 'kysely';

export type Account = Awaited<ReturnType<typeof readPage>>[number];

const ACCOUNTS_PAGE_ROWS = 500;

const NAMES_READ_MAX = 200;

/** Code points of an account's or a key's name. */
export const NAME_LENGTH_MAX = 64;

/**
 * Whether all collations compare the name alike, and no command takes it for an id or an option.
 */
export function isName(value: string): boolean {
  return (
    value.isWellFormed() &&
    value === value.normalize('NFC') &&
    value === value.trim() &&
    !/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(value) &&
    !/^-|^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(value) &&
    value !== '' &&
    [...value].length <= NAME_LENGTH_MAX
  );
}

export function createAccountStore(database: Database) {
  const findBy = async (column: 'id' | 'name', value: string) => {
    if (!(column === 'id' ? isAsciiWord(value) : isName(value))) return undefined;
    return query(database, db => selectAccounts(db).where(column, '=', value).executeTakeFirst());
  };
  return {
    async create(name: string): Promise<Account | undefined> {
      requireName(name);
      const id = randomUUID();
      await isInserted(query(database, db => insertAccount(database, db, id, name)));
      const account = await findBy('name', name);
      // If the answer to the first insert was lost, the second one finds its row.
      return account?.id === id ? account : undefined;
    },
    find: (accountId: string) => findBy('id', accountId),
    async findByNameOrId(nameOrId: string): Promise<Account | undefined> {
      return (await findBy('name', nameOrId)) ?? (await findBy('id', nameOrId));
    },
    async list(): Promise<Account[]> {
      const accounts: Account[] = [];
      for (let more = true; more; ) {
        const after = accounts.at(-1)?.name;
        const page = await readPage(database, { limit: ACCOUNTS_PAGE_ROWS, after });
        accounts.push(...page);
        more = page.length === ACCOUNTS_PAGE_ROWS;
      }
      return accounts;
    },
    page: (page: { readonly limit: number; readonly after?: string | undefined }) =>
      readPage(database, page),
    /** Reads at most NAMES_READ_MAX ids and leaves out unknown ones. */
    async namesOf(accountIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
      const ids = accountIds.filter(isAsciiWord);
      if (ids.length > NAMES_READ_MAX) throw new Error(`at most ${NAMES_READ_MAX} names at once`);
      if (ids.length === 0) return new Map();
      const rows = await query(database, db =>
        db.selectFrom('accounts').select(['id', 'name']).where('id', 'in', ids).execute(),
      );
      return new Map(rows.map(({ id, name }) => [id, name]));
    },
  };
}

function readPage(
  database: Database,
  { limit, after = '' }: { readonly limit: number; readonly after?: string | undefined },
) {
  return query(database, db =>
    selectAccounts(db).where('name', '>', after).orderBy('name').limit(limit).execute(),
  );
}

export async function insertAccount(
  database: Database,
  db: Db,
  id: string,
  name: string,
): Promise<void> {
  await db
    .insertInto('accounts')
    .values({ id, name, available: 0, reserved: 0, created_at: database.nowMs })
    .execute();
}

export function requireName(name: string): void {
  if (!isName(name)) throw new Error(`"${name}" cannot be a name: see isName`);
}

/** Packages join it to their tables. */
export function selectAccounts(db: Db) {
  return db
    .selectFrom('accounts')
    .select(['id', 'name', 'available', 'reserved', 'created_at as createdAtMs']);
}

/**
 * Locks the account's row for the rest of the transaction, so no other transaction writes an entry
 * of the account. If each cluster member has its own locks, it changes the row: a concurrent
 * transaction then commits first, or repeats.
 */
export async function takeAccount(
  { engine }: Database,
  tx: Kysely<Schema>,
  accountId: string,
): Promise<void> {
  await tx
    .updateTable('accounts')
    .set(eb =>
      engine.conflicts === 'locks'
        ? { available: eb.ref('available') }
        : { turns: eb('turns', '+', 1) },
    )
    .where('id', '=', accountId)
    .execute();
}
