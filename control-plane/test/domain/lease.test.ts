import test from 'ava';
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

test('a lease outlives two renewals that fail', t => {
  t.true(LEASE_MS >= 3 * LEASE_RENEW_MS);
});

test('each bound ends the job when it is reached and not before', t => {
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
    t.is(failureDue(jobAt(1000, under)), undefined);
    const failure = failureDue(jobAt(1000, over));
    t.is(failure?.code, 'PROCESSING_FAILED');
    t.is(failure?.retryable, retryable);
  }
});

test('deadlines are an hour to the first admission and two hours in all, both retryable', t => {
  const waiting = { state: 'ready', startedAtMs: null };
  t.is(failureDue(jobAt(FIRST_ADMISSION_MS_MAX - 1, waiting)), undefined);
  t.true(failureDue(jobAt(FIRST_ADMISSION_MS_MAX, waiting))?.retryable);
  t.is(failureDue(jobAt(FIRST_ADMISSION_MS_MAX)), undefined, 'admitted already');
  t.is(failureDue(jobAt(JOB_MS_MAX - 1)), undefined);
  t.true(failureDue(jobAt(JOB_MS_MAX))?.retryable);
});

test('a verdict about the image is not softened by a deadline', t => {
  const both = { lostAttempts: 5, lostWithProcess: 2, takeovers: 99 };
  t.false(failureDue(jobAt(10 * JOB_MS_MAX, both))?.retryable);
});

test('a final job ends with nothing more', t => {
  const over = { lostAttempts: 9, lostWithProcess: 9, takeovers: 99 };
  for (const state of ['succeeded', 'failed']) {
    t.is(failureDue(jobAt(10 * JOB_MS_MAX, { ...over, state })), undefined);
  }
});
