import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JobState } from '../../src/domain/job.ts';
import {
  FIRST_ADMISSION_MS_MAX,
  failureDue,
  JOB_MS_MAX,
  LEASE_MS,
  LEASE_RENEW_MS,
  LOST_ATTEMPTS_MAX,
  LOST_WITH_PROCESS_MAX,
  TAKEOVERS_MAX,
} from '../../src/domain/lease.ts';

const START_MS = 1_700_000_000_000;

function jobAt(ageMs: number, overrides: object = {}) {
  return {
    state: 'running' as JobState,
    createdAtMs: START_MS,
    startedAtMs: (START_MS + 1) as number | null,
    readAtMs: START_MS + ageMs,
    lostAttempts: 0,
    lostWithProcess: 0,
    takeovers: 0,
    ...overrides,
  };
}

test('a lease outlives two renewals that fail', () => {
  assert.ok(LEASE_MS >= 3 * LEASE_RENEW_MS);
});

test('each bound ends the job when it is reached and not before', () => {
  const cases: [over: object, retryable: boolean, under: object][] = [
    [{ lostAttempts: LOST_ATTEMPTS_MAX }, true, { lostAttempts: LOST_ATTEMPTS_MAX - 1 }],
    [
      { lostAttempts: 2, lostWithProcess: LOST_WITH_PROCESS_MAX },
      false,
      { lostAttempts: 2, lostWithProcess: LOST_WITH_PROCESS_MAX - 1 },
    ],
    [{ takeovers: TAKEOVERS_MAX }, true, { takeovers: TAKEOVERS_MAX - 1 }],
  ];
  for (const [over, retryable, under] of cases) {
    assert.equal(failureDue(jobAt(1000, under)), undefined);
    const failure = failureDue(jobAt(1000, over));
    assert.equal(failure?.code, 'PROCESSING_FAILED');
    assert.equal(failure?.retryable, retryable);
  }
});

test('deadlines are an hour to the first admission and two hours in all, both retryable', () => {
  const waiting = { state: 'ready', startedAtMs: null };
  assert.equal(failureDue(jobAt(FIRST_ADMISSION_MS_MAX - 1, waiting)), undefined);
  assert.equal(failureDue(jobAt(FIRST_ADMISSION_MS_MAX, waiting))?.retryable, true);
  assert.equal(failureDue(jobAt(FIRST_ADMISSION_MS_MAX)), undefined, 'admitted already');
  assert.equal(failureDue(jobAt(JOB_MS_MAX - 1)), undefined);
  assert.equal(failureDue(jobAt(JOB_MS_MAX))?.retryable, true);
});

test('a verdict about the image is not softened by a deadline', () => {
  const both = { lostAttempts: 5, lostWithProcess: 2, takeovers: 99 };
  assert.equal(failureDue(jobAt(10 * JOB_MS_MAX, both))?.retryable, false);
});

test('a final job ends with nothing more', () => {
  const over = { lostAttempts: 9, lostWithProcess: 9, takeovers: 99 };
  for (const state of ['succeeded', 'failed']) {
    assert.equal(failureDue(jobAt(10 * JOB_MS_MAX, { ...over, state })), undefined);
  }
});
