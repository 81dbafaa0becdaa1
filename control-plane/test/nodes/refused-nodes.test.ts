/** Every refusal is counted; the log is not filled by them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noteRefusals } from '../../src/nodes/refused-nodes.ts';

test('a line of each cause now and then, all of them counted', () => {
  const counted: string[] = [];
  const lines: unknown[] = [];
  let nowMs = 0;
  const note = noteRefusals(
    { warn: (fields: unknown) => lines.push(fields) },
    { nodeRefused: cause => counted.push(cause) },
    () => nowMs,
  );
  const stranger = { cause: 'token', nodeId: undefined, peer: '10.0.0.9:4', detail: 'no' } as const;
  const twin = { cause: 'replaced', nodeId: 'a', peer: '10.0.0.7:5', detail: 'another' } as const;
  for (let times = 0; times < 100; times += 1) note(stranger);
  note(twin);
  assert.deepEqual(lines, [stranger, twin]);
  nowMs = 9999;
  note(stranger);
  assert.equal(lines.length, 2);
  nowMs = 10_000;
  note(stranger);
  assert.deepEqual(lines, [stranger, twin, stranger]);
  assert.equal(counted.length, 103);
});
