import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { transact } from '@matting/database/database.ts';
import { rowOf, setIn } from '@matting/database/test/rows.ts';
import { at } from '@matting/test-support/at.ts';
import type { Stores } from '../stores.ts';
import type { MessageClaim } from '../webhooks/deliver-messages.ts';
import { insertMail } from '../webhooks/outbox-store.ts';
import { admitted } from './changing-jobs.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { fundedAccount, HOUR_MS, reread, successOf } from './fixtures.ts';
import { dueMails, mailEnd, mailOf } from './mails.ts';

const END = { statusCode: 500, durationMs: 12 };
const LONG_AGO_MS = 1;
const KEPT_MS = 30 * 24 * HOUR_MS;

async function notification(fixture: Fixture): Promise<MessageClaim> {
  const of = await admitted(fixture);
  assert.ok(await fixture.stores.queue.succeed(of, successOf(of)));
  return { id: of.jobId, holder: 'replica-1', fence: 1 };
}

async function sending(fixture: Fixture): Promise<MessageClaim> {
  const of = await notification(fixture);
  assert.ok(await fixture.stores.outbox.claim(of, HOUR_MS));
  return of;
}

async function dueMail({ stores, database }: Fixture): Promise<MessageClaim> {
  const mail = mailOf(await fundedAccount(stores, 0));
  await transact(database, tx => insertMail(database, tx, mail));
  return { id: mail.id, holder: 'replica-1', fence: 1 };
}

async function summaryOf(stores: Stores, jobId: string) {
  return at(await stores.outbox.list({ jobId, limit: 1 }), 0);
}

/** After a lost answer the holder is told that it is not the holder. */
function byMessageClaim(
  name: 'claim' | 'release' | 'delivered' | 'retryLater' | 'failed',
  call: (stores: Stores, of: MessageClaim) => Promise<boolean>,
  expected: { status: string; attempts: number },
): ChangingMethod {
  const begin = name === 'claim' ? notification : sending;
  return {
    name: `outbox.${name}`,
    arrange: async fixture => {
      const of = await begin(fixture);
      return {
        act: stores => call(stores, of),
        check: async outcome => {
          assert.equal(typeof outcome, 'boolean');
          const { status, attempts } = await summaryOf(fixture.stores, of.id);
          assert.deepEqual({ status, attempts }, expected);
          if (expected.status !== 'pending') return;
          const next = { ...of, holder: 'replica-2', fence: 2 };
          await setIn(
            fixture.database.kysely,
            'outbox',
            { id: of.id },
            { lease_holder: null, lease_expires_at: null, next_attempt_at: 1 },
          );
          assert.ok(await fixture.stores.outbox.claim(next, HOUR_MS));
        },
      };
    },
    late: async fixture => {
      const of = await begin(fixture);
      if (name !== 'claim') assert.ok(await fixture.stores.outbox.release(of));
      const fence = name === 'claim' ? 1 : 2;
      const theirs = { ...of, holder: 'replica-2', fence };
      assert.ok(await fixture.stores.outbox.claim(theirs, HOUR_MS));
      return { act: stores => call(stores, of), told: false };
    },
  };
}

async function failedOf(fixture: Fixture) {
  const of = await sending(fixture);
  assert.ok(await fixture.stores.outbox.failed(of, END, { eraseSecret: false }));
  const { accountId } = await reread(fixture.stores, of.id);
  const what = { accountId, action: 'job.resent', subject: of.id };
  const actor = { kind: 'system' } as const;
  return { of, audit: { id: randomUUID(), actor, ...what } };
}

async function assertRetried({ stores }: Fixture, of: MessageClaim, outcome: unknown) {
  assert.equal(outcome, 'retried');
  const { status, attempts } = await summaryOf(stores, of.id);
  assert.deepEqual([status, attempts], ['pending', 1]);
}

export const CHANGING_NOTIFICATIONS: readonly ChangingMethod[] = [
  byMessageClaim('claim', (s, of) => s.outbox.claim(of, HOUR_MS), {
    status: 'pending',
    attempts: 0,
  }),
  byMessageClaim('release', (s, of) => s.outbox.release(of), {
    status: 'pending',
    attempts: 0,
  }),
  byMessageClaim('delivered', (s, of) => s.outbox.delivered(of, END), {
    status: 'delivered',
    attempts: 1,
  }),
  byMessageClaim('retryLater', (s, of) => s.outbox.retryLater(of, END, HOUR_MS), {
    status: 'pending',
    attempts: 1,
  }),
  byMessageClaim('failed', (s, of) => s.outbox.failed(of, END, { eraseSecret: true }), {
    status: 'failed',
    attempts: 1,
  }),
  {
    name: 'outbox.retry',
    arrange: async fixture => {
      const { of } = await failedOf(fixture);
      return {
        act: stores => stores.outbox.retry(of.id),
        check: outcome => assertRetried(fixture, of, outcome),
      };
    },
  },
  {
    name: 'outbox.resend',
    arrange: async fixture => {
      const { of, audit } = await failedOf(fixture);
      return {
        act: stores => stores.outbox.resend(of.id, audit, 0),
        check: outcome => assertRetried(fixture, of, outcome),
      };
    },
    late: async fixture => {
      const { of, audit } = await failedOf(fixture);
      return {
        act: stores => stores.outbox.resend(of.id, audit, HOUR_MS),
        told: 'too-soon',
      };
    },
  },
  {
    name: 'outbox.eraseDueSecrets',
    alone: true,
    arrange: async fixture => {
      const of = await sending(fixture);
      await setIn(fixture.database.kysely, 'outbox', { id: of.id }, { secret_erase_at: 1 });
      return {
        act: stores => stores.outbox.eraseDueSecrets(10),
        check: async () => {
          const summary = await summaryOf(fixture.stores, of.id);
          assert.deepEqual([summary.status, summary.secretEraseAtMs], ['failed', null]);
          assert.equal(await fixture.stores.outbox.delivered(of, END), false, 'fenced off');
        },
      };
    },
  },
  {
    name: 'outbox.sendMailsNow',
    alone: true,
    arrange: async fixture => {
      const of = await dueMail(fixture);
      const { outbox } = fixture.stores;
      assert.ok(await outbox.claim(of, HOUR_MS));
      assert.ok(await outbox.retryLater(of, mailEnd('E451'), HOUR_MS));
      return {
        act: stores => stores.outbox.sendMailsNow(10),
        check: async () => {
          const listed = await dueMails(fixture.stores, 10);
          assert.equal(listed.find(({ id }) => id === of.id)?.attempts, 0);
        },
      };
    },
  },
  {
    name: 'outbox.removeOld',
    alone: true,
    arrange: async fixture => {
      const { id } = await dueMail(fixture);
      const { kysely } = fixture.database;
      const { account_id } = await rowOf(kysely, 'outbox', { id });
      const ended = { status: 'failed', finished_at: LONG_AGO_MS, next_attempt_at: null } as const;
      await setIn(kysely, 'outbox', { account_id }, ended);
      return {
        act: async stores => {
          await stores.outbox.removeOld('mail', KEPT_MS, 10);
          await stores.outbox.removeOld('webhook', KEPT_MS, 10);
        },
        check: async () => {
          assert.deepEqual(await kysely.selectFrom('outbox').selectAll().execute(), []);
        },
      };
    },
  },
];
