import test from 'ava';
import { parseRange } from '../../../src/http/headers/byte-range.ts';

const whole = undefined;

test('ranges of a file of 100 bytes', t => {
  const cases: [string | undefined, ReturnType<typeof parseRange>][] = [
    [undefined, whole],
    ['', whole],
    ['bytes', whole],
    ['bytes=', whole],
    ['bytes=-', whole],
    ['bytes=a-b', whole],
    ['bytes=5-4', whole],
    ['bytes=0-1,5-6', whole],
    ['lines=0-1', whole],
    ['bytes=100-', 'unsatisfiable'],
    ['bytes=100-200', 'unsatisfiable'],
    ['bytes=-0', 'unsatisfiable'],
    ['bytes=99999999999999999999-', 'unsatisfiable'],
    ['bytes=0-', { start: 0, end: 99 }],
    ['bytes=0-0', { start: 0, end: 0 }],
    ['bytes=99-', { start: 99, end: 99 }],
    ['bytes=10-19', { start: 10, end: 19 }],
    ['bytes=90-1000', { start: 90, end: 99 }],
    ['bytes=-10', { start: 90, end: 99 }],
    ['bytes=-1000', { start: 0, end: 99 }],
    ['Bytes= 1-2', { start: 1, end: 2 }],
  ];
  for (const [header, range] of cases) t.deepEqual(parseRange(header, 100), range, header);
});

test('an empty file has no range', t => {
  t.is(parseRange('bytes=0-', 0), 'unsatisfiable');
  t.is(parseRange('bytes=-1', 0), 'unsatisfiable');
});
