import ava from 'ava';
import { useTestDatabase } from '../../../../test/support/database.ts';
import { keepStatement } from '../../../src/store/database/kept-statement.ts';

const test = ava.serial;

const databases = useTestDatabase(test, 'sqlite');

test('is built once: each call has its own values, and its literals stay', async t => {
  const database = await databases.open();
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

test('refuses a value that it has no place for', async t => {
  const database = await databases.open();
  const statement = keepStatement<{ name: string; free?: number }>(({ kysely }, { name }) =>
    kysely.updateTable('accounts').set({ name }),
  );
  statement(database, { name: 'a' });
  t.throws(() => statement(database, { name: 'b', free: 1 }), { message: /got name,free/ });
});

test('takes null for a value, and refuses where one is missing', async t => {
  const database = await databases.open();
  const statement = keepStatement<{ host: string | null }>(({ kysely }, { host }) =>
    kysely.updateTable('jobs').set({ source_host: host }),
  );
  t.deepEqual(statement(database, { host: null }).parameters, [null]);
  t.throws(() => statement(database, {} as { host: string }), { message: /got no host/ });
});
