/** What a payer writes into a transfer: short, and of one order. Orders from before have none. */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, ascii, createIndex } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function orderReferences(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      await addColumns(db, dialect, 'orders', { reference: ascii(16) });
      const isUnique = true;
      await createIndex(db, dialect, 'orders_reference', 'orders', ['reference'], { isUnique });
    },
  };
}
