/** A password that is set or used while it becomes another, at two replicas. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import type { PasswordSet } from '../../../src/store/people/people-store.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { fundedAccount, onStores } from '../fixtures.ts';
import { actorOf, linkUse, newLink, newSession, OPERATOR } from '../people.ts';

const test = ava.serial;

const ROUNDS = 12;

onStores(test, 'a password that changes', (test, { stores, replica }) => {
  /** Another replica. */
  const others = replica();
  const by = () => ({ actor: OPERATOR, entryId: randomUUID() });
  const begin = (on: Stores, userId: string, passwordHash: string, session = newSession()) =>
    on.sessions.begin(userId, session, { passwordHash, endedIdHash: null });

  async function somebody(method: 'password' | 'link' = 'password') {
    const accountId = await fundedAccount(stores, 0);
    const link = newLink(accountId);
    await stores.links.create(link, OPERATOR);
    const session = newSession({ method });
    const use = linkUse(link, { session, passwordHash: 'old' });
    await stores.links.use(use);
    const set = (passwordHash: string, verifiedHash: string | null, more = {}): PasswordSet => ({
      userId: use.newUserId,
      passwordHash,
      verifiedHash,
      sessionId: session.id,
      accountId,
      ...more,
    });
    return { userId: use.newUserId, session, set };
  }

  test('lets nobody in by the one before it, whoever verified it in time', async t => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const { userId, session, set } = await somebody();
      const thieves = Array.from({ length: 4 }, () => newSession());
      const begun = thieves.map((one, n) => begin(n % 2 ? stores : others, userId, 'old', one));
      const changed = stores.people.setPassword(set('new', 'old'), by());
      t.is(await changed, 'set');
      await Promise.all(begun);
      for (const { idHash } of thieves) t.is(await stores.sessions.find(idHash), undefined);
      t.truthy(await stores.sessions.find(session.idHash));
      t.deepEqual(await begin(others, userId, 'old'), { kind: 'refused' });
      t.is((await begin(others, userId, 'new')).kind, 'begun');
    }
  });

  test('is set where the one that was verified still stands', async t => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const { userId, set } = await somebody();
      const thief = newSession();
      await begin(others, userId, 'old', thief);
      const theirs = set('of the thief', 'old', { sessionId: thief.id });
      const outcomes = await Promise.all([
        stores.people.setPassword(set('new', 'old'), by()),
        others.people.setPassword(theirs, by()),
      ]);
      // One of them, and the other's session has ended with it.
      t.deepEqual([...outcomes].sort(), ['overtaken', 'set']);
      const person = await stores.people.find(userId);
      t.is(person?.passwordHash, outcomes[0] === 'set' ? 'new' : 'of the thief');
    }
  });

  test('is not set by a session that has ended', async t => {
    const { userId, session, set } = await somebody();
    await stores.sessions.end(userId, session.id);
    t.is(await stores.people.setPassword(set('new', 'old'), by()), 'overtaken');
    t.is((await stores.people.find(userId))?.passwordHash, 'old');
  });

  test('is set without the one before by the session of a link, once', async t => {
    const { userId, session, set } = await somebody('link');
    const outcomes = await Promise.all([
      stores.people.setPassword(set('first', null), by()),
      others.people.setPassword(set('second', null), by()),
    ]);
    t.deepEqual([...outcomes].sort(), ['overtaken', 'set']);
    const stored = (await stores.people.find(userId))?.passwordHash ?? '';
    t.is(await stores.people.setPassword(set('third', null), by()), 'overtaken');
    t.is((await stores.sessions.find(session.idHash))?.method, 'password');
    t.is(await stores.people.setPassword(set('third', stored), by()), 'set');
    const other = await somebody('password');
    t.is(await stores.people.setPassword(other.set('x', null), by()), 'overtaken');
  });

  test('takes any text for the address that it came from', async t => {
    const { userId, session, set } = await somebody();
    const actor = {
      ...actorOf({ userId, mail: 'x', session }, 'self'),
      address: 'ünknown, 客户 4711',
    };
    const entryId = randomUUID();
    t.is(await stores.people.setPassword(set('new', 'old'), { actor, entryId }), 'set');
    const { accountId } = set('', null);
    const [entry] = await stores.audit.list(accountId, { limit: 1 });
    t.is(entry?.address, '?nknown,????4711');
  });
});
