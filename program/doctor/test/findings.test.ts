/** The page of a doctor, and what bounds each look. */
import test from 'ava';
import { failure, jsonOf, look, ok, pageOf, reasonOf, warning } from '../findings.ts';

const FINDINGS = [
  ok('disk', 'room'),
  warning('database', 'slow', 'look at it'),
  failure('nodes', 'none', 'start one'),
];

test('a page has a line a finding, its advice below, and the counts at the end', t => {
  t.deepEqual(pageOf(FINDINGS), [
    'ok       disk      room',
    'warning  database  slow',
    '                   -> look at it',
    'failure  nodes     none',
    '                   -> start one',
    '1 ok, 1 warning, 1 failure',
  ]);
});

test('what others said begins no line of a page, and says nothing to the terminal', t => {
  const lines = pageOf([
    warning('node \u001b[2J', '1.0\nok       nodes\u009b2J', 'see\r\nit'),
    ok('nodes', '3'),
  ]);
  t.deepEqual(lines, [
    'warning  node  [2J  1.0 ok       nodes 2J',
    '                    -> see it',
    'ok       nodes      3',
    '1 ok, 1 warning, 0 failures',
  ]);
});

test('JSON says the same', t => {
  const { ok: good, summary, findings } = jsonOf(FINDINGS);
  t.false(good);
  t.deepEqual(summary, { ok: 1, warnings: 1, failures: 1 });
  t.deepEqual(findings[1], {
    subject: 'database',
    status: 'warning',
    found: 'slow',
    advice: 'look at it',
  });
});

test('a look that throws, or never answers, is a failure with its advice', async t => {
  const thrown = await look('a', 'do this', async () => {
    throw new Error('outer', { cause: new Error('line 1\nline 2') });
  });
  t.deepEqual(thrown, [failure('a', 'outer: line 1; line 2', 'do this')]);
  const hung = await look('b', 'do that', () => new Promise(() => undefined), 20);
  t.deepEqual(hung, [failure('b', 'no answer within 0.02 s', 'do that')]);
});

test('an error without words is told by its code', t => {
  t.is(reasonOf(Object.assign(new Error(''), { code: 'ECONNREFUSED' })), 'ECONNREFUSED');
  t.is(reasonOf('text'), 'text');
});
