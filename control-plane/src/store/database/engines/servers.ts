/** Engines that the tests run on. */
import type { Engine, ServerVariables, Setting } from './engine.ts';

const isOn = (variables: ServerVariables, name: string) =>
  ['ON', '1'].includes(variables.get(name) ?? '');

const DURABLE: readonly Setting[] = [
  {
    variable: 'innodb_flush_log_at_trx_commit',
    value: '1',
    warning: 'the database may lose its last commits in a crash: paid jobs among them. Set it to 1',
  },
  {
    variable: 'sync_binlog',
    value: '1',
    unless: ['log_bin', 'OFF'],
    warning:
      'the binary log may lose its last commits in a crash, and replicas with it. Set it to 1',
  },
];

export const SQLITE: Engine = {
  name: 'SQLite',
  dialect: 'sqlite',
  shownBy: 'tests',
  isServer: () => false,
  conflicts: 'locks',
  session: [],
  readOnlyMembers: 'read',
  advisoryLocks: 'database',
  members: 'one',
  readOnlyTransactions: true,
  settings: [],
  errorCodes: {},
};

/** One server, or a primary that others follow. */
export const MYSQL: Engine = {
  ...SQLITE,
  name: 'MySQL',
  dialect: 'mysql',
  isServer: () => true,
  settings: DURABLE,
};

export const MARIADB: Engine = {
  ...MYSQL,
  name: 'MariaDB',
  isServer: variables => /mariadb/i.test(variables.get('version') ?? ''),
};

/**
 * Also in Percona XtraDB Cluster. A session waits at its statements and where its transactions
 * begin, and not within them: what a transaction then misses is a conflict at its commit, where it
 * changes a row that the other has changed too.
 */
export const GALERA: Engine = {
  ...MYSQL,
  name: 'Galera',
  isServer: variables => isOn(variables, 'wsrep_on'),
  conflicts: 'certification',
  // 1: SELECT and BEGIN; 2: UPDATE and DELETE; 4: INSERT.
  session: ['set session wsrep_sync_wait = 7'],
  readOnlyMembers: 'leave',
  takesPart: ['wsrep_ready', 'ON'],
  advisoryLocks: 'member',
  members: 'several',
};

/** A group whose one primary takes the writes. */
export const GROUP_REPLICATION: Engine = {
  ...MYSQL,
  name: 'Group Replication',
  isServer: variables => (variables.get('group_replication_group_name') ?? '') !== '',
  // A new primary answers nobody before it has applied all that the old one committed.
  session: [`set session group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'`],
  readOnlyMembers: 'leave',
  members: 'several',
};

export const MULTI_PRIMARY: Engine = {
  ...GROUP_REPLICATION,
  name: 'Group Replication in multi-primary mode',
  isServer: variables =>
    GROUP_REPLICATION.isServer(variables) &&
    variables.get('group_replication_single_primary_mode') === 'OFF',
  refusal:
    'members lock rows for themselves and concurrent changes of tables can hang the whole group: ' +
    'run it with group_replication_single_primary_mode=ON',
};
