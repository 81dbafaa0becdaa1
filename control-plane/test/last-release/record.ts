/**
 * Records what the stores of a release say to a database, for releases to come:
 *
 *     sh bin/node24 control-plane/test/last-release/record.ts 0.2.0
 *
 * docs/releasing.md says when. MariaDB must be installed. Needs: batches.
 */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { withBatches } from '@matting/batches/test/fixtures.ts';
import { migrate } from '@matting/database/migrate.ts';
import { createTestDatabase, DIALECTS } from '@matting/test-support/database.ts';
import { openWatchedDatabase, type Unwatched } from '@matting/test-support/watched-database.ts';
import type { CompiledQuery } from 'kysely';
import { series, storesOn } from '../fixtures.ts';
import { liveOn } from './life.ts';
import { type Recorded, rowsOf, writeSnapshot } from './snapshot.ts';

/** The migrations read and lock, which is nothing on an empty database. */
const CHANGES_TABLES = /^\s*(?:create|alter|drop|insert|update)\b/i;

/** The replay has no transactions. */
const OF_TRANSACTIONS = /^\s*(?:savepoint|release|rollback)\b/i;

const [release] = process.argv.slice(2);
if (release === undefined) throw new Error('the version that is recorded is missing');
const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trim();
const commit = git('rev-parse', '--verify', `v${release}^{commit}`);
const here = path.relative(process.cwd(), import.meta.dirname);
const changed = git('diff', '--stat', commit, '--', 'control-plane', `:!${here}`);
if (changed !== '') throw new Error(`the control plane is not that of v${release}:\n${changed}`);

for (const dialect of DIALECTS) {
  const recordedAtMs = Date.now();
  const test = await createTestDatabase(dialect, { migrated: false });
  let statements: Recorded[] = [];
  const database = openWatchedDatabase(
    dialect,
    test.url,
    async <R>(connection: Unwatched, query: CompiledQuery) => {
      const result = await connection.executeQuery<R>(query);
      const { sql, parameters } = query;
      if (!OF_TRANSACTIONS.test(sql)) statements.push({ sql, parameters, rows: rowsOf(result) });
      return result;
    },
  );
  const phase = () => {
    const said = statements;
    statements = [];
    return said;
  };
  await migrate(database, series);
  const schema = phase().filter(({ sql }) => CHANGES_TABLES.test(sql));
  const stores = storesOn(database);
  const all = { ...stores, ...withBatches(database, stores) };
  const legacy = await liveOn(all);
  const before = phase();
  await liveOn(all);
  const after = phase();
  writeSnapshot(dialect, { release, commit, recordedAtMs, schema, before, legacy, after });
  console.log(`${dialect}: ${schema.length + before.length + after.length} statements`);
  await database.close();
  await test.close();
}
