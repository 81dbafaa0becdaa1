import test from 'ava';
import { judgeConditions, rangeStillHolds } from '../../../src/http/headers/conditions.ts';
import { formatHttpDate, parseHttpDate } from '../../../src/http/headers/http-date.ts';

const AT = Date.UTC(1994, 10, 6, 8, 49, 37);
const NOW = 'Sun, 06 Nov 1994 08:49:37 GMT';
const BEFORE = 'Sun, 06 Nov 1994 08:49:36 GMT';
const AFTER = 'Sun, 06 Nov 1994 08:49:38 GMT';
const file = { etag: '"a"', modifiedAtMs: AT };

test('text that is not a date of HTTP', t => {
  const wrong = [
    undefined,
    '',
    '0',
    '784111777',
    '1994-11-06T08:49:37Z',
    'Sun, 06 Nov 1994 08:49:37',
    'Sun, 06 Nov 1994 08:49:37 CET',
    'Sun, 06 Nov 1994 08:49:37 +0100',
    'sun, 06 nov 1994 08:49:37 gmt',
    'Sun, 6 Nov 1994 08:49:37 GMT',
    'Sun, 31 Feb 1994 08:49:37 GMT',
    'Sun, 00 Nov 1994 08:49:37 GMT',
    'Sun, 06 Nov 1994 24:00:00 GMT',
    'Sun, 06 Nov 1994 08:60:00 GMT',
    'Sun, 06 Nov 1994 08:49:61 GMT',
    `${NOW}, ${NOW}`,
    ` ${NOW}`,
  ];
  for (const text of wrong) t.is(parseHttpDate(text), undefined, text);
});

test('the three forms of a date', t => {
  t.is(parseHttpDate(NOW), AT);
  t.is(parseHttpDate('Sunday, 06-Nov-94 08:49:37 GMT'), AT);
  t.is(parseHttpDate('Sun Nov  6 08:49:37 1994'), AT);
  t.is(parseHttpDate('Sun Nov 16 08:49:37 1994'), AT + 10 * 86_400_000);
  t.is(parseHttpDate('Tue, 29 Feb 2028 23:59:60 GMT'), Date.UTC(2028, 2, 1));
  t.is(formatHttpDate(AT + 999), NOW);
});

test('conditions, in their order', t => {
  const cases: [Record<string, string>, ReturnType<typeof judgeConditions>][] = [
    [{ 'if-match': '"b"' }, 'failed'],
    [{ 'if-match': 'a' }, 'failed'],
    [{ 'if-match': '' }, 'failed'],
    [{ 'if-match': 'W/"a"' }, 'failed'],
    [{ 'if-match': '"b"', 'if-unmodified-since': NOW }, 'failed'],
    [{ 'if-match': '"b"', 'if-none-match': '"a"' }, 'failed'],
    [{ 'if-unmodified-since': BEFORE }, 'failed'],
    [{ 'if-unmodified-since': BEFORE, 'if-none-match': '"a"' }, 'failed'],
    [{}, 'send'],
    [{ 'if-match': '"b", "a"' }, 'send'],
    [{ 'if-match': '*' }, 'send'],
    [{ 'if-match': '"a"', 'if-unmodified-since': BEFORE }, 'send'],
    [{ 'if-unmodified-since': NOW }, 'send'],
    [{ 'if-unmodified-since': AFTER }, 'send'],
    [{ 'if-unmodified-since': 'yesterday' }, 'send'],
    [{ 'if-none-match': '"b"' }, 'send'],
    [{ 'if-none-match': 'a' }, 'send'],
    [{ 'if-none-match': '"b"', 'if-modified-since': AFTER }, 'send'],
    [{ 'if-modified-since': BEFORE }, 'send'],
    [{ 'if-modified-since': 'tomorrow' }, 'send'],
    [{ 'if-none-match': '"b", "a"' }, 'not-modified'],
    [{ 'if-none-match': 'W/"a"' }, 'not-modified'],
    [{ 'if-none-match': '*' }, 'not-modified'],
    [{ 'if-none-match': '"a"', 'if-modified-since': BEFORE }, 'not-modified'],
    [{ 'if-match': '"a"', 'if-none-match': '"a"' }, 'not-modified'],
    [{ 'if-modified-since': NOW }, 'not-modified'],
    [{ 'if-modified-since': AFTER }, 'not-modified'],
  ];
  for (const [headers, verdict] of cases) {
    t.is(judgeConditions(headers, file), verdict, JSON.stringify(headers));
  }
});

test('a range is sent of this very file alone', t => {
  for (const other of ['"b"', 'W/"a"', 'a', '*', '', BEFORE, AFTER, 'yesterday']) {
    t.is(rangeStillHolds(other, file), false, other);
  }
  for (const same of [undefined, '"a"', NOW]) t.true(rangeStillHolds(same, file));
});
