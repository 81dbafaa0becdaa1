import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BufferPool, IDLE_BYTES_MAX, POOLED_BYTES_MIN } from '../../src/process/buffer-pool.ts';

const BYTES = 1_000_000;

test('a buffer that was given back is handed out again, for its size alone', () => {
  const pool = new BufferPool();
  const first = pool.take(BYTES);
  assert.equal(first.length, BYTES);
  pool.giveBack(first);
  assert.notEqual(pool.take(BYTES - 1), first);
  assert.equal(pool.take(BYTES), first);
});

test('no two users have the same buffer', () => {
  const pool = new BufferPool();
  const first = pool.take(BYTES);
  assert.notEqual(pool.take(BYTES), first);
  pool.giveBack(first);
  pool.giveBack(first);
  assert.equal(pool.take(BYTES), first);
  assert.notEqual(pool.take(BYTES), first, 'given back twice, it is there once');
});

test('what it did not hand out is not taken back', () => {
  const pool = new BufferPool();
  const foreign = Buffer.alloc(BYTES);
  pool.giveBack(foreign);
  assert.notEqual(pool.take(BYTES), foreign);
  // Of a slab that others use too.
  pool.giveBack(pool.take(BYTES).subarray(0, POOLED_BYTES_MIN));
  assert.equal(pool.take(POOLED_BYTES_MIN).byteOffset, 0);
});

test('small ones are not kept', () => {
  const pool = new BufferPool();
  const small = pool.take(POOLED_BYTES_MIN - 1);
  pool.giveBack(small);
  assert.notEqual(pool.take(POOLED_BYTES_MIN - 1), small);
});

test('what lies idle is bounded', () => {
  const pool = new BufferPool();
  const taken = Array.from({ length: 5 }, () => pool.take(IDLE_BYTES_MAX / 4));
  for (const buffer of taken) pool.giveBack(buffer);
  const again = Array.from({ length: 5 }, () => pool.take(IDLE_BYTES_MAX / 4));
  assert.equal(again.filter(buffer => taken.includes(buffer)).length, 4);
});
