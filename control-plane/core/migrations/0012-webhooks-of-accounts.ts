/** The index by which accounts list their webhooks. */
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { createIndex } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function webhooksOfAccounts(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      const columns = ['account_id', 'kind', 'status', 'created_at', 'id'];
      await createIndex(db, dialect, 'outbox_account', 'outbox', columns);
    },
  };
}
