/** What a replica remembers of jobs, by a clock of the test's own. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { JobMemories } from '../../../src/domain/dispatch/job-memories.ts';

const FAILURE = { code: 'PROCESSING_FAILED', detail: 'a detail', retryable: true } as const;

describe('the memory of jobs', () => {
  it('spaces out a job that meets refusals only, up to a bound', () => {
    let nowMs = 0;
    const memories = new JobMemories(() => nowMs);
    assert.equal(memories.mustWait('job'), false);
    const waits: number[] = [];
    for (let claims = 1; claims <= 8; claims += 1) {
      memories.claimRefused('job');
      const from = nowMs;
      while (memories.mustWait('job')) nowMs += 10;
      waits.push(nowMs - from);
    }
    assert.deepEqual(waits, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
    assert.equal(memories.mustWait('job'), false);
    memories.admitted('job');
    memories.claimRefused('job');
    nowMs += 100;
    assert.equal(memories.mustWait('job'), false, 'an admission makes the waits short again');
  });

  it('knows since when no node can do a job, and forgets it when one can', () => {
    let nowMs = 5;
    const memories = new JobMemories(() => nowMs);
    assert.equal(memories.incapableSince('job', false), undefined);
    assert.equal(memories.find('job'), undefined);
    assert.equal(memories.incapableSince('job', true), 5);
    nowMs = 9;
    assert.equal(memories.incapableSince('job', true), 5);
    assert.equal(memories.incapableSince('job', false), undefined);
    assert.equal(memories.incapableSince('job', true), 9);
  });

  it('keeps nodes to exclude and to avoid apart, and what must end the job', () => {
    const memories = new JobMemories(() => 0);
    memories.nodeIncapable('job', 'boot');
    memories.nodeLost('job', 'lost');
    assert.deepEqual([1, 2], [memories.nodeFault('job', 'a'), memories.nodeFault('job', 'b')]);
    memories.mustFail('job', FAILURE);
    const memory = memories.find('job');
    assert.deepEqual([...(memory?.excludedBoots ?? [])], ['boot']);
    assert.deepEqual([...(memory?.avoidedNodes ?? [])], ['lost', 'a', 'b']);
    assert.equal(memory?.failure, FAILURE);
    memories.forget('job');
    assert.equal(memories.find('job'), undefined);
  });

  it('is bounded, and forgets the one remembered longest', () => {
    const memories = new JobMemories(() => 0);
    for (let job = 0; job <= 10_000; job += 1) memories.nodeLost(`job-${job}`, 'node');
    assert.equal(memories.find('job-0'), undefined);
    assert.notEqual(memories.find('job-1'), undefined);
  });
});
