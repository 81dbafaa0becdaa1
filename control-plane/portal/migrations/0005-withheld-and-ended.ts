/**
 * Columns for withheld notices (alerts/notices.ts), and a table of operators' sessions that were
 * signed out (operator-pages/operator-sessions.ts).
 */

import type { DatabaseDialect } from '@matting/database/engines.ts';
import { addColumns, ascii, createTables, HASH, INTEGER } from '@matting/database/migrate.ts';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export function withheldAndEnded(dialect: DatabaseDialect): Migration {
  return {
    async up(db: Kysely<unknown>) {
      for (const table of ['balance_alerts', 'key_expiry_notices']) {
        await addColumns(db, dialect, table, { withheld_at: INTEGER, withheld_rest: ascii(512) });
      }
      await createTables(db, dialect, [
        {
          name: 'ended_operator_sessions',
          columns: { token_hash: HASH, expires_at: INTEGER },
          primaryKey: ['token_hash'],
          indexes: { ended_operator_sessions_expiry: ['expires_at'] },
        },
      ]);
    },
  };
}
