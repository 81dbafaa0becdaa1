/** The second test takes the seconds that it waits for. */
import ava from 'ava';
import { soon, until } from './waiting.ts';

const test = ava.serial;

test('a wait resolves with what it waited for, or rejects as that does', async t => {
  let looks = 0;
  await until('the third look', () => {
    looks += 1;
    return looks === 3;
  });
  t.is(looks, 3);
  t.is(await soon('a value', Promise.resolve(7)), 7);
  await t.throwsAsync(soon('a value', Promise.reject(new Error('broken'))), { message: 'broken' });
});

test('a wait that runs out says what it waited for, and what is held by then', async t => {
  let held = 2;
  const never = new Promise(() => undefined);
  const first = soon(() => `nothing held: ${held} permits are`, never, 1);
  held = 1;
  await t.throwsAsync(first, { message: 'waited 1 s for nothing held: 1 permits are' });
  // The file has failed by then.
  await t.throwsAsync(soon('the end', never), { message: 'waited 1 s for the end' });
  const holds = () => false;
  await t.throwsAsync(until('the end', holds), { message: 'waited 1 s for the end' });
});
