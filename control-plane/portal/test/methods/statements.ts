import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Exercise, exercisesOf } from '@matting/core/test/exercise.ts';
import {
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  running,
  sha256,
} from '@matting/core/test/fixtures.ts';
import { addTo } from '@matting/database/test/rows.ts';
import { accountOf } from '@matting/test-support/large-tables.ts';
import { ORDERS_A_DAY_MAX } from '../../orders/order-rules.ts';
import { MEMBERS_MAX } from '../../session/session-store.ts';
import { BY_SYSTEM, eventOf, watchedAccount } from '../alerts-fixtures.ts';
import type { Stores } from '../fixtures.ts';
import { personOf } from '../large-tables.ts';
import { newOrder, PROVIDER, paid, paymentOf, placed, refundOf } from '../orders.ts';
import { actorOf, identityEntry, linkUse, newLink, OPERATOR, personOfAccount } from '../people.ts';
import { CHANGING } from './changing.ts';
import { LINKS_READS_MAX, LINKS_WHY, READING } from './reading-methods.ts';

const PEOPLE_WHY = `reads the people of an account, ${MEMBERS_MAX} at most`;
/** Of index and rows, as servers count them. */
const OF_LINKS_AND_PEOPLE = [
  LINKS_READS_MAX + 4 * MEMBERS_MAX,
  `${LINKS_WHY}; ${PEOPLE_WHY}`,
] as const;
const OF_LINKS = [LINKS_READS_MAX, LINKS_WHY] as const;
/** Orders of seven days, which servers count twice. */
const VALID_READS_MAX = 2 * 7 * ORDERS_A_DAY_MAX;

const BOUNDS: Readonly<Record<string, readonly [readsMax: number, why: string]>> = {
  'links.create': OF_LINKS,
  'links.withdraw': OF_LINKS,
  'links.use': OF_LINKS_AND_PEOPLE,
  'people.changeRole': OF_LINKS_AND_PEOPLE,
  'people.removeMember': OF_LINKS_AND_PEOPLE,
  'identities.enter': OF_LINKS_AND_PEOPLE,
  'orders.place': [
    VALID_READS_MAX,
    'reads the orders of an account that were placed within the time they are valid',
  ],
};

const BESIDE: Readonly<Record<string, Exercise<Stores>>> = {
  'alertSettings.setWebhook': async stores => {
    const accountId = await watchedAccount(stores, 5, []);
    await stores.alertSettings.setWebhook(accountId, null, BY_SYSTEM());
    assert.equal(await stores.alertSettings.webhook(accountId), undefined);
  },
  'alertSettings.sendTest': async stores => {
    const accountId = await watchedAccount(stores, 5, []);
    const bounds = { everyMs: 0, messagesMax: 0 };
    const withheld = await stores.alertSettings.sendTest(eventOf(accountId), bounds, BY_SYSTEM());
    assert.deepEqual(withheld, { reason: 'account', isFirst: true });
  },
  'orders.place': async stores => {
    await placed(stores, accountOf(1));
    // More of its latest orders than it may have are pending.
    const refused = await stores.orders.place(newOrder(accountOf(0)), OPERATOR);
    assert.equal(refused.kind, 'too-many-pending');
  },
  'orders.pay': async stores => {
    const order = await placed(stores, await fundedAccount(stores, 0));
    const paid = paymentOf(order);
    const differs = await stores.orders.pay(order.id, { ...paid, amount: 1 }, PROVIDER);
    assert.equal(differs.kind, 'differs');
    await stores.orders.pay(order.id, paid, PROVIDER);
    const again = await stores.orders.pay(order.id, { ...paid, payment: 'another' }, PROVIDER);
    assert.equal(again.kind, 'paid-again');
  },
  'orders.refund': async stores => {
    const account = await fundedAccount(stores, 0);
    const order = await paid(stores, account);
    const { claim } = await running(stores, newJob(account));
    const outcome = await stores.orders.refund(order.id, refundOf(undefined), PROVIDER);
    assert.equal(outcome.kind, 'refunded');
    // The credit that the job held then goes to the refund.
    assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
    assert.equal((await stores.orders.find(order.id))?.unrevoked, 0);
  },
  'links.use': async ({ links, sessions }, { kysely }) => {
    const link = newLink(accountOf(0));
    await links.create(link, OPERATOR);
    const use = linkUse(link);
    assert.equal((await links.use(use)).kind, 'signed-in');
    await addTo(kysely, 'sessions', { id: use.session.id }, { created_at: -1 });
    // The person signs in so often that the oldest session ends.
    for (let count = 0; count < 20; count += 1) {
      const again = newLink(accountOf(0), { mail: link.mail, purpose: 'sign-in' });
      await links.create(again, OPERATOR);
      const by = linkUse(again, { endedIdHash: sha256('none') });
      assert.equal((await links.use(by)).kind, 'signed-in');
    }
    assert.equal(await sessions.find(use.session.idHash), undefined);
    const typed = newLink(accountOf(0), { provesMail: false });
    const proof = newLink(accountOf(1), { mail: typed.mail });
    for (const one of [typed, proof]) {
      await links.create(one, OPERATOR);
      assert.equal((await links.use(linkUse(one))).kind, 'signed-in');
    }
  },
  'people.changeRole': async stores => {
    const self = await personOfAccount(stores, accountOf(0));
    const by = { actor: actorOf(self, 'people.manage'), entryId: randomUUID() };
    const change = () => stores.people.changeRole(accountOf(0), personOf(12), 'viewer', by);
    assert.equal(await change(), 'changed');
    // The answer was lost, and the session has ended since.
    await stores.sessions.end(self.userId, self.session.id);
    assert.equal(await change(), 'changed');
  },
  'identities.enter': async ({ identities }) => {
    const first = identityEntry([{ accountId: accountOf(0), role: 'owner' }]);
    assert.equal((await identities.enter(first)).kind, 'signed-in');
    const grants = [{ accountId: accountOf(0), role: 'viewer' }] as const;
    const changed = { ...identityEntry(grants), subject: first.subject };
    assert.equal((await identities.enter(changed)).kind, 'signed-in');
  },
};

export const EXERCISES: Readonly<Record<string, Exercise<Stores>>> = {
  ...READING,
  ...exercisesOf(CHANGING, { beside: BESIDE, bounds: BOUNDS }),
};
