/** Faults that ava's own expectations cannot say: by any property of the error, or by a rule. */
import assert from 'node:assert/strict';
import type { ExecutionContext } from 'ava';

/** @param like properties of the error, a pattern of its name and message, or what it must satisfy */
export async function rejectsWith(
  t: ExecutionContext,
  action: Promise<unknown> | (() => Promise<unknown>),
  like: assert.AssertPredicate,
  message?: string,
): Promise<void> {
  await t.notThrowsAsync(assert.rejects(action, like, message));
}

/** Does what `rejectsWith` does, for a call that throws at once. */
export function throwsWith(
  t: ExecutionContext,
  action: () => unknown,
  like: assert.AssertPredicate,
  message?: string,
): void {
  t.notThrows(() => assert.throws(action, like, message));
}
