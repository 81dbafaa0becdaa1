import test from 'ava';
import { Followed } from '../followed-files.ts';

/** Each read takes the next value, and repeats the last. */
function followedThrough(values: string[]) {
  const seen: string[] = [];
  const deaf = { info: () => undefined, warn: () => undefined };
  const read = async () => (values.length > 1 ? (values.shift() ?? '') : (values[0] ?? ''));
  const options = { what: 'files', log: deaf, pollMs: 1 };
  const followed = new Followed('old', read, {
    ...options,
    onChange: (value: string) => seen.push(value),
  });
  followed.close();
  return { followed, seen };
}

test('a value that changes again while it is read is in the middle of being written', async t => {
  const { followed, seen } = followedThrough(['a-token-of-whi', 'a-token-of-which-half-was-there']);
  await followed.reload();
  t.deepEqual(seen, []);
  await followed.reload();
  t.deepEqual(seen, ['a-token-of-which-half-was-there']);
});

test('a value that is the same twice counts, also without an end of its line', async t => {
  const { followed, seen } = followedThrough(['new', 'new', 'new']);
  await followed.reload();
  t.deepEqual(seen, ['new']);
});
