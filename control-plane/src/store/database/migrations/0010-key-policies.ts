/**
 * What an API key may do (domain/account/key-policy.ts), its second secret while it is rotated,
 * and when it was used. Every column is null in rows of control planes from before, which read
 * none: to them each key may do everything.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { addColumn, columnTypes } from './ddl.ts';

export function keyPoliciesMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  const ofKeys = {
    expires_at: t.integer,
    last_used_at: t.integer,
    previous_secret_hash: t.hash,
    previous_expires_at: t.integer,
    previous_last_used_at: t.integer,
    cap_credits: t.integer,
    cap_period: t.ascii(16),
    cap_window_start: t.integer,
    cap_used: t.integer,
    submissions_per_minute: t.integer,
    scopes: t.ascii(128),
    networks: t.ascii(2048),
    purpose: t.ascii(16),
  };
  return {
    async up(db: Kysely<unknown>) {
      for (const [name, type] of Object.entries(ofKeys)) {
        await addColumn(db, 'api_keys', name, sql`${type} null`);
      }
      await addColumn(db, 'jobs', 'cap_window_start', sql`${t.integer} null`);
    },
  };
}
