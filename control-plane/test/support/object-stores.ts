/** The same tests on each object store that a run is about. */
import type { ExecutionContext, SerialFn } from 'ava';
import type { GroupTest } from '../../../test/support/database.ts';
import {
  missingStore,
  OBJECT_STORES,
  type ObjectStoreKind,
  type TestObjectStore,
  useObjectStore,
} from '../../../test/support/object-storage/object-store.ts';

type Declare = (title: string, body: (t: ExecutionContext) => unknown) => void;

/** Declares tests of one kind of store, and what is around each of them. */
export interface StoreTest extends GroupTest {
  readonly skipIf: (condition: boolean) => Declare;
  beforeEach(hook: () => unknown): void;
}

/**
 * Tests named `<name> › <title>`, with a store of their kind. Those of a store that is not here are
 * skipped; `make test` says why.
 */
export function onObjectStores(
  test: SerialFn,
  nameOf: (kind: ObjectStoreKind) => string,
  group: (test: StoreTest, server: TestObjectStore, kind: ObjectStoreKind) => void,
): void {
  for (const kind of OBJECT_STORES) {
    const inGroup = storeTest(test, nameOf(kind), kind);
    group(inGroup, useObjectStore(inGroup, kind), kind);
  }
}

function storeTest(test: SerialFn, name: string, kind: ObjectStoreKind): StoreTest {
  const isHere = missingStore(kind) === false;
  const first: (() => unknown)[] = [];
  const skipIf =
    (condition: boolean): Declare =>
    (title, body) =>
      test.skipIf(condition || !isHere)(`${name} › ${title}`, async t => {
        for (const hook of first) await hook();
        await body(t);
      });
  const around = (register: (hook: () => unknown) => void) => (hook: () => unknown) => {
    if (isHere) register(hook);
  };
  return Object.assign(skipIf(false), {
    skipIf,
    before: around(test.before),
    after: { always: around(test.after.always) },
    beforeEach: (hook: () => unknown) => void first.push(hook),
  });
}
