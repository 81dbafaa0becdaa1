/** The quota that replicas share, and replicas that spend it. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { at } from '../../../../test/support/at.ts';
import {
  type QuotaAsk,
  quotaBlockOf,
  quotaWindowStartMs,
  RATE_WINDOW_MS,
} from '../../../src/domain/rate-quota.ts';
import { RateLimits } from '../../../src/services/rate-limits.ts';
import { onStores } from '../fixtures.ts';

const test = ava.serial;

onStores(test, 'rate quotas', (test, { database, stores, replica }) => {
  /** Another replica. */
  const others = replica();

  /** What `work` finds within one window: again where it met the end of one. */
  async function withinOneWindow<T>(work: (windowStartMs: number) => Promise<T>): Promise<T> {
    for (;;) {
      const windowStartMs = quotaWindowStartMs(await stores.rateQuotas.nowMs());
      let found: T | undefined;
      let failure: unknown;
      try {
        found = await work(windowStartMs);
      } catch (error) {
        failure = error;
      }
      if (quotaWindowStartMs(await stores.rateQuotas.nowMs()) !== windowStartMs) continue;
      if (failure !== undefined) throw failure;
      return found as T;
    }
  }

  const asked = (windowStartMs: number, more: Partial<QuotaAsk> = {}): QuotaAsk => ({
    limit: 100,
    block: 30,
    advance: 0,
    windowStartMs,
    ...more,
  });

  test('are leased in blocks up to the limit, each account and kind on its own', t =>
    withinOneWindow(async start => {
      const [one, two] = [randomUUID(), randomUUID()];
      const granted: number[] = [];
      for (const from of [stores, others, stores, others, stores]) {
        granted.push((await from.rateQuotas.lease(one, 'reads', asked(start))).granted);
      }
      t.deepEqual(granted, [30, 30, 30, 10, 0]);
      t.is((await stores.rateQuotas.lease(one, 'submissions', asked(start))).granted, 30);
      const advance = await stores.rateQuotas.lease(two, 'reads', asked(start, { advance: 80 }));
      t.deepEqual(advance, { windowStartMs: start, leased: 100, granted: 20 });
    }));

  test('are never leased twice, however many ask at once', t =>
    withinOneWindow(async start => {
      const account = randomUUID();
      const asks = Array.from({ length: 40 }, (_, index) =>
        (index % 2 === 0 ? stores : others).rateQuotas.lease(account, 'submissions', asked(start)),
      );
      const leases = await Promise.all(asks);
      const granted = leases.reduce((sum, lease) => sum + lease.granted, 0);
      t.is(granted, 100);
    }));

  test('of a window that is over count for nothing', async t => {
    const account = randomUUID();
    await stores.rateQuotas.lease(account, 'reads', asked(0, { block: 100 }));
    await database.kysely
      .updateTable('rate_quotas')
      .set({ window_start: quotaWindowStartMs(Date.now()) - 5 * RATE_WINDOW_MS })
      .where('account_id', '=', account)
      .execute();
    const { granted, leased } = await stores.rateQuotas.lease(
      account,
      'reads',
      asked(0, { advance: 50 }),
    );
    t.deepEqual({ granted, leased }, { granted: 30, leased: 30 });
    const rows = database.kysely.selectFrom('rate_quotas').select('kind');
    t.is((await rows.where('account_id', '=', account).execute()).length, 1);
  });

  test('go by the clock of the database', async t => {
    const [first, second] = [await stores.rateQuotas.nowMs(), await others.rateQuotas.nowMs()];
    t.truthy(Number.isSafeInteger(first) && second >= first, `${first} ${second}`);
  });

  test('are spent by two replicas to the limit and one block beyond at most', t =>
    withinOneWindow(async () => {
      const account = randomUUID();
      const limit = 120;
      const limits = { submissions: limit, reads: limit };
      const replicas = [stores, others].map(one => new RateLimits(one.rateQuotas, limits));
      const states = await Promise.all(
        Array.from({ length: 400 }, (_, index) =>
          at(replicas, index % 2).take(account, 'submissions'),
        ),
      );
      const allowed = states.filter(state => state.allowed).length;
      const block = quotaBlockOf(limit);
      t.true(allowed >= limit && allowed <= limit + block, `${allowed} of ${limit}`);
    }));
});
