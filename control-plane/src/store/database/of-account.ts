/**
 * Rows of one account in the order of an index that begins with its account, page by page. A server
 * that is told `=` of the first column may take the index by that column alone, and then steps over
 * all that is older at every page; told a range it takes both columns. SQLite takes both only after
 * `=`.
 */
import { type RawBuilder, sql } from 'kysely';
import type { DatabaseDialect } from './clock.ts';

/** The condition on the account. Order by the account first: a range alone keeps no order. */
export function ofAccount(dialect: DatabaseDialect, accountId: string): RawBuilder<boolean> {
  const column = sql.ref('account_id');
  return dialect === 'sqlite'
    ? sql<boolean>`${column} = ${accountId}`
    : sql<boolean>`(${column} >= ${accountId} and ${column} <= ${accountId})`;
}
