/** What may be compared with a column, and what statements answer. */
import type { CompiledQuery, UpdateResult } from 'kysely';
import type { Db } from './schema.ts';

/** Executes a compare-and-set: true when the one row matched. */
export async function matchesOne(update: {
  executeTakeFirstOrThrow(): Promise<UpdateResult>;
}): Promise<boolean> {
  const { numUpdatedRows } = await update.executeTakeFirstOrThrow();
  return numUpdatedRows === 1n;
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
