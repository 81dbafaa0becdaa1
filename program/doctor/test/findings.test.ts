/** The page of a doctor, and what bounds each look. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { failure, jsonOf, look, ok, pageOf, reasonOf, warning } from '../findings.ts';

const FINDINGS = [
  ok('disk', 'room'),
  warning('database', 'slow', 'look at it'),
  failure('nodes', 'none', 'start one'),
];

it('a page has a line a finding, its advice below, and the counts at the end', () => {
  assert.deepEqual(pageOf(FINDINGS), [
    'ok       disk      room',
    'warning  database  slow',
    '                   -> look at it',
    'failure  nodes     none',
    '                   -> start one',
    '1 ok, 1 warning, 1 failure',
  ]);
});

it('what others said begins no line of a page, and says nothing to the terminal', () => {
  const lines = pageOf([
    warning('node \u001b[2J', '1.0\nok       nodes\u009b2J', 'see\r\nit'),
    ok('nodes', '3'),
  ]);
  assert.deepEqual(lines, [
    'warning  node  [2J  1.0 ok       nodes 2J',
    '                    -> see it',
    'ok       nodes      3',
    '1 ok, 1 warning, 0 failures',
  ]);
});

it('JSON says the same', () => {
  const { ok: good, summary, findings } = jsonOf(FINDINGS);
  assert.equal(good, false);
  assert.deepEqual(summary, { ok: 1, warnings: 1, failures: 1 });
  assert.deepEqual(findings[1], {
    subject: 'database',
    status: 'warning',
    found: 'slow',
    advice: 'look at it',
  });
});

it('a look that throws, or never answers, is a failure with its advice', async () => {
  const thrown = await look('a', 'do this', async () => {
    throw new Error('outer', { cause: new Error('line 1\nline 2') });
  });
  assert.deepEqual(thrown, [failure('a', 'outer: line 1; line 2', 'do this')]);
  const hung = await look('b', 'do that', () => new Promise(() => undefined), 20);
  assert.deepEqual(hung, [failure('b', 'no answer within 0.02 s', 'do that')]);
});

it('an error without words is told by its code', () => {
  assert.equal(reasonOf(Object.assign(new Error(''), { code: 'ECONNREFUSED' })), 'ECONNREFUSED');
  assert.equal(reasonOf('text'), 'text');
});
