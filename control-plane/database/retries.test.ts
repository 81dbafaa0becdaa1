import { ContractError } from '@matting/proto/contract/errors.ts';
import { useTestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import { type Database, OvertakenError, query, transact } from './database.ts';
import { type DatabaseErrorKind, databaseErrorKind, engineOf, MemberError } from './engines.ts';
import { readMember, requireSupported } from './member.ts';
import { keepStatement } from './statements.ts';
import { brokenConnection, failingDisk } from './test/faulty-database.ts';
import { rowOf } from './test/rows.ts';
import { shortenWaits } from './test/short-waits.ts';

const CONNECTION_RETRIES_MAX = 4;
const test = ava.serial;

type Variables = Readonly<Record<string, string>>;

const MARIADB = { version: '10.11.19-MariaDB', wsrep_on: 'OFF' };
const GALERA = { ...MARIADB, wsrep_on: 'ON' };
const MYSQL = { version: '9.7.4' };
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

const come = async (variables: Variables) => {
  const rows = Object.entries(variables).map(([Variable_name, Value]) => ({
    Variable_name,
    Value,
  }));
  requireSupported(await readMember(async () => rows));
};

test('a server that a connection comes to › is used, but for a group with several primaries', async t => {
  for (const variables of [MARIADB, MYSQL, GALERA, GROUP]) {
    await t.notThrowsAsync(come(variables));
  }
  const refused = await t.throwsAsync(
    come({ ...GROUP, group_replication_single_primary_mode: 'OFF' }),
    { instanceOf: MemberError, message: /multi-primary mode is not .*single_primary_mode=ON/ },
  );
  t.is(databaseErrorKind(refused), 'unavailable');
});

const MESSAGES: [errno: number, kind: DatabaseErrorKind, message: string][] = [
  [1180, 'conflict', "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"],
  [1180, 'connection', "Got error 5 'Input/output error' during COMMIT"],
  [1226, 'connection', "User 'm' has exceeded the 'max_user_connections' resource"],
  [1226, 'unavailable', "User 'm' has exceeded the 'max_questions' resource"],
];
for (const [errno, kind, message] of MESSAGES) {
  test(`an error of a server › ${errno} is ${kind}: ${message}`, t => {
    t.is(databaseErrorKind(Object.assign(new Error(message), { errno })), kind);
  });
}

/** From the manuals of MariaDB and MySQL, or from reports of their users. */
const MEANINGS: [meaning: string, kind: DatabaseErrorKind, errnos: readonly number[]][] = [
  ['the same again, at once', 'conflict', [1020, 1205, 1213, 1412, 1615, 1689, 3101]],
  [
    'later: a connection ended, or there is none to be had',
    'connection',
    [
      1028, 1040, 1042, 1043, 1053, 1077, 1079, 1135, 1152, 1156, 1158, 1159, 1160, 1161, 1181,
      1184, 1203, 1317, 1835, 1927, 1969, 2003, 2013, 3024, 3032, 3100, 3168, 3169, 4031, 9001,
    ],
  ],
  [
    'later: no disk, no memory, no room',
    'unavailable',
    [1, 3, 5, 23, 1021, 1026, 1030, 1037, 1038, 1041, 1114, 1197, 1206, 1637, 1878, 3015, 3019],
  ],
  ['later: this server is not the primary', 'read-only', [1036, 1047, 1290, 1792, 1836, 1874]],
  [
    'never, until its administrator changes something',
    'refused',
    [
      1044, 1045, 1049, 1104, 1129, 1130, 1142, 1143, 1146, 1153, 1162, 1194, 1227, 1251, 1370,
      1524, 1665, 1698, 1712, 1820, 1862, 1877, 1932, 3118, 3159, 4150, 4151,
    ],
  ],
  ['the row is there', 'duplicate', [1022, 1062, 1169, 1586]],
  [
    'ours: syntax, columns, values, constraints',
    'other',
    [1048, 1052, 1054, 1060, 1064, 1136, 1264, 1292, 1364, 1366, 1406, 1451, 1452, 3819, 4025],
  ],
];
for (const [meaning, kind, errnos] of MEANINGS) {
  for (const errno of errnos) {
    test(`an error of a server › ${errno} is ${kind} (${meaning})`, t => {
      t.is(databaseErrorKind(Object.assign(new Error('other'), { errno })), kind);
    });
  }
}

shortenWaits(5);

const NEVER = new AbortController().signal;
const overtaken = () => new OvertakenError('somebody was faster');
const isUnavailable = (error: unknown) =>
  error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE';

const databases = useTestDatabase(test, 'sqlite');
const warnings: unknown[] = [];
let database: Database;

test.before(async () => {
  database = await databases.open({
    info: () => undefined,
    warn: (...args: unknown[]) => warnings.push(args),
  });
});

async function rounds(
  errorAt: (round: number) => Error | undefined,
  giveUp?: AbortSignal,
): Promise<{ rounds: number; error: unknown }> {
  let round = 0;
  const work = async () => {
    round += 1;
    const error = errorAt(round);
    if (error !== undefined) throw error;
  };
  const error = await query(database, work, giveUp).catch((thrown: unknown) => thrown);
  return { rounds: round, error };
}

test('work that fails › is repeated within the bound of its kind, then the database is not available', async t => {
  const kinds = [brokenConnection, overtaken, failingDisk];
  const ended = await Promise.all(kinds.map(errorAt => rounds(errorAt)));
  t.deepEqual(
    ended.map(one => one.rounds),
    [1 + CONNECTION_RETRIES_MAX, 1 + 50, 1],
  );
  t.true(ended.every(one => isUnavailable(one.error)));
  t.is(warnings.length, 3, 'each was logged once');
});

test('work that fails › that is a transaction leaves nothing behind when it was overtaken', async t => {
  let round = 0;
  await transact(database, async tx => {
    round += 1;
    await tx.insertInto('sweeps').values({ id: 'sweep', fence: round, walk_part: 0 }).execute();
    if (round < 3) throw overtaken();
  });
  const { fence } = await rowOf(database.kysely, 'sweeps', {});
  t.is(fence, 3);
});

test('work that fails › is repeated beyond the bound where the caller is patient', async t => {
  const failing = await rounds(round => (round < 4 ? failingDisk() : undefined), NEVER);
  t.deepEqual(failing, { rounds: 4, error: undefined });
  const bursts = CONNECTION_RETRIES_MAX + 3;
  const lost = await rounds(round => (round < bursts ? brokenConnection() : undefined), NEVER);
  t.deepEqual(lost, { rounds: bursts, error: undefined });
});

test('work that fails › is repeated until the caller gives up, and then once', async t => {
  const controller = new AbortController();
  const ended = await rounds(round => {
    // During the pause.
    if (round === 3) setImmediate(() => controller.abort());
    return failingDisk();
  }, controller.signal);
  t.is(ended.rounds, 4);
  t.truthy(isUnavailable(ended.error));
  const begun = await rounds(failingDisk, AbortSignal.abort());
  t.is(begun.rounds, 1, 'one try is always made');
});

test('work that fails › because the server refuses it is not repeated, and ends with a longer pause', async t => {
  const denied = Object.assign(new Error('INSERT command denied'), { errno: 1142 });
  const { rounds: tried, error } = await rounds(() => denied);
  t.is(tried, 1);
  t.true(isUnavailable(error));
  t.is((error as ContractError).retryAfterS, 60);
});

test('work that fails › for any other reason is not repeated', async t => {
  const bug = new TypeError('bug');
  t.deepEqual(await rounds(() => bug, NEVER), { rounds: 1, error: bug });
  const duplicate = Object.assign(new Error('duplicate'), { errno: 1062 });
  t.deepEqual(await rounds(() => duplicate, NEVER), { rounds: 1, error: duplicate });
});

test('a kept statement › is built once: each call has its own values, and its literals stay', async t => {
  let built = 0;
  const statement = keepStatement<{ name: string; free: number }>(({ kysely }, at) => {
    built += 1;
    const named = kysely.selectFrom('accounts').selectAll().where('name', '=', at.name);
    return named.where('available', '>=', at.free).where('reserved', '<', 7);
  });
  const first = statement(database, { name: 'a', free: 1 });
  const second = statement(database, { name: 'b', free: 2 });
  t.is(built, 1);
  t.is(first.sql, second.sql);
  t.deepEqual(first.parameters, ['a', 1, 7]);
  t.deepEqual(second.parameters, ['b', 2, 7]);
});

test('a kept statement › refuses a value that it has no place for', async t => {
  const statement = keepStatement<{ name: string; free?: number }>(({ kysely }, { name }) =>
    kysely.updateTable('accounts').set({ name }),
  );
  statement(database, { name: 'a' });
  t.throws(() => statement(database, { name: 'b', free: 1 }), { message: /got name,free/ });
});

test('a kept statement › takes null for a value, and refuses where one is missing', async t => {
  const statement = keepStatement<{ host: string | null }>(({ kysely }, { host }) =>
    kysely.updateTable('jobs').set({ source_host: host }),
  );
  t.deepEqual(statement(database, { host: null }).parameters, [null]);
  t.throws(() => statement(database, {} as { host: string }), { message: /got no host/ });
});
