/**
 * The methods that change API keys, and what they have counted; and those that change orders, whose
 * lost answers grant nothing twice and take nothing twice.
 */
import assert from 'node:assert/strict';
import type {
  CancelOutcome,
  PayOutcome,
  PlaceOutcome,
  RefundOutcome,
} from '../../portal/orders/order-store.ts';
import {
  actionsOf,
  movements,
  newOrder,
  OPERATOR,
  PROVIDER,
  paid,
  paymentOf,
  placed,
  refundOf,
} from '../../portal/test/orders.ts';
import type { Stores } from '../../test/every-store.ts';
import type { SubmitOutcome } from '../jobs/job-transactions.ts';
import type { ApiKey, MadeKey } from '../keys/api-key-store.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { fundedAccount, IMAGE_FAULT, LIMITS, newJob, running } from './fixtures.ts';

const CAP = { credits: 5, period: 'month' } as const;

async function cappedKey({ stores, account: accountOf }: Fixture) {
  const account = await accountOf(5);
  const { key } = await stores.apiKeys.create(account, 'key', { policy: { cap: CAP } });
  const used = async () => (await stores.apiKeys.find(key.id))?.capUse?.used;
  return { account, key, used };
}

/** The entries of the account's log, newest first. */
async function logOf(stores: Stores, accountId: string): Promise<string[]> {
  return (await stores.audit.list(accountId, { limit: 50 })).map(({ action }) => action);
}

async function paidOrder({ stores }: Fixture) {
  const account = await fundedAccount(stores, 0);
  return { account, order: await paid(stores, account) };
}

export const CHANGING_SALES: readonly ChangingMethod[] = [
  {
    name: 'jobs.submit',
    which: 'of a key with a cap',
    arrange: async fixture => {
      const { account, key, used } = await cappedKey(fixture);
      const job = newJob(account, { apiKeyId: key.id, keyHasCap: true });
      return {
        act: by => by.jobs.submit(job, LIMITS),
        check: async outcome => {
          assert.equal((outcome as SubmitOutcome).kind, 'created');
          assert.equal(await used(), 1, 'counted once');
        },
      };
    },
  },
  {
    name: 'jobs.fail',
    which: 'of a key with a cap',
    arrange: async fixture => {
      const { account, key, used } = await cappedKey(fixture);
      const job = () => newJob(account, { apiKeyId: key.id, keyHasCap: true });
      await running(fixture.stores, job());
      const { claim } = await running(fixture.stores, job());
      assert.equal(await used(), 2);
      return {
        act: by => by.jobs.fail(claim, IMAGE_FAULT),
        check: async outcome => {
          assert.equal(outcome, true);
          assert.equal(await used(), 1, 'given back once');
        },
      };
    },
  },
  {
    name: 'apiKeys.noteUses',
    arrange: async ({ stores, account }) => {
      const { key } = await stores.apiKeys.create(await account(0), 'key');
      const use = { apiKeyId: key.id, byPreviousSecret: false };
      return {
        act: by => by.apiKeys.noteUses([{ ...use, ageMs: 1000 }]),
        check: async () => {
          const noted = (await stores.apiKeys.find(key.id))?.lastUsedAtMs ?? 0;
          assert.ok(noted > 0);
          await stores.apiKeys.noteUses([{ ...use, ageMs: 3_600_000 }]);
          assert.equal((await stores.apiKeys.find(key.id))?.lastUsedAtMs, noted, 'never earlier');
        },
      };
    },
  },
  {
    name: 'apiKeys.createBy',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const asked = { actor: OPERATOR, aliveMax: 1000, everMax: 1000 };
      return {
        act: by => by.apiKeys.createBy(account, 'key', asked),
        check: async outcome => {
          assert.notEqual(outcome, 'too-many');
          const keys = await stores.apiKeys.list(account);
          assert.equal((await logOf(stores, account)).length, keys.length, 'one entry a key');
        },
      };
    },
  },
  {
    name: 'apiKeys.rotate',
    arrange: async ({ stores, account }) => {
      const accountId = await account(0);
      const { key, token } = await stores.apiKeys.create(accountId, 'key');
      const by = { accountId, actor: OPERATOR, overlapMs: 3_600_000 };
      return {
        act: faulty => faulty.apiKeys.rotate(key.id, by),
        check: async (outcome, repeated) => {
          const { token: next } = outcome as MadeKey;
          assert.ok('apiKeyId' in Object(await stores.apiKeys.authenticate(next)));
          // Who had to ask twice has rotated twice at most: the oldest secret may have ended.
          const old = await stores.apiKeys.authenticate(token);
          assert.ok(repeated || 'byPreviousSecret' in Object(old), 'the old secret goes on');
          const entries = await logOf(stores, accountId);
          assert.ok(entries.length <= (repeated ? 2 : 1) && entries[0] === 'key.rotated');
        },
      };
    },
  },
  {
    name: 'apiKeys.change',
    arrange: async fixture => {
      const { stores } = fixture;
      const { account: accountId, key } = await cappedKey(fixture);
      const job = newJob(accountId, { apiKeyId: key.id, keyHasCap: true });
      await running(stores, job);
      const policy = { cap: { credits: 9, period: 'day' }, scopes: ['read'] } as const;
      return {
        act: faulty =>
          faulty.apiKeys.change(key.id, { accountId, actor: OPERATOR }, { name: 'b', policy }),
        check: async outcome => {
          const { name, policy: made, capUse } = outcome as ApiKey;
          assert.deepEqual([name, made, capUse?.used], ['b', policy, 0]);
          assert.deepEqual(await logOf(stores, accountId), ['key.changed']);
        },
      };
    },
  },
  {
    name: 'apiKeys.revoke',
    which: 'that is logged',
    arrange: async ({ stores, account }) => {
      const accountId = await account(0);
      const { key } = await stores.apiKeys.create(accountId, 'key');
      return {
        act: faulty => faulty.apiKeys.revoke(key.id, { accountId, actor: OPERATOR }),
        check: async outcome => {
          assert.equal((outcome as ApiKey).state, 'revoked');
          assert.deepEqual(await logOf(stores, accountId), ['key.revoked']);
        },
      };
    },
  },
  {
    name: 'orders.place',
    arrange: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
      const order = newOrder(account);
      return {
        act: by => by.orders.place(order, OPERATOR),
        check: async outcome => {
          assert.match((outcome as PlaceOutcome).kind, /^(already-)?placed$/);
          const orders = await stores.orders.list({ accountId: account, limit: 10 });
          assert.deepEqual(
            [orders.length, orders[0]?.id, orders[0]?.state],
            [1, order.id, 'pending'],
          );
          assert.deepEqual(await actionsOf(stores, account), ['order.placed']);
        },
      };
    },
    again: 'already-placed',
  },
  {
    name: 'orders.cancel',
    arrange: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
      const { id } = await placed(stores, account);
      return {
        act: by => by.orders.cancel(account, id, OPERATOR),
        check: async outcome => {
          assert.equal((outcome as CancelOutcome).kind, 'cancelled');
          assert.equal((await stores.orders.find(id))?.state, 'cancelled');
          assert.deepEqual(await actionsOf(stores, account), ['order.cancelled', 'order.placed']);
        },
      };
    },
    late: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
      const { id } = await paid(stores, account);
      const act = async (by: Stores) => (await by.orders.cancel(account, id, OPERATOR)).kind;
      return { act, told: 'not-pending' };
    },
  },
  /** With a refund that waited for it: all of it commits as one. */
  {
    name: 'orders.pay',
    arrange: async ({ stores, database }) => {
      const account = await fundedAccount(stores, 0);
      const order = await placed(stores, account);
      await stores.orders.refund(order.id, refundOf(1000), PROVIDER);
      return {
        act: by => by.orders.pay(order.id, paymentOf(order), PROVIDER),
        check: async outcome => {
          assert.match((outcome as PayOutcome).kind, /^(already-)?paid$/);
          assert.deepEqual(await movements(database, account), [
            `grant order:${order.id} 2500`,
            `revoke refund:${order.id}:refund-1 500`,
          ]);
          const { payments } = await stores.orders.details(order.id);
          assert.deepEqual(
            payments.map(payment => payment.outcome),
            ['accepted'],
          );
          const actions = ['order.paid', 'order.placed', 'order.refund_waits', 'order.refunded'];
          assert.deepEqual(await actionsOf(stores, account), actions);
        },
      };
    },
    again: 'already-paid',
  },
  {
    name: 'orders.refund',
    arrange: async fixture => {
      const { account, order } = await paidOrder(fixture);
      const { stores, database } = fixture;
      return {
        act: by => by.orders.refund(order.id, refundOf(1001), PROVIDER),
        check: async outcome => {
          assert.match((outcome as RefundOutcome).kind, /^(already-)?refunded$/);
          const { refunded, revoked } = (await stores.orders.find(order.id)) ?? {};
          assert.deepEqual([refunded, revoked], [1001, 501]);
          assert.deepEqual(await movements(database, account), [
            `grant order:${order.id} 2500`,
            `revoke refund:${order.id}:refund-1 501`,
          ]);
          const actions = ['order.paid', 'order.placed', 'order.refunded'];
          assert.deepEqual(await actionsOf(stores, account), actions);
        },
      };
    },
    again: 'already-refunded',
  },
];
