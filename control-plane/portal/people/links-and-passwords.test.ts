/** Two replicas, at which people enter by links while passwords change. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { fundedAccount } from '@matting/core/test/fixtures.ts';
import { rowsOf, setIn } from '@matting/database/test/rows.ts';
import { onDatabases, useTestDatabase } from '@matting/test-support/database.ts';
import ava from 'ava';
import { MEMBERS_MAX } from '../session/session-store.ts';
import { createSignInThrottleStore } from '../sign-in/sign-in-throttle.ts';
import { onStoresInCi, type Stores, series } from '../test/fixtures.ts';
import {
  actorOf,
  identityEntry,
  linkUse,
  newLink,
  newSession,
  OPERATOR,
  personOfAccount,
} from '../test/people.ts';
import type { LinkUse, NewLink } from './link-store.ts';

const test = ava.serial;

const BY_MAIL = { purpose: 'invitation', provesMail: true } as const;
const SEEN = { purpose: 'invitation', provesMail: false } as const;
const SIGN_IN = { purpose: 'sign-in', provesMail: true } as const;
const KINDS = Object.entries({ BY_MAIL, SEEN, SIGN_IN });

onStoresInCi(test, 'a link', (test, { database, stores, replica }) => {
  const others = replica();
  const mailOf = () => `${randomUUID()}@example.org`;
  const personBy = (mail: string) => stores.people.findByMail(mail);
  const accountsOf = async (userId: string) => {
    const { kysely } = database;
    const rows = await rowsOf(kysely, 'members', { user_id: userId });
    return rows.map(({ account_id }) => account_id).sort();
  };

  async function made(accountId: string, mail: string, kind: Partial<NewLink>) {
    const link = newLink(accountId, { mail, ...kind });
    assert.equal(await stores.links.create(link, OPERATOR), 'created');
    return link;
  }

  async function use(
    accountId: string,
    mail: string,
    kind: Partial<NewLink>,
    by?: Partial<LinkUse>,
  ) {
    const link = await made(accountId, mail, kind);
    const used = linkUse(link, by);
    return { link, used, outcome: await stores.links.use(used) };
  }

  async function somebody(kind: Partial<NewLink>) {
    const [mail, account] = [mailOf(), await fundedAccount(stores, 0)];
    const { used } = await use(account, mail, kind, { passwordHash: 'of before' });
    const { userId, isProven } = (await personBy(mail)) ?? {};
    assert.ok(userId);
    assert.equal(isProven, kind.provesMail);
    return { mail, account, userId, session: used.session };
  }

  test('keeps a person of more accounts than a page lists signed in for each of them', async t => {
    const { userId, session, account } = await somebody(BY_MAIL);
    const { kysely } = database;
    const ids: string[] = [];
    for (let count = 0; count < 100; count += 1) {
      const id = await fundedAccount(stores, 0);
      const membership = { user_id: userId, role: 'member', source: 'invited' } as const;
      await kysely
        .insertInto('members')
        .values({ ...membership, account_id: id, created_at: 1 })
        .execute();
      ids.push(id);
    }
    for (const accountId of [account, ...ids.toSorted().slice(-2)]) {
      t.true(await stores.sessions.switchAccount(session.idHash, accountId));
      const found = await stores.sessions.find(session.idHash);
      t.is(found?.accountId, accountId);
      t.true(found?.memberships.some(one => one.accountId === accountId));
    }
    // The person signs in again and acts for the same account.
    const again = newSession();
    const passwordHash = 'of before';
    const begun = await stores.sessions.begin(userId, again, { passwordHash, endedIdHash: null });
    t.deepEqual(begun, { kind: 'begun', accountId: ids.toSorted().at(-1) });
    t.truthy(await stores.sessions.find(again.idHash));
  });

  for (const [name, kind] of KINDS) {
    test(`${name}: who has a mail that nobody has here is new`, async t => {
      const [mail, account] = [mailOf(), await fundedAccount(stores, 0)];
      const { outcome, used } = await use(account, mail, kind, { passwordHash: 'theirs' });
      const userId = used.newUserId;
      t.deepEqual(outcome, { kind: 'signed-in', accountId: account, userId });
      const person = await personBy(mail);
      t.is(person?.isProven, kind !== SEEN);
      t.is(person?.passwordHash, 'theirs');
      t.deepEqual(await accountsOf(userId), [account]);
    });
  }

  for (const [name, kind] of KINDS.filter(([, { provesMail }]) => provesMail)) {
    test(`${name}: ends what was there of a mail that was never proven`, async t => {
      const before = await somebody(SEEN);
      const account = await fundedAccount(stores, 0);
      const passwordHash = kind === SIGN_IN ? null : 'theirs';
      const { outcome, used } = await use(account, before.mail, kind, { passwordHash });
      const { userId } = before;
      t.deepEqual(outcome, { kind: 'signed-in', accountId: account, userId });
      t.is(await stores.sessions.find(before.session.idHash), undefined);
      const person = await personBy(before.mail);
      t.is(person?.passwordHash, passwordHash);
      t.truthy(person?.isProven);
      t.truthy(await stores.sessions.find(used.session.idHash));
      // The former password no longer begins a session.
      const by = { passwordHash: 'of before', endedIdHash: null };
      t.deepEqual(await stores.sessions.begin(userId, newSession(), by), {
        kind: 'refused',
      });
      // Entries of one millisecond have no order.
      const log = await stores.audit.list(account, { limit: 9 });
      const joined = log.find(({ action }) => action.startsWith('person.joined'));
      t.deepEqual(joined?.after, { role: 'member', mail_proven: true });
    });
  }

  test('BY_MAIL and SEEN: who is proven joins by their password, and by nothing else', async t => {
    for (const kind of [BY_MAIL, SEEN]) {
      const { mail, userId, account, session } = await somebody(BY_MAIL);
      const other = await fundedAccount(stores, 0);
      for (const verifiedHash of [null, 'another', '']) {
        const { outcome } = await use(other, mail, kind, { verifiedHash, passwordHash: 'x' });
        t.deepEqual(outcome, { kind: 'refused' });
      }
      const link = await made(other, mail, kind);
      const right = linkUse(link, { verifiedHash: 'of before', passwordHash: 'x' });
      t.is((await stores.links.use(right)).kind, 'signed-in');
      t.deepEqual(await accountsOf(userId), [account, other].sort());
      t.is((await personBy(mail))?.passwordHash, 'of before');
      t.truthy(await stores.sessions.find(session.idHash));
    }
  });

  test('SIGN_IN: who is proven signs in, and keeps sessions and password', async t => {
    const { mail, userId, session } = await somebody(BY_MAIL);
    const other = await fundedAccount(stores, 0);
    const { outcome } = await use(other, mail, SIGN_IN, { passwordHash: null });
    t.deepEqual(outcome, { kind: 'signed-in', accountId: other, userId });
    t.is((await personBy(mail))?.passwordHash, 'of before');
    t.truthy(await stores.sessions.find(session.idHash));
  });

  test('SEEN: who is not proven joins no other account, even by their password', async t => {
    const { mail, userId, account } = await somebody(SEEN);
    const other = await fundedAccount(stores, 0);
    const by = { verifiedHash: 'of before' };
    t.deepEqual((await use(other, mail, SEEN, by)).outcome, { kind: 'unproven' });
    const wrong = { verifiedHash: 'another' };
    t.deepEqual((await use(other, mail, SEEN, wrong)).outcome, { kind: 'refused' });
    t.deepEqual(await accountsOf(userId), [account]);
    // In the account that made the link, their password lets them in.
    t.is((await use(account, mail, SEEN, by)).outcome.kind, 'signed-in');
    t.false((await personBy(mail))?.isProven);
  });

  test('BY_MAIL: a password that became another since it was shown is not set again', async t => {
    const { mail, account } = await somebody(SEEN);
    const by = { verifiedHash: 'of long ago', passwordHash: 'of long ago' };
    t.deepEqual((await use(account, mail, BY_MAIL, by)).outcome, { kind: 'refused' });
    const person = await personBy(mail);
    t.deepEqual([person?.passwordHash, person?.isProven], ['of before', false]);
    const right = { verifiedHash: 'of before', passwordHash: 'of before' };
    t.is((await use(account, mail, BY_MAIL, right)).outcome.kind, 'signed-in');
    t.truthy((await personBy(mail))?.isProven);
  });

  test('lets nobody in who was disabled', async t => {
    const { mail, userId } = await somebody(BY_MAIL);
    await setIn(database.kysely, 'users', { id: userId }, { disabled_at: 1 });
    for (const [, kind] of KINDS) {
      const by = { verifiedHash: 'of before' };
      const { outcome } = await use(await fundedAccount(stores, 0), mail, kind, by);
      t.deepEqual(outcome, { kind: 'refused' });
    }
  });

  test('knows nobody of an identity provider by the mail that it claims', async t => {
    const mail = mailOf();
    const account = await fundedAccount(stores, 0);
    const { kysely } = database;
    const userId = randomUUID();
    const none = { mail_key: null, password_hash: null, language: null, disabled_at: null };
    await kysely
      .insertInto('users')
      .values({ id: userId, mail, created_at: 1, ...none })
      .execute();
    for (const [, kind] of KINDS) {
      const { outcome } = await use(account, mailOf(), kind);
      t.not(outcome.kind === 'signed-in' && outcome.userId, userId);
    }
    t.deepEqual(await accountsOf(userId), []);
  });

  test('makes one person of a mail that is used at two replicas at once', async t => {
    const mail = mailOf();
    const accounts = await Promise.all([fundedAccount(stores, 0), fundedAccount(stores, 0)]);
    const [seen, proof] = [
      await made(accounts[0], mail, SEEN),
      await made(accounts[1], mail, SIGN_IN),
    ];
    const uses = [linkUse(seen), linkUse(proof, { passwordHash: null })] as const;
    const outcomes = await Promise.all([stores.links.use(uses[0]), others.links.use(uses[1])]);
    t.is(outcomes[1].kind, 'signed-in');
    const person = await personBy(mail);
    assert.ok(person?.isProven);
    // Whichever came first, no password remains from the link that another person saw.
    t.is(person.passwordHash, null);
    if (outcomes[0].kind === 'signed-in') {
      t.is(await stores.sessions.find(uses[0].session.idHash), undefined);
    } else t.deepEqual(outcomes[0], { kind: 'refused' });
  });

  test('lets no more people in than an account may have, at two replicas at once', async t => {
    const account = await fundedAccount(stores, 0);
    const rows = Array.from({ length: MEMBERS_MAX - 2 }, (_, index) => ({
      account_id: account,
      user_id: `member-${index}`,
      role: 'viewer' as const,
      source: 'invited' as const,
      created_at: 1,
    }));
    await database.kysely.insertInto('members').values(rows).execute();
    const links = await Promise.all(
      Array.from({ length: 6 }, () => made(account, mailOf(), SIGN_IN)),
    );
    const outcomes = await Promise.all(
      links.map((link, index) => (index % 2 === 0 ? stores : others).links.use(linkUse(link))),
    );
    const kinds = outcomes.map(({ kind }) => kind).sort();
    t.deepEqual(kinds, [...Array(4).fill('account-full'), 'signed-in', 'signed-in']);
  });

  test('frees a mail that nobody proved with its last membership, and no proven one', async t => {
    const by = () => ({ actor: OPERATOR, entryId: randomUUID() });
    for (const kind of [SEEN, BY_MAIL]) {
      const { mail, userId, account } = await somebody(kind);
      await personOfAccount(stores, account, 'owner');
      t.is(await stores.people.removeMember(account, userId, by()), 'changed');
      const left = await personBy(mail);
      t.is(left?.userId, kind === SEEN ? undefined : userId);
      const { outcome } = await use(await fundedAccount(stores, 0), mail, SEEN);
      t.is(outcome.kind, kind === SEEN ? 'signed-in' : 'refused');
    }
  });

  test('ends the links of who is removed or is no owner any more', async t => {
    for (const role of [null, 'member'] as const) {
      const account = await fundedAccount(stores, 0);
      const boss = await personOfAccount(stores, account, 'owner');
      const owner = await personOfAccount(stores, account, 'owner');
      const { userId, mail } = owner;
      const links = {
        theirs: newLink(account),
        'for their mail': newLink(account, { ...SIGN_IN, mail: mail.toUpperCase() }),
        'of another': newLink(account),
      };
      await stores.links.create(links.theirs, actorOf(owner, 'people.manage'));
      await stores.links.create(links['for their mail'], OPERATOR);
      await stores.links.create(links['of another'], actorOf(boss, 'people.manage'));
      const elsewhere = newLink(await fundedAccount(stores, 0), { mail });
      await stores.links.create(elsewhere, OPERATOR);
      const by = { actor: OPERATOR, entryId: randomUUID() };
      const change =
        role === null
          ? await stores.people.removeMember(account, userId, by)
          : await stores.people.changeRole(account, userId, role, by);
      t.is(change, 'changed');
      const found = async ({ tokenHash, purpose }: NewLink) =>
        (await stores.links.find(tokenHash, purpose)) !== undefined;
      t.false(await found(links.theirs));
      t.false(await found(links['for their mail']));
      t.truthy(await found(links['of another']));
      t.truthy(await found(elsewhere));
      const log = await stores.audit.list(account, { limit: 50 });
      t.deepEqual(
        log.flatMap(({ after }) => after?.links_ended ?? []),
        [2],
      );
    }
  });

  test('ends the links of who lost the group that made them owner', async t => {
    for (const role of [undefined, 'viewer'] as const) {
      const account = await fundedAccount(stores, 0);
      const entry = identityEntry([{ accountId: account, role: 'owner' }]);
      t.is((await stores.identities.enter(entry)).kind, 'signed-in');
      const link = newLink(account);
      const { newUserId: userId, mail, session } = entry;
      await stores.links.create(link, actorOf({ userId, mail, session }, 'people.manage'));
      const grants = role === undefined ? [] : [{ accountId: account, role }];
      await stores.identities.enter({ ...identityEntry(grants), subject: entry.subject });
      t.is(await stores.links.find(link.tokenHash, 'invitation'), undefined);
    }
  });

  test('lists sign-in links beside invitations, and withdraws both', async t => {
    const account = await fundedAccount(stores, 0);
    const links = [await made(account, mailOf(), SEEN), await made(account, mailOf(), SIGN_IN)];
    const listed = await stores.links.listOpen(account);
    t.deepEqual(
      listed.map(({ id }) => id),
      links.map(({ id }) => id),
    );
    for (const { id } of links) {
      const by = { actor: OPERATOR, entryId: randomUUID() };
      t.truthy(await stores.links.withdraw(account, id, by));
      t.false(await stores.links.withdraw(account, id, by));
    }
    t.deepEqual(await stores.links.listOpen(account), []);
    const log = await stores.audit.list(account, { limit: 9 });
    const actions = log.map(one => one.action).filter(one => one.endsWith('withdrawn'));
    t.deepEqual(actions.sort(), ['invitation.withdrawn', 'sign-in-link.withdrawn']);
  });
});

const ROUNDS = 12;

onStoresInCi(test, 'a password that changes', (test, { stores, replica }) => {
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
    const set = (passwordHash: string, verifiedHash: string | null, more = {}) => ({
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
      // One of them set the password, which ended the other's session.
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
    const log = await stores.audit.list(accountId, { limit: 9 });
    t.true(log.some(({ address }) => address === '?nknown,????4711'));
  });
});

const key = (hash: string, failuresMax: number) => ({ hash: hash.repeat(64), failuresMax });

onDatabases(
  test,
  'rows of the throttle',
  (test, dialect) => {
    const databases = useTestDatabase(test, dialect, { series });

    test('are made by attempts that are counted, and by none that is refused', async t => {
      const database = await databases.open();
      const store = createSignInThrottleStore(database);
      const rows = async () => {
        const read = database.kysely.selectFrom('sign_in_throttles').selectAll();
        const all = await read.orderBy('key_hash').execute();
        return all.map(row => [row.key_hash, row.failures]);
      };
      const stranger = key('a', 1);
      t.is(await store.take([stranger]), 0);
      for (const mail of ['b', 'c', 'd']) {
        t.true((await store.take([key(mail, 10), stranger])) > 0);
      }
      t.deepEqual(await rows(), [[stranger.hash, 1]]);
      const two = [key('e', 10), key('f', 10)];
      t.deepEqual([await store.take(two), await store.take(two)], [0, 0]);
      const expected = [[stranger.hash, 1], ...two.map(({ hash }) => [hash, 2])];
      t.deepEqual(await rows(), expected);
    });
  },
  { serverInCi: true },
);
