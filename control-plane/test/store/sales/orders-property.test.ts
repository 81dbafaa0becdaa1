/**
 * Notifications in any order, any number of times, at two replicas at once: an order ends as it
 * does when each comes once and in turn, and no credit appears or is lost.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { at } from '../../../../test/support/at.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import { assertBalanced, fundedAccount, onStores } from '../fixtures.ts';
import { PROVIDER, paymentOf, placed, refundOf } from '../orders.ts';

const test = ava.serial;

const RUNS = 25;

type Told = 'pay' | 'cancel' | 'a' | 'b';

interface Case {
  readonly credits: number;
  readonly price: number;
  /** Amounts of the refunds a and b: no more than the price together. */
  readonly refunds: Readonly<Record<'a' | 'b', number>>;
  /** What is told of in turn, and what of it at the same time. */
  readonly steps: readonly (readonly Told[])[];
}

const cases: fc.Arbitrary<Case> = fc
  .record({
    credits: fc.integer({ min: 1, max: 5000 }),
    price: fc.integer({ min: 2, max: 5000 }),
    first: fc.double({ min: 0, max: 1, noNaN: true }),
    second: fc.double({ min: 0, max: 1, noNaN: true }),
    extra: fc.array(fc.constantFrom<Told>('pay', 'cancel', 'a', 'b'), { maxLength: 4 }),
    sizes: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 8, maxLength: 8 }),
    order: fc.infiniteStream(fc.nat(1000)),
  })
  .map(({ credits, price, first, second, extra, sizes, order }) => {
    const a = 1 + Math.floor(first * (price - 2));
    const b = 1 + Math.floor(second * (price - a - 1));
    const told: Told[] = ['pay', 'a', 'b', ...extra];
    const shuffled: Told[] = [];
    for (const pick of order) {
      if (told.length === 0) break;
      shuffled.push(...told.splice(pick % told.length, 1));
    }
    const steps = sizes.map(size => shuffled.splice(0, size)).filter(step => step.length > 0);
    return { credits, price, refunds: { a, b }, steps };
  });

onStores(test, 'notifications', (test, { stores, replica }) => {
  const replicas = [stores, replica()];

  test('end the same in any order', async t => {
    // What fails in a property throws, so that the shortest case is told of and not the first.
    const property = fc.asyncProperty(cases, async ({ credits, price, refunds, steps }) => {
      const account = await fundedAccount(stores, 0);
      const order = await placed(stores, account, { credits, price });
      const tell = (told: Told, index: number): Promise<unknown> => {
        const { orders } = at(replicas, index % 2);
        if (told === 'pay') return orders.pay(order.id, paymentOf(order), PROVIDER);
        if (told === 'cancel') return orders.cancel(account, order.id, PROVIDER);
        return orders.refund(order.id, refundOf(refunds[told], told), PROVIDER);
      };
      for (const step of steps) await Promise.all(step.map(tell));
      const ended = await stores.orders.find(order.id);
      const paidBack = refunds.a + refunds.b;
      const kept = Math.floor(((price - paidBack) * credits) / price);
      assert.equal(ended?.stored, 'paid');
      assert.equal(ended.refunded, paidBack);
      assert.deepEqual([ended.revoked, ended.unrevoked], [credits - kept, 0]);
      const balances = await stores.ledger.balances(account);
      assert.deepEqual(balances, { available: kept, reserved: 0 });
      await assertBalanced(stores, account);
    });
    await t.notThrowsAsync(fc.assert(property, { numRuns: RUNS }));
  });
});
