/** The table of engines: which row a server has, what its errors mean, and which are refused. */
import test from 'ava';
import { rejectsWith } from '../../../../test/support/throws.ts';
import {
  type DatabaseErrorKind,
  databaseErrorKind,
  MemberError,
} from '../../../src/store/database/database-errors.ts';
import { engineOf } from '../../../src/store/database/engines.ts';
import {
  type Ask,
  readMember,
  requireUsable,
} from '../../../src/store/database/mysql/mysql-pool.ts';

type Variables = Readonly<Record<string, string>>;

const MARIADB = { version: '10.11.19-MariaDB', wsrep_on: 'OFF', read_only: 'OFF' };
const GALERA = { ...MARIADB, wsrep_on: 'ON' };
const MYSQL = { version: '9.7.4', read_only: 'OFF', super_read_only: 'OFF' };
const GROUP = {
  ...MYSQL,
  group_replication_group_name: 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa',
  group_replication_single_primary_mode: 'ON',
};

const servers: [name: string, variables: Variables][] = [
  ['MariaDB', MARIADB],
  ['MySQL', MYSQL],
  ['MySQL', { ...MYSQL, group_replication_group_name: '' }],
  ['Galera', GALERA],
  ['Group Replication', GROUP],
  [
    'Group Replication in multi-primary mode',
    { ...GROUP, group_replication_single_primary_mode: 'OFF' },
  ],
];
for (const [name, variables] of servers) {
  test(`the engine of a server › ${JSON.stringify(variables)} is ${name}`, t => {
    t.is(engineOf(new Map(Object.entries(variables))).name, name);
  });
}

const asking =
  (variables: Variables, ready = 'ON'): Ask =>
  async statement =>
    statement.startsWith('show variables')
      ? Object.entries(variables).map(([Variable_name, Value]) => ({ Variable_name, Value }))
      : [{ Variable_name: 'wsrep_ready', Value: ready }];
const come = async (ask: Ask) => requireUsable(await readMember(ask), ask);
const readOnly = (error: unknown) => error instanceof MemberError && error.kind === 'read-only';

test('a server that a connection comes to › is used where it takes part', async t => {
  for (const variables of [MARIADB, MYSQL, GALERA, GROUP]) {
    await t.notThrowsAsync(come(asking(variables)));
  }
});

test('a server that a connection comes to › goes on to answer reads where no other would', async t => {
  for (const variables of [MARIADB, MYSQL]) {
    await t.notThrowsAsync(come(asking({ ...variables, read_only: 'ON' })));
  }
});

test('a server that a connection comes to › is left where another one takes the writes', async t => {
  await rejectsWith(t, come(asking({ ...GROUP, super_read_only: 'ON' })), readOnly);
  await rejectsWith(t, come(asking({ ...GALERA, read_only: 'ON' })), readOnly);
  await rejectsWith(t, come(asking(GALERA, 'OFF')), readOnly);
});

test('a server that a connection comes to › is refused by name where several primaries would take them', async t => {
  const variables = { ...GROUP, group_replication_single_primary_mode: 'OFF' };
  await rejectsWith(
    t,
    come(asking(variables)),
    (error: Error) =>
      error instanceof MemberError &&
      error.kind === 'unavailable' &&
      /multi-primary mode is not supported.*single_primary_mode=ON/.test(error.message),
  );
});

const said: [errno: number, kind: DatabaseErrorKind, message: string][] = [
  [1180, 'conflict', "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"],
  [1180, 'connection', "Got error 5 'Input/output error' during COMMIT"],
  // And where each comes from that a server says which is no primary.
  [1036, 'read-only', 'innodb_read_only'],
  [1047, 'read-only', 'a Galera node outside the majority'],
  [1290, 'read-only', 'read_only, super_read_only'],
  [1792, 'read-only', 'transaction_read_only'],
  [1836, 'read-only', 'innodb_read_only'],
  [1874, 'read-only', 'innodb_read_only'],
  [2003, 'connection', 'a router without a primary'],
  [3032, 'connection', 'offline mode'],
  [3100, 'connection', 'Group Replication, commit of unknown end'],
  [3101, 'conflict', 'Group Replication, certification'],
];
for (const [errno, kind, message] of said) {
  test(`an error of a server › ${errno} is ${kind}: ${message}`, t => {
    t.is(databaseErrorKind(Object.assign(new Error(message), { errno })), kind);
  });
}
