/**
 * Records what this commit's stores say to a database, for releases to come:
 *
 *     sh bin/node24 control-plane/test/store/database/last-release/record.ts 0.2.0
 *
 * CONTRIBUTING.md says when. Needs MariaDB, as the tests do.
 */

import { execFileSync } from 'node:child_process';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  Kysely,
  type QueryResult,
} from 'kysely';
import { createTestDatabase, DIALECTS, SILENT_LOG } from '../../../../../test/support/database.ts';
import { databaseNowMs } from '../../../../src/store/database/clock.ts';
import type { Database } from '../../../../src/store/database/connect.ts';
import { MARIADB, SQLITE } from '../../../../src/store/database/engines.ts';
import { migrate } from '../../../../src/store/database/migrate.ts';
import { MysqlPoolDialect } from '../../../../src/store/database/mysql/mysql-pool.ts';
import { parseMysqlUrl } from '../../../../src/store/database/mysql/mysql-url.ts';
import { RequestShares } from '../../../../src/store/database/request-shares.ts';
import { NodeSqliteDialect } from '../../../../src/store/database/sqlite/sqlite-dialect.ts';
import { storesOn } from '../../fixtures.ts';
import { liveOn } from './life.ts';
import { type Recorded, rowsOf, writeSnapshot } from './snapshot.ts';

type OnRecorded = (recorded: Recorded) => void;

/** Every statement that was answered, in their order; those of transactions without their frame. */
function recording(inner: Dialect, onRecorded: OnRecorded): Dialect {
  return {
    createDriver: () => recordingDriver(inner.createDriver(), onRecorded),
    createAdapter: () => inner.createAdapter(),
    createIntrospector: db => inner.createIntrospector(db),
    createQueryCompiler: () => inner.createQueryCompiler(),
  };
}

function recordingDriver(driver: Driver, onRecorded: OnRecorded): Driver {
  const acquire = driver.acquireConnection.bind(driver);
  driver.acquireConnection = async options => {
    const connection = await acquire(options);
    record(connection, onRecorded);
    return connection;
  };
  return driver;
}

const recorded = new WeakSet<DatabaseConnection>();

function record(connection: DatabaseConnection, onRecorded: OnRecorded): void {
  if (recorded.has(connection)) return;
  recorded.add(connection);
  const execute = connection.executeQuery.bind(connection);
  connection.executeQuery = async <R>(query: CompiledQuery): Promise<QueryResult<R>> => {
    const result = await execute<R>(query);
    onRecorded({ sql: query.sql, parameters: query.parameters, rows: rowsOf(result) });
    return result;
  };
}

/** The migrations look at what there is, and lock: on an empty database that is nothing. */
const CHANGES_TABLES = /^\s*(?:create|alter|drop|insert|update)\b/i;

const [release] = process.argv.slice(2);
if (release === undefined) throw new Error('the name of what is recorded is missing');
const commit = execFileSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' }).trim();

for (const dialect of DIALECTS) {
  const test = await createTestDatabase(dialect, { migrated: false });
  let statements: Recorded[] = [];
  const onRecorded: OnRecorded = one => statements.push(one);
  const inner =
    dialect === 'sqlite'
      ? new NodeSqliteDialect(test.url.slice('sqlite:'.length))
      : new MysqlPoolDialect({ pool: parseMysqlUrl(test.url), onLost: () => undefined });
  const kysely = new Kysely<never>({ dialect: recording(inner, onRecorded) });
  const database: Database = {
    kysely: kysely as unknown as Database['kysely'],
    dialect,
    engine: dialect === 'sqlite' ? SQLITE : MARIADB,
    shares: new RequestShares(16),
    nowMs: databaseNowMs(dialect),
    log: SILENT_LOG,
    close: () => kysely.destroy(),
  };
  const phase = () => {
    const said = statements;
    statements = [];
    return said;
  };
  await migrate(database);
  const schema = phase().filter(({ sql }) => CHANGES_TABLES.test(sql));
  const legacy = await liveOn(storesOn(database));
  const before = phase();
  await liveOn(storesOn(database));
  const after = phase();
  writeSnapshot(dialect, { release, commit, schema, before, legacy, after });
  console.log(`${dialect}: ${schema.length + before.length + after.length} statements`);
  await database.close();
  await test.close();
}
