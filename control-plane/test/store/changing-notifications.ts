/** The methods that change notifications of jobs' ends. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { at } from '../../../test/support/at.ts';
import type { NotificationClaim } from '../../src/store/outbox/webhook-outbox-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import { admitted } from './changing-jobs.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { HOUR_MS, reread, resultOf } from './fixtures.ts';

const END = { statusCode: 500, durationMs: 12 };

/** A notification that is due, and the claim on it. */
async function notification(fixture: Fixture): Promise<NotificationClaim> {
  const of = await admitted(fixture);
  assert.ok(await fixture.stores.jobs.succeed(of, resultOf(of), HOUR_MS, {}));
  return { jobId: of.jobId, holder: 'replica-1', fence: 1 };
}

async function sending(fixture: Fixture): Promise<NotificationClaim> {
  const of = await notification(fixture);
  assert.ok(await fixture.stores.webhookOutbox.claim(of, HOUR_MS));
  return of;
}

async function summaryOf(stores: Stores, jobId: string) {
  return at(await stores.webhookOutbox.list({ jobId, limit: 1 }), 0);
}

/** A method of a notification's holder; a lost answer tells it that it is no more. */
function byNotificationClaim(
  name: 'claim' | 'release' | 'delivered' | 'retryLater' | 'failed',
  call: (stores: Stores, of: NotificationClaim) => Promise<boolean>,
  expected: { status: string; attempts: number },
): ChangingMethod {
  const begin = name === 'claim' ? notification : sending;
  return {
    name: `webhookOutbox.${name}`,
    arrange: async fixture => {
      const of = await begin(fixture);
      return {
        act: stores => call(stores, of),
        check: async outcome => {
          assert.equal(typeof outcome, 'boolean');
          const { status, attempts } = await summaryOf(fixture.stores, of.jobId);
          assert.deepEqual({ status, attempts }, expected);
          if (expected.status !== 'pending') return;
          // The next replica can claim it: nothing was lost.
          const next = { ...of, holder: 'replica-2', fence: 2 };
          await fixture.database.kysely
            .updateTable('webhook_outbox')
            .set({ lease_holder: null, lease_expires_at: null, next_attempt_at: 1 })
            .where('job_id', '=', of.jobId)
            .execute();
          assert.ok(await fixture.stores.webhookOutbox.claim(next, HOUR_MS));
        },
      };
    },
    late: async fixture => {
      const of = await begin(fixture);
      if (name !== 'claim') assert.ok(await fixture.stores.webhookOutbox.release(of));
      const fence = name === 'claim' ? 1 : 2;
      const theirs = { ...of, holder: 'replica-2', fence };
      assert.ok(await fixture.stores.webhookOutbox.claim(theirs, HOUR_MS));
      return { act: stores => call(stores, of), told: false };
    },
  };
}

const retry: ChangingMethod = {
  name: 'webhookOutbox.retry',
  arrange: async fixture => {
    const of = await sending(fixture);
    const { webhookOutbox } = fixture.stores;
    assert.ok(await webhookOutbox.failed(of, END, { eraseSecret: false }));
    return {
      act: stores => stores.webhookOutbox.retry(of.jobId),
      check: async outcome => {
        assert.equal(outcome, 'retried');
        const { status, attempts } = await summaryOf(fixture.stores, of.jobId);
        assert.deepEqual([status, attempts], ['pending', 1]);
      },
    };
  },
};

/** A notification that failed just now, and who has it sent again. */
async function failedOf(fixture: Fixture) {
  const of = await sending(fixture);
  assert.ok(await fixture.stores.webhookOutbox.failed(of, END, { eraseSecret: false }));
  const { accountId } = await reread(fixture.stores, of.jobId);
  const what = { accountId, action: 'job.resent', subject: of.jobId };
  const actor = { kind: 'system' } as const;
  return { of, audit: { id: randomUUID(), actor, ...what } };
}

const resend: ChangingMethod = {
  name: 'webhookOutbox.resend',
  arrange: async fixture => {
    const { of, audit } = await failedOf(fixture);
    return {
      act: stores => stores.webhookOutbox.resend(of.jobId, audit, 0),
      check: async outcome => {
        assert.equal(outcome, 'retried');
        const { status, attempts } = await summaryOf(fixture.stores, of.jobId);
        assert.deepEqual([status, attempts], ['pending', 1]);
      },
    };
  },
  late: async fixture => {
    const { of, audit } = await failedOf(fixture);
    return {
      act: stores => stores.webhookOutbox.resend(of.jobId, audit, HOUR_MS),
      told: 'too-soon',
    };
  },
};

const eraseDueSecrets: ChangingMethod = {
  name: 'webhookOutbox.eraseDueSecrets',
  alone: true,
  arrange: async fixture => {
    const of = await sending(fixture);
    await fixture.database.kysely
      .updateTable('webhook_outbox')
      .set({ secret_erase_at: 1 })
      .where('job_id', '=', of.jobId)
      .execute();
    return {
      act: stores => stores.webhookOutbox.eraseDueSecrets(10),
      check: async () => {
        const summary = await summaryOf(fixture.stores, of.jobId);
        assert.deepEqual([summary.status, summary.secretEraseAtMs], ['failed', null]);
        assert.equal(await fixture.stores.webhookOutbox.delivered(of, END), false, 'fenced off');
      },
    };
  },
};

export const CHANGING_NOTIFICATIONS: readonly ChangingMethod[] = [
  byNotificationClaim('claim', (s, of) => s.webhookOutbox.claim(of, HOUR_MS), {
    status: 'pending',
    attempts: 0,
  }),
  byNotificationClaim('release', (s, of) => s.webhookOutbox.release(of), {
    status: 'pending',
    attempts: 0,
  }),
  byNotificationClaim('delivered', (s, of) => s.webhookOutbox.delivered(of, END), {
    status: 'delivered',
    attempts: 1,
  }),
  byNotificationClaim('retryLater', (s, of) => s.webhookOutbox.retryLater(of, END, HOUR_MS), {
    status: 'pending',
    attempts: 1,
  }),
  byNotificationClaim('failed', (s, of) => s.webhookOutbox.failed(of, END, { eraseSecret: true }), {
    status: 'failed',
    attempts: 1,
  }),
  retry,
  resend,
  eraseDueSecrets,
];
