import assert from 'node:assert/strict';
import { ModelError, type ModelErrorKind } from '../models/model-error.ts';

/** For `assert.throws` and `rejects`. Requires one line. */
export const isModelError = (kind: ModelErrorKind, pattern: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ModelError, String(error));
  assert.equal(error.kind, kind);
  assert.match(error.message, pattern);
  assert.ok(!error.message.includes('\n'), 'one line');
  return true;
};
