import { parseMysqlUrl } from '@matting/database/connect.ts';
import { type Database, RequestShares, type Schema } from '@matting/database/database.ts';
import { type DatabaseDialect, MARIADB, SQLITE } from '@matting/database/engines.ts';
import { mysqlDialect } from '@matting/database/mysql.ts';
import { sqliteDialect } from '@matting/database/sqlite.ts';
import { databaseNowMs } from '@matting/database/statements.ts';
import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  Kysely,
  type QueryResult,
} from 'kysely';
import { SILENT_LOG } from './database.ts';

/** The connection underneath, without `Watch`. */
export type Unwatched = Pick<DatabaseConnection, 'executeQuery'>;
export type Watch = <R>(connection: Unwatched, query: CompiledQuery) => Promise<QueryResult<R>>;

export function openWatchedDatabase(dialect: DatabaseDialect, url: string, watch: Watch): Database {
  const inner =
    dialect === 'sqlite'
      ? sqliteDialect(url.slice('sqlite:'.length))
      : mysqlDialect({ pool: parseMysqlUrl(url), onLost: () => undefined });
  return databaseOn(dialect, watchedDialect(inner, watch));
}

export function databaseOn(dialect: DatabaseDialect, by: Dialect): Database {
  const kysely = new Kysely<Schema>({ dialect: by });
  return {
    kysely,
    dialect,
    location: 'a watched database',
    engine: dialect === 'sqlite' ? SQLITE : MARIADB,
    shares: new RequestShares(16),
    nowMs: databaseNowMs(dialect),
    log: SILENT_LOG,
    close: () => kysely.destroy(),
  };
}

function watchedDialect(inner: Dialect, watch: Watch): Dialect {
  const known = new WeakSet<DatabaseConnection>();
  return {
    createAdapter: () => inner.createAdapter(),
    createQueryCompiler: () => inner.createQueryCompiler(),
    createIntrospector: db => inner.createIntrospector(db),
    createDriver: () => {
      const driver = inner.createDriver();
      const acquire = driver.acquireConnection.bind(driver);
      driver.acquireConnection = async options => {
        const connection = await acquire(options);
        if (known.has(connection)) return connection;
        known.add(connection);
        const unwatched = { executeQuery: connection.executeQuery.bind(connection) };
        connection.executeQuery = query => watch(unwatched, query);
        return connection;
      };
      return driver;
    },
  };
}
