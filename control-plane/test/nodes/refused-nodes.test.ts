/** Every refusal is counted; the log is not filled by them. */
import test from 'ava';
import { noteRefusals } from '../../src/nodes/refused-nodes.ts';

test('a line of each cause now and then, all of them counted', t => {
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
  t.deepEqual(lines, [stranger, twin]);
  nowMs = 9999;
  note(stranger);
  t.is(lines.length, 2);
  nowMs = 10_000;
  note(stranger);
  t.deepEqual(lines, [stranger, twin, stranger]);
  t.is(counted.length, 103);
});
