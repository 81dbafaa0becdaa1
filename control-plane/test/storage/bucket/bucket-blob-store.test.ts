import ava from 'ava';
import type { BlobStore } from '../../../src/storage/blob-store.ts';
import { openStorage } from '../../../src/storage/open-storage.ts';
import { onObjectStores } from '../../support/object-stores.ts';
import { testBlobStore } from '../blob-store.contract.ts';

onObjectStores(
  ava.serial,
  kind => `blobs in a bucket of ${kind}`,
  (test, server) => {
    let store: BlobStore;
    let prefixes = 0;

    test.beforeEach(async () => {
      prefixes += 1;
      store = await openStorage(server.url({ prefix: `of/test-${prefixes}` }));
    });

    testBlobStore(test, () => store);
  },
);
