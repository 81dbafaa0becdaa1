/** The store's clock is what ages and links go by, however wrong this machine's is. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { useObjectStore } from '../../../../test/support/object-storage/object-store.ts';
import { openStorage } from '../../../src/storage/open-storage.ts';
import { get, list, put } from '../blob-store.contract.ts';

const HOUR_MS = 3_600_000;

for (const offMs of [-3 * HOUR_MS, 3 * HOUR_MS]) {
  describe(`a store whose clock is ${offMs / HOUR_MS} h from this machine's`, () => {
    let shiftedMs = 0;
    const server = useObjectStore('stand-in', { nowMs: () => Date.now() + offMs + shiftedMs });

    it('is written, read and listed, and its links hold', async () => {
      const store = await openStorage(server.url());
      await put(store, 'inputs/one', 'x');
      assert.equal(String(await get(store, 'inputs/one')), 'x');
      assert.deepEqual(await list(store, HOUR_MS), []);
      const link = await store.signed!.signRead('inputs/one', { forMs: 60_000 });
      assert.equal((await fetch(link)).status, 200);
      shiftedMs = 2 * HOUR_MS;
      assert.equal((await fetch(link)).status, 403);
      assert.deepEqual(await list(store, HOUR_MS), ['inputs/one']);
    });
  });
}
