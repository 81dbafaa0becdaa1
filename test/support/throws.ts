/** Ava's expectations cannot check other properties of an error. */
import assert from 'node:assert/strict';
import type { ExecutionContext } from 'ava';

/** @param like properties, a pattern of name and message, or a predicate */
export async function rejectsWith(
  t: ExecutionContext,
  action: Promise<unknown> | (() => Promise<unknown>),
  like: assert.AssertPredicate,
  message?: string,
): Promise<void> {
  await t.notThrowsAsync(assert.rejects(action, like, message));
}

export function throwsWith(
  t: ExecutionContext,
  action: () => unknown,
  like: assert.AssertPredicate,
  message?: string,
): void {
  t.notThrows(() => assert.throws(action, like, message));
}
