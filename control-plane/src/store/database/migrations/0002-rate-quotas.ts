/** What replicas lease of an account's requests a minute: domain/rate-quota.ts. */
import type { Migration } from 'kysely/migration';
import type { DatabaseDialect } from '../clock.ts';
import { columnTypes, createTable } from './ddl.ts';

export function rateQuotasMigration(dialect: DatabaseDialect): Migration {
  const t = columnTypes(dialect);
  return {
    up: db =>
      createTable(db, dialect, {
        name: 'rate_quotas',
        columns: {
          account_id: t.id,
          kind: t.ascii(16),
          window_start: t.integer,
          leased: t.integer,
        },
        primaryKey: ['account_id', 'kind'],
        checks: {
          rate_quotas_kind: `kind in ('submissions', 'reads')`,
          rate_quotas_leased: 'leased >= 0 and window_start >= 0',
        },
      }),
  };
}
