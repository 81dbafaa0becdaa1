/**
 * Pages of one account's rows, in the order of an index whose first column is the account. Given
 * `=` on that column, a server may use the index by that column alone and step over all older rows
 * at every page; given a range, it uses both columns. SQLite uses both only with `=`.
 */
import { type RawBuilder, sql } from 'kysely';
import type { DatabaseDialect } from '../../database/engines.ts';

/** The condition on the account. Order by the account first: a range alone keeps no order. */
export function ofAccount(dialect: DatabaseDialect, accountId: string): RawBuilder<boolean> {
  const column = sql.ref('account_id');
  return dialect === 'sqlite'
    ? sql<boolean>`${column} = ${accountId}`
    : sql<boolean>`(${column} >= ${accountId} and ${column} <= ${accountId})`;
}
