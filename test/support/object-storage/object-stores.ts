import type { ExecutionContext, SerialFn } from 'ava';
import { type GroupTest, groupIf } from '../database.ts';
import {
  missingStore,
  OBJECT_STORES,
  type ObjectStoreKind,
  type TestObjectStore,
  useObjectStore,
} from './object-store.ts';

type Declare = (title: string, body: (t: ExecutionContext) => unknown) => void;

export interface StoreTest extends GroupTest {
  readonly skipIf: (condition: boolean) => Declare;
  beforeEach(hook: () => unknown): void;
}

/** Names tests `<name> on <kind> › <title>`; skips them if the store is missing. */
export function onObjectStores(
  test: SerialFn,
  name: string,
  group: (test: StoreTest, server: TestObjectStore, kind: ObjectStoreKind) => void,
): void {
  for (const kind of OBJECT_STORES) {
    const inGroup = storeTest(test, `${name} on ${kind}`, kind);
    group(inGroup, useObjectStore(inGroup, kind), kind);
  }
}

function storeTest(test: SerialFn, name: string, kind: ObjectStoreKind): StoreTest {
  const isHere = missingStore(kind) === false;
  const { before, after } = groupIf(isHere, test, name);
  const first: (() => unknown)[] = [];
  const skipIf =
    (condition: boolean): Declare =>
    (title, body) =>
      groupIf(
        isHere && !condition,
        test,
        name,
      )(title, async t => {
        for (const hook of first) await hook();
        await body(t);
      });
  const beforeEach = (hook: () => unknown) => void first.push(hook);
  return Object.assign(skipIf(false), { skipIf, before, after, beforeEach });
}
