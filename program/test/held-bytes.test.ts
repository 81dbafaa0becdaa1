import test from 'ava';
import { HeldBytes } from '../held-bytes.ts';

const BYTES_MAX = 1000;

class FullError extends Error {}

const open = () => new HeldBytes({ bytesMax: BYTES_MAX, refusal: () => new FullError() });

function fill(held: HeldBytes, account: string, bytes: number): number {
  for (let kept = 0; ; kept += bytes) {
    try {
      held.begin(account).grow(bytes);
    } catch (error) {
      if (error instanceof FullError) return kept;
      throw error;
    }
  }
}

test('bytes of all requests are counted together', t => {
  const held = open();
  const [one, other] = [held.begin('a'), held.begin('b')];
  one.grow(300);
  other.grow(100);
  one.grow(50);
  t.is(held.held, 450);
  one.end();
  t.is(held.held, 100);
  one.end();
  other.end();
  t.is(held.held, 0);
});

test('an account keeps half of all there is, and leaves room for whoever comes', t => {
  const held = open();
  t.is(fill(held, 'a', 10), BYTES_MAX / 2);
  t.true(fill(held, 'b', 10) >= BYTES_MAX / 4);
  t.notThrows(() => held.begin('c').grow(10));
  t.true(held.held <= BYTES_MAX);
});

test('a request that finds no room keeps what it has, and may go on with that', t => {
  const held = open();
  const one = held.begin('a');
  one.grow(400);
  t.throws(() => one.grow(700), { instanceOf: FullError });
  t.is(held.held, 400);
  one.end();
  t.is(held.held, 0);
});
