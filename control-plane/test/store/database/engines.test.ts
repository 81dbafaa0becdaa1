/** The table of engines: which row a server has, what its errors mean, and which are refused. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
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

describe('the engine of a server', () => {
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
    it(`${JSON.stringify(variables)} is ${name}`, () => {
      assert.equal(engineOf(new Map(Object.entries(variables))).name, name);
    });
  }
});

describe('a server that a connection comes to', () => {
  const asking =
    (variables: Variables, ready = 'ON'): Ask =>
    async statement =>
      statement.startsWith('show variables')
        ? Object.entries(variables).map(([Variable_name, Value]) => ({ Variable_name, Value }))
        : [{ Variable_name: 'wsrep_ready', Value: ready }];
  const come = async (ask: Ask) => requireUsable(await readMember(ask), ask);
  const readOnly = (error: unknown) => error instanceof MemberError && error.kind === 'read-only';

  it('is used where it takes part', async () => {
    for (const variables of [MARIADB, MYSQL, GALERA, GROUP]) await come(asking(variables));
  });

  it('goes on to answer reads where no other would', async () => {
    for (const variables of [MARIADB, MYSQL]) await come(asking({ ...variables, read_only: 'ON' }));
  });

  it('is left where another one takes the writes', async () => {
    await assert.rejects(come(asking({ ...GROUP, super_read_only: 'ON' })), readOnly);
    await assert.rejects(come(asking({ ...GALERA, read_only: 'ON' })), readOnly);
    await assert.rejects(come(asking(GALERA, 'OFF')), readOnly);
  });

  it('is refused by name where several primaries would take them', async () => {
    const variables = { ...GROUP, group_replication_single_primary_mode: 'OFF' };
    await assert.rejects(
      come(asking(variables)),
      (error: Error) =>
        error instanceof MemberError &&
        error.kind === 'unavailable' &&
        /multi-primary mode is not supported.*single_primary_mode=ON/.test(error.message),
    );
  });
});

describe('an error at the commit', () => {
  const said: [errno: number, kind: DatabaseErrorKind, message: string][] = [
    [1180, 'conflict', "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"],
    [1180, 'connection', "Got error 5 'Input/output error' during COMMIT"],
  ];
  for (const [errno, kind, message] of said) {
    it(`${errno} is ${kind}: ${message}`, () => {
      assert.equal(databaseErrorKind(Object.assign(new Error(message), { errno })), kind);
    });
  }
});
