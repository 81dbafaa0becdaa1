import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { useTestDatabase } from '../../../../test/support/database.ts';
import { keepStatement } from '../../../src/store/database/kept-statement.ts';

describe('a kept statement', () => {
  const databases = useTestDatabase('sqlite');

  it('is built once: each call has its own values, and its literals stay', async () => {
    const database = await databases.open();
    let built = 0;
    const statement = keepStatement<{ name: string; free: number }>(({ kysely }, at) => {
      built += 1;
      const named = kysely.selectFrom('accounts').selectAll().where('name', '=', at.name);
      return named.where('available', '>=', at.free).where('reserved', '<', 7);
    });
    const first = statement(database, { name: 'a', free: 1 });
    const second = statement(database, { name: 'b', free: 2 });
    assert.equal(built, 1);
    assert.equal(first.sql, second.sql);
    assert.deepEqual(first.parameters, ['a', 1, 7]);
    assert.deepEqual(second.parameters, ['b', 2, 7]);
  });

  it('refuses a value that it has no place for', async () => {
    const database = await databases.open();
    const statement = keepStatement<{ name: string; free?: number }>(({ kysely }, { name }) =>
      kysely.updateTable('accounts').set({ name }),
    );
    statement(database, { name: 'a' });
    assert.throws(() => statement(database, { name: 'b', free: 1 }), /got name,free/);
  });

  it('takes null for a value, and refuses where one is missing', async () => {
    const database = await databases.open();
    const statement = keepStatement<{ host: string | null }>(({ kysely }, { host }) =>
      kysely.updateTable('jobs').set({ source_host: host }),
    );
    assert.deepEqual(statement(database, { host: null }).parameters, [null]);
    assert.throws(() => statement(database, {} as { host: string }), /got no host/);
  });
});
