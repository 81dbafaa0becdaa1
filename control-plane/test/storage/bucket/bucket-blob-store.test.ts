import { beforeEach, describe } from 'node:test';
import {
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '../../../../test/support/object-storage/object-store.ts';
import type { BlobStore } from '../../../src/storage/blob-store.ts';
import { openStorage } from '../../../src/storage/open-storage.ts';
import { describeBlobStore } from '../blob-store.contract.ts';

for (const kind of OBJECT_STORES) {
  describe(`blobs in a bucket of ${kind}`, { skip: missingStore(kind) }, () => {
    const server = useObjectStore(kind);
    let store: BlobStore;
    let prefixes = 0;

    beforeEach(async () => {
      prefixes += 1;
      store = await openStorage(server.url({ prefix: `of/test-${prefixes}` }));
    });

    describeBlobStore(() => store);
  });
}
