import type { MigrationSeries } from '@matting/database/migrate.ts';
import { uploads } from './migrations/0001-uploads.ts';
import { knownUploads } from './migrations/0002-known-uploads.ts';

export const MCP_MIGRATIONS: MigrationSeries = {
  package: 'mcp',
  migrations: dialect => ({
    '0001-uploads': uploads(dialect),
    '0002-known-uploads': knownUploads(dialect),
  }),
};
