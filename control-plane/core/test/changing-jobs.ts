import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '@matting/database/database.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import { UNPAID } from '@matting/queue/job.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import type { SettledStep } from '@matting/queue/settled-steps.ts';
import type { SubmitOutcome } from '@matting/queue/submit-job.ts';
import type { Job } from '../jobs/job.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import type { Stores } from '../stores.ts';
import { createStores } from '../stores.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { correctionOf, firstOf, matteOf } from './families.ts';
import {
  BACKGROUND_URL,
  bodyOf,
  claimed,
  creditsOf,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  reread,
  resultOf,
  running,
  SERVICE_FAULT,
  storedBackground,
  storedInput,
  submitted,
  successOf,
  UNPAID_DAY_MS,
  WITH_PICTURE,
} from './fixtures.ts';

const SOURCE = 'https://pictures.example/1.png';
const CALLBACK = {
  url: 'https://receiver.example/hook',
  secret: new Uint8Array([1, 2, 3]),
  secretKeyId: 'key-1',
};

async function accountJob(
  fixture: Fixture,
  overrides: Partial<NewJob> = {},
): Promise<{ account: string; job: NewJob }> {
  const { apiKeyId } = fixture;
  const account = await fixture.account(2);
  return { account, job: newJob(account, { apiKeyId, ...overrides }) };
}

function twinOf({ accountId, apiKeyId, idempotencyKeyHash }: NewJob): NewJob {
  return newJob(accountId, { apiKeyId, idempotencyKeyHash });
}

async function assertCredits(
  stores: Stores,
  account: string,
  expected: { available: number; reserve: number; charge?: number; release?: number },
): Promise<void> {
  const credits = await creditsOf(stores, account);
  const { available, reserve, charge = 0, release = 0 } = expected;
  assert.deepEqual(
    [credits?.available, credits?.sums.reserve, credits?.sums.charge, credits?.sums.release],
    [available, reserve, charge, release],
  );
}

/** Claimed by A, then by B, as if A had stalled for longer than its lease. */
async function takenOver(
  fixture: Fixture,
  begin: (fixture: Fixture) => Promise<Claim>,
): Promise<{ late: Claim; held: Claim }> {
  const late = await begin(fixture);
  await fixture.stores.queue.endLease(late.jobId);
  const job = await reread(fixture.stores, late.jobId);
  return { late, held: await claimed(fixture.stores, job, { holder: 'replica-2' }) };
}

const fetching = async (fixture: Fixture): Promise<Claim> => {
  const { job } = await accountJob(fixture, { sourceUrl: SOURCE });
  return claimed(fixture.stores, await submitted(fixture.stores, job));
};
const fetchingBackground = async (fixture: Fixture): Promise<Claim> => {
  const { job } = await accountJob(fixture, { ...WITH_PICTURE, ...BACKGROUND_URL });
  return claimed(fixture.stores, await submitted(fixture.stores, job));
};
export const admitted = async (fixture: Fixture): Promise<Claim> => {
  const { job } = await accountJob(fixture, { callback: CALLBACK });
  return (await running(fixture.stores, job)).claim;
};

function rowIs(stores: Stores, jobId: string, expected: Partial<Job>) {
  return async () => {
    const job = await reread(stores, jobId);
    for (const [name, value] of Object.entries(expected)) {
      assert.deepEqual(job[name as keyof Job], value, name);
    }
  };
}

function byClaim(
  name: string,
  begin: (fixture: Fixture) => Promise<Claim>,
  call: (stores: Stores, claim: Claim) => Promise<unknown>,
  expected: Partial<Job>,
  /** After a lost answer the holder assumes that the lease is lost. */
  answersWhenLost: readonly unknown[] = [true],
): ChangingMethod {
  return {
    name: `queue.${name}`,
    arrange: async fixture => {
      const claim = await begin(fixture);
      return {
        act: stores => call(stores, claim),
        check: async outcome => {
          const answer = outcome instanceof Object ? true : outcome;
          assert.ok(answersWhenLost.includes(answer), `answer ${answer}`);
          await rowIs(fixture.stores, claim.jobId, { fence: claim.fence, ...expected })();
        },
      };
    },
    late: async fixture => {
      const { late } = await takenOver(fixture, begin);
      const told = name === 'attemptLost' ? undefined : false;
      return { act: stores => call(stores, late), told };
    },
  };
}

function ending(name: 'succeed' | 'fail'): ChangingMethod {
  const call = (stores: Stores, of: Claim, result = resultOf(of)) =>
    name === 'succeed'
      ? stores.queue.succeed(of, successOf(of, { result }))
      : stores.queue.fail(of, SERVICE_FAULT);
  return {
    name: `queue.${name}`,
    arrange: async fixture => {
      const of = await admitted(fixture);
      const { accountId } = await reread(fixture.stores, of.jobId);
      // One token, however often it is tried.
      const result = resultOf(of);
      return {
        act: stores => call(stores, of, result),
        check: async outcome => {
          assert.equal(outcome, true);
          const job = await reread(fixture.stores, of.jobId);
          const charged = name === 'succeed' ? 1 : 0;
          assert.equal(job.state, charged ? 'succeeded' : 'failed');
          assert.deepEqual(job.result?.token, charged ? result.token : undefined);
          const available = charged ? 1 : 2;
          const sums = charged ? { charge: 1 } : { release: 1 };
          await assertCredits(fixture.stores, accountId, { available, reserve: 1, ...sums });
          const told = await fixture.stores.outbox.list({ jobId: of.jobId, limit: 10 });
          assert.equal(told.length, 1);
        },
      };
    },
    late: async fixture => {
      const { late } = await takenOver(fixture, admitted);
      return { act: stores => call(stores, late), told: false };
    },
  };
}

async function endedJob(fixture: Fixture): Promise<NewJob> {
  const { job } = await accountJob(fixture);
  const { claim } = await running(fixture.stores, job);
  await fixture.stores.queue.succeed(claim, successOf(claim));
  return job;
}

async function warnedJob(fixture: Fixture): Promise<NewJob> {
  const { job } = await accountJob(fixture);
  const { claim } = await running(fixture.stores, job);
  const sight = { inputWidth: 1, inputHeight: 1, subject: null };
  const result = { ...resultOf(claim), sight };
  await fixture.stores.queue.succeed(claim, successOf(claim, { result }));
  return job;
}

async function unpaidJob({ stores }: Fixture): Promise<NewJob> {
  return newJob(await fundedAccount(stores, 0), { class: UNPAID });
}

async function assertNothingPaid(stores: Stores, account: string): Promise<void> {
  assert.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 0 });
}

function deletion(
  which: string,
  begin: (fixture: Fixture) => Promise<NewJob>,
  expected: { readonly row: Partial<Job>; readonly available: number; readonly sums: object },
): ChangingMethod {
  return {
    name: 'queue.remove',
    which,
    again: 'unchanged',
    arrange: async fixture => {
      const { stores } = fixture;
      const { id, apiKeyId, accountId } = await begin(fixture);
      return {
        act: faulty => faulty.queue.remove(id, apiKeyId),
        check: async () => {
          await rowIs(stores, id, { reference: null, ...expected.row })();
          const { available, sums } = expected;
          await assertCredits(stores, accountId, { available, reserve: 1, ...sums });
        },
      };
    },
  };
}

const queuedNamed = async (fixture: Fixture): Promise<NewJob> => {
  const { job } = await accountJob(fixture, { callback: CALLBACK, reference: 'mine' });
  await submitted(fixture.stores, job);
  return job;
};

async function correctionOrder({ stores, apiKeyId, account }: Fixture): Promise<NewJob> {
  return correctionOf(await firstOf(stores, await account(2), { apiKeyId }));
}

/** An account's row counts open corrections; the ledger has no entry. */
const CORRECTING: readonly ChangingMethod[] = [
  {
    name: 'queue.submit',
    which: 'that corrects another',
    arrange: async fixture => {
      const { stores } = fixture;
      const job = await correctionOrder(fixture);
      return {
        act: faulty => faulty.queue.submit(job, LIMITS),
        check: async outcome => {
          assert.equal((outcome as SubmitOutcome<unknown>).kind, 'created');
          await rowIs(stores, job.correction!.first, { corrections: 1 })();
          assert.deepEqual(await stores.ledger.check(job.accountId), []);
        },
      };
    },
    late: async fixture => {
      const job = await correctionOrder(fixture);
      await submitted(fixture.stores, job);
      const act = async (stores: Stores) => {
        const outcome = (await stores.queue.submit(job, LIMITS)) as SubmitOutcome<unknown> & {
          job: Job;
        };
        return [outcome.kind, outcome.job.id];
      };
      return { act, told: ['created', job.id] };
    },
  },
  {
    name: 'queue.succeed',
    which: 'that corrects another',
    arrange: async fixture => {
      const { stores } = fixture;
      const job = await correctionOrder(fixture);
      const { claim } = await running(stores, job);
      const result = resultOf(claim);
      const matte = matteOf(claim);
      return {
        act: faulty => faulty.queue.succeed(claim, successOf(claim, { result, matte })),
        check: async outcome => {
          assert.equal(outcome, true);
          const { kept } = await reread(stores, job.id);
          assert.deepEqual(kept?.matte, matte);
          assert.deepEqual(await stores.ledger.check(job.accountId), []);
        },
      };
    },
  },
  {
    name: 'queue.remove',
    which: 'that others correct',
    again: 'unchanged',
    arrange: async fixture => {
      const { stores } = fixture;
      const order = await correctionOrder(fixture);
      const open = await submitted(stores, order);
      const { first } = order.correction!;
      return {
        act: faulty => faulty.queue.remove(first, order.apiKeyId),
        check: async () => {
          await rowIs(stores, first, { kept: null })();
          await rowIs(stores, open.id, { state: 'failed', fence: 1, lease: null })();
          assert.deepEqual(await stores.ledger.check(order.accountId), []);
        },
      };
    },
  },
  {
    name: 'jobs.noteLooked',
    arrange: async fixture => {
      const { stores } = fixture;
      const { id, accountId } = await warnedJob(fixture);
      assert.notEqual((await reread(stores, id)).lookUntilMs, null);
      return {
        act: faulty => faulty.jobs.noteLooked(accountId, id),
        check: rowIs(stores, id, { lookUntilMs: null }),
      };
    },
  },
  {
    name: 'jobs.takeExpiredKept',
    alone: true,
    arrange: async fixture => {
      const { stores } = fixture;
      const first = await firstOf(stores, await fixture.account(2), { ttlMs: -1 });
      const { input, matte } = first.kept!;
      return {
        act: faulty => faulty.jobs.takeExpiredKept(10),
        check: async () => {
          await rowIs(stores, first.id, { kept: null })();
          const names = [input!.blob, matte.blob];
          assert.deepEqual([...(await stores.jobs.referencedBlobs(names))], []);
        },
      };
    },
  },
];

export const CHANGING_JOBS: readonly ChangingMethod[] = [
  ...CORRECTING,
  deletion('that is queued', queuedNamed, {
    row: { state: 'failed', fence: 1 },
    available: 2,
    sums: { release: 1 },
  }),
  deletion('that succeeded', endedJob, {
    row: { state: 'succeeded', fence: 1 },
    available: 1,
    sums: { charge: 1 },
  }),
  {
    name: 'jobs.resultErased',
    arrange: async fixture => {
      const { stores } = fixture;
      const { id, apiKeyId } = await endedJob(fixture);
      const deleted = await stores.queue.remove(id, apiKeyId);
      const blob = deleted?.blobs[0] ?? '';
      return {
        act: faulty => faulty.jobs.resultErased(id, blob),
        check: rowIs(stores, id, { result: null }),
      };
    },
  },
  {
    name: 'queue.submit',
    arrange: async fixture => {
      const { account, job } = await accountJob(fixture);
      return {
        act: stores => stores.queue.submit(job, LIMITS),
        check: async outcome => {
          const { kind, job: made } = outcome as SubmitOutcome<unknown> & { job: Job };
          assert.deepEqual([kind, made.id], ['created', job.id]);
          await assertCredits(fixture.stores, account, { available: 1, reserve: 1 });
        },
      };
    },
    late: async fixture => {
      const { job } = await accountJob(fixture);
      await submitted(fixture.stores, job);
      // Another replica gives the job of the same request another id.
      const twin = twinOf(job);
      const act = async (stores: Stores) => {
        const outcome = (await stores.queue.submit(twin, LIMITS)) as SubmitOutcome<unknown> & {
          job: Job;
        };
        return [outcome.kind, outcome.job.id];
      };
      return { act, told: ['exists', job.id] };
    },
  },
  {
    name: 'queue.claim',
    arrange: async fixture => {
      const { job } = await accountJob(fixture);
      const { id, fence } = await submitted(fixture.stores, job);
      return {
        act: stores => stores.queue.claim({ id, fence }, 'replica-1', 1),
        check: async outcome => {
          // A claim whose answer is lost counts as lost: the lease runs out, and the next is a
          // take-over.
          const row = await reread(fixture.stores, id);
          assert.deepEqual([row.fence, row.lease?.holder, row.takeovers], [1, 'replica-1', 0]);
          assert.ok(outcome === undefined || outcome instanceof Object);
          await delay(5);
          await claimed(fixture.stores, row, { holder: 'replica-2' });
        },
      };
    },
    late: async fixture => {
      const { job } = await accountJob(fixture);
      const { id, fence } = await submitted(fixture.stores, job);
      await claimed(fixture.stores, { id }, { holder: 'replica-2' });
      const act = (stores: Stores) => stores.queue.claim({ id, fence }, 'replica-1', HOUR_MS);
      return { act, told: undefined };
    },
  },
  byClaim('renew', admitted, (s, of) => s.queue.renew(of, HOUR_MS), { state: 'running' }),
  byClaim(
    'release',
    admitted,
    (s, of) => s.queue.release(of),
    { lease: null, lostAttempts: 0, takeovers: 0 },
    [true, false],
  ),
  byClaim(
    'inputStored',
    fetching,
    (s, of) => s.queue.inputStored(of, storedInput(`${of.jobId}-1`)),
    { state: 'ready' },
  ),
  byClaim(
    'backgroundStored',
    fetchingBackground,
    (s, of) => s.queue.backgroundStored(of, storedBackground(of.jobId)),
    { state: 'ready' },
  ),
  byClaim('admitted', admitted, (s, of) => s.queue.admitted(of), { state: 'running' }),
  byClaim(
    'attemptLost',
    admitted,
    (s, of) => s.queue.attemptLost(of, true),
    { lease: null, lostAttempts: 1, lostWithProcess: 1 },
    [true, undefined],
  ),
  ending('succeed'),
  ending('fail'),
  {
    name: 'queue.endLease',
    arrange: async fixture => {
      const of = await admitted(fixture);
      return {
        act: stores => stores.queue.endLease(of.jobId),
        check: async outcome => {
          // After a lost answer it finds its own work done.
          assert.match((outcome as { kind: string }).kind, /^(ended|not-leased)$/);
          await rowIs(fixture.stores, of.jobId, { lease: null, fence: 1, lostAttempts: 0 })();
        },
      };
    },
  },
  {
    name: 'jobs.takeExpiredResultBlobs',
    alone: true,
    arrange: async fixture => {
      const of = await admitted(fixture);
      await fixture.stores.queue.succeed(of, successOf(of, { resultTtlMs: -1 }));
      return {
        act: stores => stores.jobs.takeExpiredResultBlobs(10),
        check: async outcome => {
          // After a lost answer no row has the names: the sweep of orphans finds the blobs.
          const { blob } = resultOf(of);
          assert.ok((outcome as string[]).every(name => name === blob));
          assert.deepEqual([...(await fixture.stores.jobs.referencedBlobs([blob]))], []);
        },
      };
    },
  },
  {
    name: 'jobs.removeFinalOlderThan',
    alone: true,
    arrange: async fixture => {
      const gone = await admitted(fixture);
      await fixture.stores.queue.fail(gone, IMAGE_FAULT);
      const stays = await admitted(fixture);
      return {
        act: stores => stores.jobs.removeFinalOlderThan(-1000, 10),
        check: async () => {
          assert.equal(await fixture.stores.jobs.find(gone.jobId), undefined);
          const told = await fixture.stores.outbox.list({ jobId: gone.jobId, limit: 1 });
          assert.deepEqual(told, []);
          assert.equal((await reread(fixture.stores, stays.jobId)).state, 'running');
        },
      };
    },
  },
  {
    name: 'queue.findByKey',
    arrange: async fixture => {
      const { stores } = fixture;
      const job = await endedJob(fixture);
      const { id, apiKeyId, idempotencyKeyHash: hash } = job;
      const key = { hash, rememberedMs: 0 };
      return {
        act: by => by.queue.findByKey(apiKeyId, key),
        check: async () => {
          assert.equal((await reread(stores, id)).idempotencyKeyHash, null);
          const next = twinOf(job);
          assert.equal((await submitted(stores, next)).id, next.id);
        },
      };
    },
    late: async fixture => {
      // Another replica freed it, and the next request's job took it.
      const { stores } = fixture;
      const job = await endedJob(fixture);
      const { apiKeyId, idempotencyKeyHash: hash } = job;
      const key = { hash, rememberedMs: 0 };
      await stores.queue.findByKey(apiKeyId, key);
      const next = await submitted(stores, twinOf(job));
      const found = (by: Stores) => by.queue.findByKey(apiKeyId, key);
      return { act: async by => (await found(by))?.id, told: next.id };
    },
  },
  {
    name: 'queue.submit',
    which: 'that is not paid for',
    arrange: async fixture => {
      const job = await unpaidJob(fixture);
      return {
        act: stores => stores.queue.submit(job, LIMITS),
        check: async outcome => {
          assert.equal((outcome as SubmitOutcome<unknown>).kind, 'created');
          await rowIs(fixture.stores, job.id, { unpaidDayMs: UNPAID_DAY_MS })();
          await assertNothingPaid(fixture.stores, job.accountId);
        },
      };
    },
  },
  {
    name: 'queue.fail',
    which: 'that is not paid for',
    arrange: async fixture => {
      const { stores } = fixture;
      const job = await unpaidJob(fixture);
      await submitted(stores, job);
      const claim = await claimed(stores, { id: job.id });
      return {
        act: faulty => faulty.queue.fail(claim, SERVICE_FAULT),
        check: async outcome => {
          assert.equal(outcome, true);
          await rowIs(stores, job.id, { state: 'failed' })();
          await assertNothingPaid(stores, job.accountId);
        },
      };
    },
  },
];

/**
 * Makes up for steps that a job's end left out.
 * @param assertDone of its account
 */
export function repairing(
  steps: readonly SettledStep[],
  assertDone: (database: Database, account: string) => Promise<void>,
): ChangingMethod {
  return {
    name: 'unsettled.repair',
    arrange: async fixture => {
      const { stores, database } = fixture;
      const { account, job } = await accountJob(fixture);
      const { claim } = await running(stores, job);
      const settled = steps.map(({ name }) => ({
        name,
        settled: () => Promise.reject(new Error('a bug')),
      }));
      const broken = createStores(database, { renderOutboxBody: bodyOf, settled });
      assert.ok(await broken.queue.succeed(claim, successOf(claim)));
      return {
        act: faulty => faulty.unsettled.repair(100),
        check: async () => {
          await stores.unsettled.repair(100);
          assert.deepEqual(await rowsOf(database.kysely, 'unsettled_jobs', {}), []);
          await assertDone(database, account);
        },
      };
    },
  };
}
