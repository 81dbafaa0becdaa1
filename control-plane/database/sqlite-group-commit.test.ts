import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { at } from '@matting/test-support/at.ts';
import ava from 'ava';
import { databaseErrorKind } from './engines.ts';
import { SqliteConnection } from './sqlite-connection.ts';
import { SqliteGroupCommit } from './sqlite-group-commit.ts';

const SQLITE_WAITERS_MAX = 2_000;
const test = ava.serial;

let directory: string;
let writer: SqliteConnection;
let reader: SqliteConnection;
let group: SqliteGroupCommit;
let statements: string[];
let failNextCommit: Error | undefined;

test.beforeEach(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'matting-group-'));
  const file = path.join(directory, 'db.sqlite');
  writer = SqliteConnection.open(file);
  reader = SqliteConnection.open(file);
  writer.control('create table t (k text primary key)');
  statements = [];
  failNextCommit = undefined;
  const execute = writer.execute.bind(writer);
  writer.execute = statement => {
    if (/^(begin|commit|rollback)/.test(statement.sql)) statements.push(statement.sql);
    if (statement.sql === 'commit' && failNextCommit !== undefined) {
      const error = failNextCommit;
      failNextCommit = undefined;
      throw error;
    }
    return execute(statement);
  };
  group = new SqliteGroupCommit(writer);
});

test.afterEach.always(async () => {
  await group.close();
  reader.close();
  await rm(directory, { recursive: true });
});

const insert = (k: string) => ({ sql: 'insert into t values (?)', parameters: [k] });

async function pair(a: string, b: string): Promise<void> {
  await group.begin();
  try {
    group.execute(insert(a));
    await null;
    group.execute(insert(b));
  } catch (error) {
    await group.rollback();
    throw error;
  }
  await group.commit();
}

function stored(): unknown[] {
  const { rows } = reader.execute<{ k: string }>({
    sql: 'select k from t order by k',
    parameters: [],
  });
  return rows.map(({ k }) => k);
}

const reasonOf = (outcome: PromiseSettledResult<unknown>) =>
  outcome.status === 'rejected' ? (outcome.reason as Error).message : outcome.status;

test('transactions that are ready together › share one commit, and resolve when others can see them', async t => {
  let resolved = 0;
  const all = Array.from({ length: 10 }, async (_, index) => {
    await (index % 2 ? pair(`${index}a`, `${index}b`) : group.executeAlone(insert(`${index}`)));
    resolved += 1;
    t.is(stored().length, 15);
  });
  t.deepEqual([resolved, stored()], [0, []]);
  await Promise.all(all);
  t.deepEqual(statements, ['begin immediate', 'commit']);
});

test('transactions that are ready together › do not wait for those that come in later turns', async t => {
  await pair('a', 'b');
  await pair('c', 'd');
  t.deepEqual(statements, ['begin immediate', 'commit', 'begin immediate', 'commit']);
});

test('transactions that are ready together › are bounded in number, so that other processes get the lock', async t => {
  await Promise.all(Array.from({ length: 130 }, (_, k) => group.executeAlone(insert(`${k}`))));
  t.is(statements.filter(sql => sql === 'commit').length, 3);
  t.is(stored().length, 130);
});

test('transactions that are ready together › are turned away when too many wait, and those that waited are served', async t => {
  await group.begin();
  const waiting = Array.from({ length: SQLITE_WAITERS_MAX }, (_, k) =>
    group.executeAlone(insert(`${k}`)),
  );
  const refused = await group.executeAlone(insert('one too many')).catch(error => error);
  t.is(databaseErrorKind(refused), 'connection');
  await group.commit();
  await Promise.all(waiting);
  t.is(stored().length, SQLITE_WAITERS_MAX);
});

test('transactions that are ready together › fail alone, after what they failed by is durable', async t => {
  const outcomes = await Promise.allSettled([
    pair('a', 'b'),
    pair('c', 'a').catch(error => {
      t.deepEqual(stored(), ['a', 'b', 'd']);
      throw error;
    }),
    group.executeAlone(insert('b')),
    group.executeAlone(insert('d')),
  ]);
  t.deepEqual(outcomes.map(reasonOf), [
    'fulfilled',
    'UNIQUE constraint failed: t.k',
    'UNIQUE constraint failed: t.k',
    'fulfilled',
  ]);
  t.deepEqual(stored(), ['a', 'b', 'd']);
});

test('transactions that are ready together › all fail where the commit does, the rolled-back ones too, and the next group stands', async t => {
  failNextCommit = new Error('the disk is full');
  const outcomes = await Promise.allSettled([pair('a', 'b'), pair('c', 'a')]);
  t.deepEqual(outcomes.map(reasonOf), ['the disk is full', 'the disk is full']);
  t.deepEqual(stored(), []);
  await pair('a', 'b');
  t.deepEqual(stored(), ['a', 'b']);
});

test('a full database › fails who meets it, keeps what was committed and takes writes again', async t => {
  await pair('a', 'b');
  const { rows } = writer.execute<{ page_count: number }>({
    sql: 'pragma page_count',
    parameters: [],
  });
  const pages = at(rows, 0).page_count;
  writer.control(`pragma max_page_count = ${pages}`);
  const wide = 'x'.repeat(100_000);
  const outcomes = await Promise.allSettled([pair('c', 'd'), pair('e', wide), pair('f', 'g')]);
  t.is(reasonOf(outcomes[1]), 'database or disk is full');
  const expected = ['a', 'b'];
  if (outcomes[0].status === 'fulfilled') expected.push('c', 'd');
  if (outcomes[2].status === 'fulfilled') expected.push('f', 'g');
  t.deepEqual(stored(), expected);
  writer.control('pragma max_page_count = 1000000');
  await pair('h', 'i');
  t.true(stored().includes('i'));
});

test('a statement that stands in no transaction › finds none open, and those that wait for it follow', async t => {
  const before = group.executeAlone(insert('a'));
  const vacuum = group.executeOutside({ sql: 'vacuum', parameters: [] });
  const after = pair('b', 'c');
  await Promise.all([before, vacuum, after]);
  t.deepEqual(stored(), ['a', 'b', 'c']);
});

test('closing › commits what is open', async t => {
  await group.begin();
  group.execute(insert('a'));
  const committed = group.commit();
  await group.close();
  await committed;
  await turn();
  t.deepEqual(stored(), ['a']);
  writer = SqliteConnection.open(path.join(directory, 'db.sqlite'));
  group = new SqliteGroupCommit(writer);
});
