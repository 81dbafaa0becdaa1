import test from 'ava';
import { BufferPool, IDLE_BYTES_MAX, POOLED_BYTES_MIN } from '../../src/process/buffer-pool.ts';

const BYTES = 1_000_000;

test('a buffer that was given back is handed out again, for its size alone', t => {
  const pool = new BufferPool();
  const first = pool.take(BYTES);
  t.is(first.length, BYTES);
  pool.giveBack(first);
  t.not(pool.take(BYTES - 1), first);
  t.is(pool.take(BYTES), first);
});

test('no two users have the same buffer', t => {
  const pool = new BufferPool();
  const first = pool.take(BYTES);
  t.not(pool.take(BYTES), first);
  pool.giveBack(first);
  pool.giveBack(first);
  t.is(pool.take(BYTES), first);
  t.not(pool.take(BYTES), first, 'given back twice, it is there once');
});

test('what it did not hand out is not taken back', t => {
  const pool = new BufferPool();
  const foreign = Buffer.alloc(BYTES);
  pool.giveBack(foreign);
  t.not(pool.take(BYTES), foreign);
  // Of a slab that others use too.
  pool.giveBack(pool.take(BYTES).subarray(0, POOLED_BYTES_MIN));
  t.is(pool.take(POOLED_BYTES_MIN).byteOffset, 0);
});

test('small ones are not kept', t => {
  const pool = new BufferPool();
  const small = pool.take(POOLED_BYTES_MIN - 1);
  pool.giveBack(small);
  t.not(pool.take(POOLED_BYTES_MIN - 1), small);
});

test('what lies idle is bounded', t => {
  const pool = new BufferPool();
  const taken = Array.from({ length: 5 }, () => pool.take(IDLE_BYTES_MAX / 4));
  for (const buffer of taken) pool.giveBack(buffer);
  const again = Array.from({ length: 5 }, () => pool.take(IDLE_BYTES_MAX / 4));
  t.is(again.filter(buffer => taken.includes(buffer)).length, 4);
});
