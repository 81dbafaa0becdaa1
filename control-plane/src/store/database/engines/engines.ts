/**
 * The one table of database engines: what differs between those that speak SQLite's or MySQL's SQL.
 * Nothing else in the program asks which engine it is; another engine is another row.
 */
import { AURORA, TIDB, VITESS } from './by-documentation.ts';
import type { Engine, ErrorCodes, ServerVariables } from './engine.ts';
import { FAMILY_CODES } from './error-codes.ts';
import { GALERA, GROUP_REPLICATION, MARIADB, MULTI_PRIMARY, MYSQL, SQLITE } from './servers.ts';

/** The first whose `isServer` says so; MySQL says so of any. */
const ENGINES: readonly Engine[] = [
  SQLITE,
  GALERA,
  MULTI_PRIMARY,
  GROUP_REPLICATION,
  AURORA,
  TIDB,
  VITESS,
  MARIADB,
  MYSQL,
];

/** What a server is asked for when a connection to it begins. */
export const SERVER_VARIABLES: readonly string[] = [
  'version',
  'hostname',
  'port',
  // The server's clock, as seconds with a fraction.
  'timestamp',
  'read_only',
  'super_read_only',
  'log_bin',
  'wsrep_on',
  'group_replication_group_name',
  'group_replication_single_primary_mode',
  'aurora_version',
  ...ENGINES.flatMap(({ settings }) => settings.map(({ variable }) => variable)),
];

export function engineOf(variables: ServerVariables): Engine {
  return ENGINES.find(({ isServer }) => isServer(variables)) ?? MYSQL;
}

/** Of all engines that speak MySQL's protocol; none gives a number another meaning. */
export const MYSQL_CODES: ErrorCodes = Object.assign(
  {},
  FAMILY_CODES,
  ...ENGINES.map(({ errorCodes }) => errorCodes),
);
