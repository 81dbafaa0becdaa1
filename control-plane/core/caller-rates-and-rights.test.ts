import assert from 'node:assert/strict';
import type { ApiKeyStore } from '@matting/accounts/keys/api-key-store.ts';
import { refusalOfKey } from '@matting/accounts/keys/key-policy.ts';
import { KeyUses } from '@matting/accounts/keys/key-uses.ts';
import { RateLimits } from '@matting/accounts/rates/rate-limits.ts';
import {
  leaseQuota,
  type QuotaAsk,
  quotaBlockOf,
  RATE_WINDOW_MS,
  type RateKind,
} from '@matting/accounts/rates/rate-windows.ts';
import { isIpInNetworks, parseExactNetwork } from '@matting/http/networks.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { ResultReaders } from './results/result-download.ts';

const test = ava.serial;

const START = 1000 * RATE_WINDOW_MS;

class Quotas {
  now = START;
  statements = 0;
  away = false;
  readonly #rows = new Map<string, ReturnType<typeof leaseQuota>>();

  async nowMs(): Promise<number> {
    this.#count();
    return this.now;
  }

  async lease(accountId: string, kind: RateKind, ask: QuotaAsk) {
    this.#count();
    const lease = leaseQuota(this.#rows.get(kind + accountId), ask, this.now);
    this.#rows.set(kind + accountId, lease);
    return lease;
  }

  #count(): void {
    this.statements += 1;
    if (this.away) throw new ContractError('SERVICE_UNAVAILABLE', 'away');
  }
}

function opened(limits = { submissions: 120, reads: 600 }) {
  const quotas = new Quotas();
  return { quotas, limits: new RateLimits(quotas, limits) };
}

async function takenBy(limits: RateLimits, count: number, kind: RateKind = 'submissions') {
  const takes = Array.from({ length: count }, () => limits.take('acme', kind));
  return (await Promise.all(takes)).filter(state => state.allowed).length;
}

test('rates › one replica keeps the limit to the request, one at a time or all at once', async t => {
  for (const limit of [1, 2, 59, 60, 61, 120, 1000]) {
    const slow = opened({ submissions: limit, reads: 1 }).limits;
    let allowed = 0;
    for (let sent = 0; sent < limit + 5; sent += 1) allowed += await takenBy(slow, 1);
    t.is(allowed, limit);
    const burst = opened({ submissions: limit, reads: 1 }).limits;
    t.is(await takenBy(burst, limit + 5), limit);
  }
});

test('rates › replicas keep it in whatever order, and are a block over it each but the first', async t => {
  for (const limit of [1, 59, 60, 61, 300]) {
    for (const count of [2, 4]) {
      for (const atOnce of [1, 7, limit]) {
        const quotas = new Quotas();
        const own = () => new RateLimits(quotas, { submissions: limit, reads: 1 });
        const replicas = Array.from({ length: count }, own);
        let allowed = 0;
        for (let sent = 0; sent <= limit; sent += atOnce) {
          for (const replica of replicas) allowed += await takenBy(replica, atOnce);
        }
        const most = limit + (count - 1) * quotaBlockOf(limit);
        t.true(allowed >= limit && allowed <= most, `${allowed} of ${limit} by ${count}`);
      }
    }
  }
});

test('rates › statements are issued for blocks, not for requests', async t => {
  const { quotas, limits } = opened({ submissions: 1200, reads: 6000 });
  await takenBy(limits, 20);
  t.is(quotas.statements, 1, 'the clock, once for all accounts and kinds');
  await limits.take('other', 'submissions');
  await takenBy(limits, 100, 'reads');
  t.is(quotas.statements, 1);
  t.is(await takenBy(limits, 1180), 1180);
  t.is(quotas.statements, 1 + 59);
  t.is(await takenBy(limits, 500), 0);
  t.is(quotas.statements, 1 + 60, 'who is refused costs one statement a window');
});

test('rates › give a caller the limit, the rest and the start of the next window', async t => {
  const { quotas, limits } = opened({ submissions: 120, reads: 1 });
  quotas.now = START + 30_500;
  const remaining: number[] = [];
  for (let sent = 0; sent < 122; sent += 1) {
    const state = await limits.take('acme', 'submissions');
    t.is(state.limit, 120);
    t.is(state.windowS, 60);
    t.true(state.resetS <= 30 && state.resetS >= 1, `${state.resetS}`);
    remaining.push(state.remaining);
  }
  const falling = Array.from({ length: 120 }, (_, index) => 119 - index);
  t.deepEqual(remaining, [...falling, 0, 0]);
});

test('rates › show the requests at other replicas with the next lease', async t => {
  const { quotas, limits } = opened({ submissions: 120, reads: 1 });
  await takenBy(new RateLimits(quotas, { submissions: 120, reads: 1 }), 100);
  const first = await limits.take('acme', 'submissions');
  t.is(first.remaining, 119);
  await limits.take('acme', 'submissions');
  const third = await limits.take('acme', 'submissions');
  // The other replica has 100, 2 of them in advance, and leased 2, of which 1 is left.
  t.is(third.remaining, 120 - 104 + 1);
  t.is(await takenBy(limits, 100), 17);
});

test('rates › take a new window from the database, even before the own one has ended', async t => {
  const { quotas, limits } = opened({ submissions: 2, reads: 60 });
  t.is(await takenBy(limits, 5, 'reads'), 5);
  quotas.now = START + RATE_WINDOW_MS;
  // The next lease falls in the new window and loses one block; what the old one spent counts no
  // more.
  t.is(await takenBy(limits, 100, 'reads'), 59);
  quotas.now = START - 3 * RATE_WINDOW_MS;
  t.is(await takenBy(limits, 5), 2);
});

test('rates › a window ends while no request comes', async t => {
  const { quotas, limits } = opened({ submissions: 1, reads: 1 });
  quotas.now = START + RATE_WINDOW_MS - 30;
  t.is(await takenBy(limits, 2), 1);
  quotas.now = START + RATE_WINDOW_MS;
  let state = await limits.take('acme', 'submissions');
  while (!state.allowed) state = await limits.take('acme', 'submissions');
  t.true(state.resetS > 50);
});

test('rates › without the database nothing is let through on credit, and all works again after', async t => {
  const { quotas, limits } = opened({ submissions: 120, reads: 1 });
  const unavailable = (error: unknown) =>
    error instanceof ContractError && error.code === 'SERVICE_UNAVAILABLE';
  quotas.away = true;
  await rejectsWith(t, limits.take('acme', 'submissions'), unavailable);
  quotas.away = false;
  t.is(await takenBy(limits, 2), 2);
  quotas.away = true;
  await rejectsWith(t, limits.take('acme', 'submissions'), unavailable);
  quotas.away = false;
  t.is(await takenBy(limits, 200), 118);
});

const good: readonly (readonly [text: string, stored: string])[] = [
  ['10.0.0.0/8', '10.0.0.0/8'],
  ['0.0.0.0/0', '0.0.0.0/0'],
  ['192.0.2.7', '192.0.2.7/32'],
  ['2001:DB8:0::/32', '2001:db8::/32'],
  ['::/0', '::/0'],
  ['::1', '::1/128'],
  ['2001:db8:0:0:1::7', '2001:db8::1:0:0:7/128'],
  ['fe80::/10', 'fe80::/10'],
];
test('the networks of a key › are taken as they are stored', t => {
  for (const [text, stored] of good) {
    t.is(parseExactNetwork(text), stored);
    t.is(parseExactNetwork(stored), stored);
  }
});

test('the networks of a key › are no others', t => {
  for (const text of [
    ...['', 'x', '10.0.0.1/8', '10.0.0.0/33', '10.0.0.0/', '10.0.0/8', '2001:db8::1/32', '::/129'],
    ...['010.0.0.0/8', '10.0.0.0/8 ', 'fe80::1%eth0', '::ffff:10.0.0.0/104', '1.2.3.4/-1'],
  ]) {
    t.is(parseExactNetwork(text), undefined, text);
  }
});

test('the networks of a key › are compared with addresses of both families, mapped ones too', t => {
  const networks = ['10.0.0.0/8', '2001:db8::/32'];
  for (const inside of ['10.255.0.1', '::ffff:10.1.1.1', '::FFFF:10.1.1.1', '2001:db8::5']) {
    t.true(isIpInNetworks(inside, networks), inside);
  }
  for (const outside of ['11.0.0.1', '::ffff:11.0.0.1', '2001:db9::5', '::a00:1', '', 'x']) {
    t.false(isIpInNetworks(outside, networks), outside);
  }
  t.true(isIpInNetworks('fe80::1%eth0', ['fe80::/10']));
});

test('the rights of a key › are its scopes, from its networks', t => {
  const policy = { scopes: ['read'], networks: ['192.0.2.0/24'] } as const;
  t.is(refusalOfKey(policy, 'read', '192.0.2.9'), undefined);
  t.regex(refusalOfKey(policy, 'submit', '192.0.2.9') ?? '', /scope submit/);
  t.regex(refusalOfKey(policy, 'read', '192.0.3.9') ?? '', /from 192\.0\.3\.9/);
  t.regex(refusalOfKey(policy, 'read', '') ?? '', /an unknown address/);
  t.regex(refusalOfKey({ scopes: [] }, 'read', '192.0.2.9') ?? '', /scope read/);
});

const owner = (apiKeyId: string) => ({ apiKeyId, accountId: 'account' });

function recorder() {
  const written: string[][] = [];
  const state = { broken: false };
  const noteUses: ApiKeyStore['noteUses'] = async uses => {
    if (state.broken) throw new Error('away');
    written.push(uses.map(use => `${use.apiKeyId}${use.byPreviousSecret ? ' old' : ''}`));
    for (const { ageMs } of uses) assert.ok(ageMs >= 0);
  };
  return { written, state, store: { noteUses } };
}

test('uses of keys › a key that is used all the time is written once, until its time is over', async t => {
  const { written, store } = recorder();
  const uses = new KeyUses(store);
  for (let count = 0; count < 100; count += 1) uses.note(owner('a'));
  uses.note({ ...owner('a'), byPreviousSecret: true });
  await uses.write();
  t.deepEqual(written, [['a', 'a old']]);
  uses.note(owner('a'));
  await uses.write();
  t.is(written.length, 1, 'within the minute');
  await uses.write(0);
  t.deepEqual(written[1], ['a']);
  await uses.write(0);
  t.is(written.length, 2, 'nothing new');
  uses.note(owner('a'));
  await uses.stop();
  t.deepEqual(written[2], ['a'], 'what is left at the end');
});

test('uses of keys › that could not be written are written later', async t => {
  const { written, state, store } = recorder();
  const uses = new KeyUses(store);
  const failed: unknown[] = [];
  uses.start(error => failed.push(error));
  uses.note(owner('a'));
  state.broken = true;
  await uses.write();
  t.is(failed.length, 1);
  state.broken = false;
  await uses.write();
  t.deepEqual(written, [['a']]);
  await uses.stop();
});

test('uses of keys › no more keys are noted than may be: the oldest go', async t => {
  const { written, store } = recorder();
  const uses = new KeyUses(store, 2);
  for (const id of ['a', 'b', 'c']) uses.note(owner(id));
  await uses.write();
  t.deepEqual(written, [['b', 'c']]);
});

const BOUNDS = { linkMax: 2, accountMax: 8, max: 16 };

function fill(readers: ResultReaders, accountId: string) {
  for (let job = 0; ; job += 1) {
    try {
      readers.enter({ jobId: `${accountId}-${job}`, accountId });
    } catch (error) {
      return { held: job, code: (error as ContractError).code };
    }
  }
}

test('places of readers › an account alone reads as much as one account may', t => {
  t.deepEqual(fill(new ResultReaders(BOUNDS), 'a'), { held: 8, code: 'RATE_LIMITED' });
});

test('slots of readers › are left free for a new account by accounts that take all they can', t => {
  const readers = new ResultReaders(BOUNDS);
  fill(readers, 'a');
  t.deepEqual(fill(readers, 'b'), { held: 4, code: 'SERVICE_UNAVAILABLE' });
  t.deepEqual(fill(readers, 'c'), { held: 2, code: 'SERVICE_UNAVAILABLE' });
  t.deepEqual(fill(readers, 'd'), { held: 1, code: 'SERVICE_UNAVAILABLE' });
  t.is(readers.open, 15);
  const leave = readers.enter({ jobId: 'e-0', accountId: 'e' });
  leave();
  leave();
  t.is(readers.open, 15);
});

test('places of readers › a link has its own bound, and a place that was left can be taken again', t => {
  const readers = new ResultReaders(BOUNDS);
  const link = { jobId: 'job', accountId: 'a' };
  readers.enter(link);
  const leave = readers.enter(link);
  t.throws(() => readers.enter(link), { code: 'RATE_LIMITED' });
  leave();
  readers.enter(link);
});
