/**
 * Tokens of result links, sealed; and until when they stay plain beside it. A control plane of
 * before shows the link that a row has and finds a row by the token that it is given, so for a day
 * after an upgrade rows have both in one, as they had. On a new database there is none to wait for.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import { type DatabaseDialect, databaseNowMs, nowPlusMs } from '../clock.ts';
import { addColumn, columnTypes } from './ddl.ts';

/** An upgrade ends within it. */
const PLAIN_MS = 86_400_000;
/** Sealed by two keys. */
const SEALED_LENGTH_MAX = 255;

export function resultTokensMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    async up(db: Kysely<unknown>) {
      await addColumn(db, 'jobs', 'result_token_sealed', sql`${t.ascii(SEALED_LENGTH_MAX)} null`);
      await addColumn(db, 'secrets_canary', 'plain_tokens_until', sql`${t.integer} null`);
      // The row is there where a control plane has ever started.
      const until = nowPlusMs(databaseNowMs(dialect), PLAIN_MS);
      await sql`update secrets_canary set plain_tokens_until = ${until}`.execute(db);
    },
  };
}
