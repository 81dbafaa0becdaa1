import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { GROWTH_FLAG } from '../heap-growth.ts';

test('this V8 knows the flag: it would ignore one that it does not', () => {
  const known = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8' });
  assert.ok(known.split(/\s+/).includes(GROWTH_FLAG), GROWTH_FLAG);
  assert.ok(!known.split(/\s+/).includes('--heap-growing-promille'));
});
