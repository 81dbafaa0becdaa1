/** What may be compared with a column, and what statements answer. */
import type { CompiledQuery, DeleteResult, UpdateResult } from 'kysely';
import { databaseErrorKind } from './database-errors.ts';
import type { Db } from './schema.ts';

/** Executes a compare-and-set, or a removal: true when the one row matched. */
export async function matchesOne(change: {
  executeTakeFirstOrThrow(): Promise<UpdateResult | DeleteResult>;
}): Promise<boolean> {
  const result = await change.executeTakeFirstOrThrow();
  return ('numUpdatedRows' in result ? result.numUpdatedRows : result.numDeletedRows) === 1n;
}

/**
 * False when a unique key is taken: by another process, or by an earlier try whose answer was lost.
 */
export async function isInserted(insert: Promise<unknown>): Promise<boolean> {
  try {
    await insert;
    return true;
  } catch (error) {
    if (databaseErrorKind(error) !== 'duplicate') throw error;
    return false;
  }
}

/** The same of a kept statement. */
export async function keptMatchesOne(db: Db, statement: CompiledQuery<unknown>): Promise<boolean> {
  const { numAffectedRows } = await db.executeQuery(statement);
  return numAffectedRows === 1n;
}

/**
 * True for text that may be compared with an ASCII column. MySQL refuses to compare anything else
 * ("illegal mix of collations"), and pads spaces; it could match no row anyhow.
 */
export function isAsciiWord(text: string): boolean {
  return /^[\x21-\x7e]{1,300}$/.test(text);
}

/** An aggregate as a number: empty sums are null, and drivers turn what is not exact into text. */
export function requireInteger(value: unknown): number {
  const number = value === null ? 0 : value;
  if (typeof number !== 'number' || !Number.isSafeInteger(number)) {
    throw new Error(`the database answered ${typeof value} where a safe integer was due`);
  }
  return number;
}
