/**
 * A table to be read through one of its indexes. By their statistics MariaDB and MySQL may take
 * another that reads far more rows, or read the whole table and sort it.
 */
import { sql } from 'kysely';
import type { Schema } from './schema.ts';

/** By dialect: SQLite chooses as we would. */
export function throughIndex<T extends keyof Schema>(table: T, index: string) {
  const rows = sql<Schema[T]>`${sql.raw(table)}`;
  return {
    sqlite: rows.as<T>(sql.raw(table)),
    mysql: rows.as<T>(sql.raw(`${table} force index (${index})`)),
  };
}
