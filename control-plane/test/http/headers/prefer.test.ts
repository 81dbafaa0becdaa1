import test from 'ava';
import { parsePrefer } from '../../../src/http/headers/prefer.ts';

const CASES: readonly [header: string | undefined, respondAsync: boolean, waitS?: number][] = [
  [undefined, false],
  ['', false],
  [',,;', false],
  ['wait', false],
  ['wait=', false],
  ['wait=-1', false],
  ['wait=1.5', false],
  ['wait=1e3', false],
  ['wait=soon', false],
  ['wait=99999999999', false],
  ['wait = 5 6', false],
  ['waiting=5', false],
  ['respond-async=yes', false],
  ['"respond-async"', false],
  ['foo="wait=5"', false],
  ['foo="a, wait=5, b"', false],
  ['wait=oops, wait=5', false],
  ['wait=0', false, 0],
  ['wait=10', false, 10],
  ['wait="10"', false, 10],
  ['wait = 10', false, 10],
  ['WAIT=10', false, 10],
  ['wait=10; foo=bar', false, 10],
  ['wait=10, wait=20', false, 10],
  ['handling=lenient, wait=7', false, 7],
  ['foo="unclosed, wait=7', false, 7],
  ['respond-async', true],
  ['Respond-Async', true],
  ['respond-async=""', true],
  ['respond-async; x=1', true],
  ['respond-async, wait=10', true, 10],
  ['wait=10,respond-async', true, 10],
];

for (const [header, respondAsync, waitS] of CASES) {
  test(`Prefer: ${header}`, t => {
    t.deepEqual(parsePrefer(header), { respondAsync, waitS });
  });
}

test('a header too long to mean well is ignored', t => {
  const hostile = `wait=5, "${'\\"'.repeat(5000)}`;
  t.deepEqual(parsePrefer(hostile), { respondAsync: false, waitS: undefined });
});
