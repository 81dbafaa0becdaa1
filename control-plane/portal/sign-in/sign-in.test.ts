import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import { onDatabases, useTestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import { series, storesOn } from '../test/fixtures.ts';
import { linkUse, newLink, OPERATOR } from '../test/people.ts';
import { KnownBrowsers } from './known-browsers.ts';
import { Passwords } from './passwords.ts';
import { SignIn } from './sign-in.ts';
import { FAILURES_MAX, SignInThrottle, THROTTLE_WINDOW_MS } from './sign-in-throttle.ts';

const test = ava.serial;

const BROWSERS = new KnownBrowsers(Buffer.alloc(32, 3));
const MAIL = 'owner@example.org';
const OWNER = { userId: 'owner', passwordHash: 'a hash' };
const STRANGER = { mail: MAIL, address: '192.0.2.1', browser: undefined, person: undefined };
const PERSON = { language: null, hasMailKey: true, isProven: true };

onDatabases(test, 'the throttle of sign-in', (test, dialect) => {
  const databases = useTestDatabase(test, dialect, { series });
  const replicas: SignInThrottle[] = [];
  let throttle: SignInThrottle;
  let database: Database;
  test.before(async () => {
    for (let count = 0; count < 2; count += 1) {
      database = await databases.open();
      throttle = new SignInThrottle(storesOn(database).signInThrottles, BROWSERS);
      replicas.push(throttle);
    }
  });
  const prepare = async () => {
    await database.kysely.deleteFrom('sign_in_throttles').execute();
  };

  test('counts the attempts of all replicas, however many come at once', async t => {
    await prepare();
    const attempts = Array.from({ length: 4 * FAILURES_MAX.mail }, (_, index) =>
      replicas[index % 2]!.take({ ...STRANGER, address: `192.0.2.${index}` }),
    );
    const waits = await Promise.all(attempts);
    t.is(waits.filter(wait => wait === 0).length, FAILURES_MAX.mail);
    t.true(waits.every(wait => wait <= THROTTLE_WINDOW_MS));
  });

  test('counts an address for whatever mails it tries, and the network of an IPv6 one', async t => {
    await prepare();
    const take = (index: number, network = '2001:db8:1:2') =>
      throttle.take({
        ...STRANGER,
        mail: `nobody-${index}@example.org`,
        address: `${network}::${index.toString(16)}`,
      });
    for (let index = 1; index <= FAILURES_MAX.address; index += 1) {
      t.is(await take(index), 0);
    }
    t.true((await take(99)) > 0);
    t.is(await take(99, '2001:db8:1:3'), 0);
  });

  test('counts a known browser by itself, and gives back what succeeded', async t => {
    await prepare();
    const stranger = { mail: MAIL, address: '192.0.2.1', browser: undefined, person: OWNER };
    for (let count = 0; count < FAILURES_MAX.mail; count += 1) await throttle.take(stranger);
    t.true((await throttle.take(stranger)) > 0);
    const known = { ...stranger, browser: BROWSERS.create(OWNER) };
    for (let count = 0; count < FAILURES_MAX.browser - 1; count += 1) {
      t.is(await throttle.take(known), 0);
    }
    t.is(await throttle.take(known), 0);
    t.true((await throttle.take(known)) > 0);
    await throttle.giveBack(known);
    t.is(await throttle.take(known), 0);
    // A cookie of another person makes no browser known.
    const other = { ...OWNER, userId: 'another' };
    const theirs = { ...stranger, browser: BROWSERS.create(other) };
    t.true((await throttle.take(theirs)) > 0);
    // Nor does a cookie of the former password.
    const before = { ...stranger, browser: BROWSERS.create({ ...OWNER, passwordHash: 'old' }) };
    t.true((await throttle.take(before)) > 0);
  });

  test('counts all known browsers of a person together', async t => {
    await prepare();
    const attempt = () => {
      const browser = BROWSERS.create(OWNER);
      return { mail: MAIL, address: '192.0.2.1', browser, person: OWNER };
    };
    const waits = await Promise.all(
      Array.from({ length: 2 * FAILURES_MAX.browsers }, (_, index) =>
        replicas[index % 2]!.take(attempt()),
      ),
    );
    t.is(waits.filter(wait => wait === 0).length, FAILURES_MAX.browsers);
    // With another password the counts begin again.
    const next = { ...OWNER, passwordHash: 'the next' };
    const own = { ...attempt(), browser: BROWSERS.create(next), person: next };
    t.is(await throttle.take(own), 0);
  });

  test('counts those that succeed, too, once there are very many of one mail', async t => {
    await prepare();
    const attempt = STRANGER;
    let taken = 0;
    while (taken < 2 * FAILURES_MAX.success && (await throttle.take(attempt)) === 0) {
      taken += 1;
      await throttle.giveBack(attempt);
    }
    t.is(taken, FAILURES_MAX.success + FAILURES_MAX.mail);
    // Another mail has its own count.
    t.is(await throttle.take({ ...attempt, mail: 'another@example.org' }), 0);
  });

  test('begins again when the window is over', async t => {
    await prepare();
    const attempt = { mail: MAIL, address: '192.0.2.1', browser: undefined, person: OWNER };
    for (let count = 0; count < FAILURES_MAX.mail; count += 1) await throttle.take(attempt);
    t.true((await throttle.take(attempt)) > 0);
    await database.kysely
      .updateTable('sign_in_throttles')
      .set(eb => ({ window_start: eb('window_start', '-', THROTTLE_WINDOW_MS) }))
      .execute();
    t.is(await throttle.take(attempt), 0);
  });
});

const databases = useTestDatabase(test, 'sqlite', { series });
async function openStores() {
  const stores = storesOn(await databases.open());
  return { stores, throttle: new SignInThrottle(stores.signInThrottles, BROWSERS) };
}

test('a sign-in that is refused › has done the same work, whether the person is known or not', async t => {
  const { stores, throttle } = await openStores();
  const account = await stores.accounts.create('shop');
  assert.ok(account);
  const passwords = new Passwords();
  const link = newLink(account.id, { mail: MAIL });
  await stores.links.create(link, OPERATOR);
  const passwordHash = await passwords.hash('seven green bicycles', 'here');
  await stores.links.use(linkUse(link, { passwordHash }));
  const work: string[] = [];
  const signIn = new SignIn({
    people: {
      findByMail: mail => {
        work.push('a read');
        return stores.people.findByMail(mail);
      },
    },
    sessions: stores.sessions,
    passwords: {
      verify: (password, stored, from) => {
        work.push('a hash');
        return passwords.verify(password, stored, from);
      },
    },
    throttle,
    browsers: BROWSERS,
  });
  const browser = { address: '::1', agent: '', sessionSecret: undefined, known: undefined };
  for (const mail of [MAIL, 'nobody@example.org', 'no mail at all']) {
    work.length = 0;
    const outcome = await signIn.withPassword({ mail, password: 'a wrong one' }, browser);
    t.deepEqual(outcome, { kind: 'refused' });
    t.deepEqual(work, ['a read', 'a hash'], mail);
  }
});

test('takes a slot of hashing as one who is known in a browser of theirs alone', async t => {
  const { stores, throttle } = await openStores();
  const known: (string | undefined)[] = [];
  const signIn = new SignIn({
    people: { findByMail: async mail => ({ ...OWNER, ...PERSON, mail }) },
    sessions: stores.sessions,
    passwords: {
      verify: async (_password, _stored, _from, knownId) => {
        known.push(knownId);
        return false;
      },
    },
    throttle,
    browsers: BROWSERS,
  });
  const browser = { address: '::1', agent: '', sessionSecret: undefined };
  const other = BROWSERS.create({ ...OWNER, userId: 'another' });
  for (const cookie of [undefined, other, BROWSERS.create(OWNER)]) {
    await signIn.withPassword({ mail: MAIL, password: 'x' }, { ...browser, known: cookie });
  }
  t.deepEqual(known, [undefined, undefined, OWNER.userId]);
});
