/** What a replica remembers of jobs, by a clock of the test's own. */
import test from 'ava';
import { JobMemories } from '../../../src/domain/dispatch/job-memories.ts';

const FAILURE = { code: 'PROCESSING_FAILED', detail: 'a detail', retryable: true } as const;

test('spaces out a job that meets refusals only, up to a bound', t => {
  let nowMs = 0;
  const memories = new JobMemories(() => nowMs);
  t.false(memories.mustWait('job'));
  const waits: number[] = [];
  for (let claims = 1; claims <= 8; claims += 1) {
    memories.claimRefused('job');
    const from = nowMs;
    while (memories.mustWait('job')) nowMs += 10;
    waits.push(nowMs - from);
  }
  t.deepEqual(waits, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
  t.false(memories.mustWait('job'));
  memories.admitted('job');
  memories.claimRefused('job');
  nowMs += 100;
  t.is(memories.mustWait('job'), false, 'an admission makes the waits short again');
});

test('knows since when no node can do a job, and forgets it when one can', t => {
  let nowMs = 5;
  const memories = new JobMemories(() => nowMs);
  t.is(memories.incapableSince('job', false), undefined);
  t.is(memories.find('job'), undefined);
  t.is(memories.incapableSince('job', true), 5);
  nowMs = 9;
  t.is(memories.incapableSince('job', true), 5);
  t.is(memories.incapableSince('job', false), undefined);
  t.is(memories.incapableSince('job', true), 9);
});

test('keeps nodes to exclude and to avoid apart, and what must end the job', t => {
  const memories = new JobMemories(() => 0);
  memories.nodeIncapable('job', 'boot');
  memories.nodeLost('job', 'lost');
  t.deepEqual([1, 2], [memories.nodeFault('job', 'a'), memories.nodeFault('job', 'b')]);
  memories.mustFail('job', FAILURE);
  const memory = memories.find('job');
  t.deepEqual([...(memory?.excludedBoots ?? [])], ['boot']);
  t.deepEqual([...(memory?.avoidedNodes ?? [])], ['lost', 'a', 'b']);
  t.is(memory?.failure, FAILURE);
  memories.forget('job');
  t.is(memories.find('job'), undefined);
});

test('is bounded, and forgets the one remembered longest', t => {
  const memories = new JobMemories(() => 0);
  for (let job = 0; job <= 10_000; job += 1) memories.nodeLost(`job-${job}`, 'node');
  t.is(memories.find('job-0'), undefined);
  t.not(memories.find('job-1'), undefined);
});
