/** The trace of a job's submission, which whoever works on the job continues. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes } from './ddl.ts';

/** A traceparent of 55 characters, a blank, a tracestate of at most 512. */
const CONTEXT_LENGTH_MAX = 568;

export function tracesMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'jobs', 'trace_context', sql`${t.ascii(CONTEXT_LENGTH_MAX)} null`);
    },
  };
}
