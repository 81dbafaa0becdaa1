/** The store's clock is what ages and links go by, however wrong this machine's is. */
import ava from 'ava';
import { useObjectStore } from '../../../../test/support/object-storage/object-store.ts';
import { openStorage } from '../../../src/storage/open-storage.ts';
import { get, list, put } from '../blob-store.contract.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;

for (const offMs of [-3 * HOUR_MS, 3 * HOUR_MS]) {
  let shiftedMs = 0;
  const server = useObjectStore(test, 'stand-in', { nowMs: () => Date.now() + offMs + shiftedMs });

  test(`a store whose clock is ${offMs / HOUR_MS} h from this machine's › is written, read and listed, and its links hold`, async t => {
    const store = await openStorage(server.url());
    await put(store, 'inputs/one', 'x');
    t.is(String(await get(store, 'inputs/one')), 'x');
    t.deepEqual(await list(store, HOUR_MS), []);
    const link = await store.signed!.signRead('inputs/one', { forMs: 60_000 });
    t.is((await fetch(link)).status, 200);
    shiftedMs = 2 * HOUR_MS;
    t.is((await fetch(link)).status, 403);
    t.deepEqual(await list(store, HOUR_MS), ['inputs/one']);
  });
}
