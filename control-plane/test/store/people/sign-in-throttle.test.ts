import ava from 'ava';
import { onDatabases, useTestDatabase } from '../../../../test/support/database.ts';
import { createSignInThrottleStore } from '../../../src/store/people/sign-in-throttle.ts';

const test = ava.serial;

const key = (hash: string, failuresMax: number) => ({ hash: hash.repeat(64), failuresMax });

onDatabases(test, 'rows of the throttle', (test, dialect) => {
  const databases = useTestDatabase(test, dialect);

  test('are made by attempts that are counted, and by none that is refused', async t => {
    const database = await databases.open();
    const store = createSignInThrottleStore(database);
    const rows = async () => {
      const read = database.kysely.selectFrom('sign_in_throttles').selectAll();
      const all = await read.orderBy('key_hash').execute();
      return all.map(row => [row.key_hash, row.failures]);
    };
    const stranger = key('a', 1);
    t.is(await store.take([stranger]), 0);
    for (const mail of ['b', 'c', 'd']) {
      t.true((await store.take([key(mail, 10), stranger])) > 0);
    }
    t.deepEqual(await rows(), [[stranger.hash, 1]]);
    const two = [key('e', 10), key('f', 10)];
    t.deepEqual([await store.take(two), await store.take(two)], [0, 0]);
    const expected = [[stranger.hash, 1], ...two.map(({ hash }) => [hash, 2])];
    t.deepEqual(await rows(), expected);
  });
});
