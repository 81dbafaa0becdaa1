/**
 * The one table of database engines: what differs between those that speak SQLite's or MySQL's SQL.
 * Nothing else in the program asks which engine it is; another engine is another row.
 */
import type { DatabaseDialect } from './clock.ts';

/** A server's variables by their names in lower case, those of SERVER_VARIABLES that it has. */
export type ServerVariables = ReadonlyMap<string, string>;

/** What must be so for all that the store promises; a start warns where it is not. */
interface Setting {
  readonly variable: string;
  readonly value: string;
  /** Unless this variable has this value. */
  readonly unless?: readonly [variable: string, value: string];
  readonly warning: string;
}

export interface Engine {
  /** As logs and errors name it. */
  readonly name: string;
  readonly dialect: DatabaseDialect;
  /** Whether a server is of this engine; the first row that says so has it. */
  readonly isServer: (variables: ServerVariables) => boolean;
  /** Why it is refused at the start. */
  readonly refusal?: string;
  /**
   * What keeps two transactions from changing the same at once. 'locks': the second waits at a row
   * that the first has locked, whether it changed it or not. 'certification': members lock for
   * themselves; of two that changed the same row on different members the later commit fails, and a
   * row that was only locked, or set to what it was, is no conflict.
   */
  readonly conflicts: 'locks' | 'certification';
  /** Begins each session: it then reads all that was committed before, on whichever member. */
  readonly session: readonly string[];
  /**
   * Of a server that takes no writes: 'leave', before anything is asked of it, since another one of
   * the same address takes them and it may lag behind; 'read', it goes on to answer reads.
   */
  readonly readOnlyMembers: 'leave' | 'read';
  /** A status variable and its value on a member that takes part. */
  readonly takesPart?: readonly [status: string, value: string];
  /**
   * 'several': one address may lead to several servers, each of which may fall silent for itself, and
   * now() is the clock of whichever a session is at.
   */
  readonly members: 'one' | 'several';
  readonly settings: readonly Setting[];
}

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
  isServer: () => false,
  conflicts: 'locks',
  session: [],
  readOnlyMembers: 'read',
  members: 'one',
  settings: [],
};

/** One server, or a primary that others follow. */
const MYSQL: Engine = {
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
 * A session waits at its statements and where its transactions begin, and not within them: what a
 * transaction then misses is a conflict at its commit, where it changes a row that the other has
 * changed too.
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
  members: 'several',
};

/** A group whose one primary takes the writes. */
const GROUP_REPLICATION: Engine = {
  ...MYSQL,
  name: 'Group Replication',
  isServer: variables => (variables.get('group_replication_group_name') ?? '') !== '',
  // A new primary answers nobody before it has applied all that the old one committed.
  session: [`set session group_replication_consistency = 'BEFORE_ON_PRIMARY_FAILOVER'`],
  readOnlyMembers: 'leave',
  members: 'several',
};

const MULTI_PRIMARY: Engine = {
  ...GROUP_REPLICATION,
  name: 'Group Replication in multi-primary mode',
  isServer: variables =>
    GROUP_REPLICATION.isServer(variables) &&
    variables.get('group_replication_single_primary_mode') === 'OFF',
  refusal:
    'members lock rows for themselves and concurrent changes of tables can hang the whole group: ' +
    'run it with group_replication_single_primary_mode=ON',
};

/** The first whose `isServer` says so; MySQL says so of any. */
const SERVERS: readonly Engine[] = [GALERA, MULTI_PRIMARY, GROUP_REPLICATION, MARIADB, MYSQL];

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
  ...DURABLE.map(({ variable }) => variable),
];

export function engineOf(variables: ServerVariables): Engine {
  return SERVERS.find(({ isServer }) => isServer(variables)) ?? MYSQL;
}
