import assert from 'node:assert/strict';
import { ModelError, type ModelErrorKind } from '../models/model-error.ts';

/**
 * Tests, for `assert.throws` and `rejects`, for an error of that kind, in one line that matches.
 */
export const isModelError = (kind: ModelErrorKind, pattern: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ModelError, String(error));
  assert.equal(error.kind, kind);
  assert.match(error.message, pattern);
  assert.ok(!error.message.includes('\n'), 'one line');
  return true;
};
