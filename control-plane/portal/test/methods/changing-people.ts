import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { ChangingMethod } from '@matting/core/test/changing-methods.ts';
import { actionsOf, fundedAccount, sha256 } from '@matting/core/test/fixtures.ts';
import type { Database } from '@matting/database/database.ts';
import { addTo, removeFrom, rowOf, setIn } from '@matting/database/test/rows.ts';
import type { Stores } from '../fixtures.ts';
import {
  identityEntry,
  linkUse,
  newLink,
  newSession,
  OPERATOR,
  type Person,
  personOfAccount,
} from '../people.ts';

function ending(
  name: 'end' | 'endOthers',
  call: (stores: Stores, userId: string, sessionId: string) => Promise<unknown>,
): ChangingMethod<Stores> {
  return {
    name: `sessions.${name}`,
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const { session, userId } = await personOfAccount(stores, account);
      return {
        act: faulty => call(faulty, userId, session.id),
        check: async () => {
          assert.equal(await stores.sessions.find(session.idHash), undefined);
        },
      };
    },
  };
}

function ofMember(
  name: 'changeRole' | 'removeMember' | 'setPassword' | 'setLanguage',
  call: (
    stores: Stores,
    of: Person & { accountId: string; by: Parameters<Stores['people']['removeMember']>[2] },
  ) => Promise<unknown>,
  check: (stores: Stores, of: Person & { accountId: string }) => Promise<void>,
): ChangingMethod<Stores> {
  return {
    name: `people.${name}`,
    arrange: async ({ stores, account }) => {
      const accountId = await account(0);
      await personOfAccount(stores, accountId);
      const person = await personOfAccount(stores, accountId);
      const of = { ...person, accountId, by: { actor: OPERATOR, entryId: randomUUID() } };
      return {
        act: faulty => call(faulty, of),
        check: async outcome => {
          const expected = { setPassword: 'set', setLanguage: undefined }[name as string];
          assert.equal(outcome, name.startsWith('set') ? expected : 'changed');
          await check(stores, of);
          if (name === 'setLanguage') return;
          const entries = await stores.audit.list(accountId, { limit: 50 });
          assert.equal(entries.filter(({ id }) => id === of.by.entryId).length, 1);
        },
      };
    },
  };
}

const KEY = { hash: 'a'.repeat(64), failuresMax: 100 };

function removing(
  name: string,
  table:
    | 'sessions'
    | 'one_time_links'
    | 'sign_in_throttles'
    | 'audit_entries'
    | 'ended_operator_sessions',
  call: (stores: Stores) => Promise<number>,
): ChangingMethod<Stores> {
  return {
    name,
    alone: true,
    arrange: async ({ stores, database: { kysely } }) => {
      const account = await fundedAccount(stores, 0);
      await personOfAccount(stores, account);
      await stores.signInThrottles.take([KEY]);
      await stores.endedOperatorSessions.add(sha256(account), 1);
      const its = { account_id: account };
      await setIn(kysely, 'sessions', its, { expires_at: 1 });
      await setIn(kysely, 'one_time_links', its, { expires_at: 1 });
      await setIn(kysely, 'sign_in_throttles', {}, { window_start: 1 });
      await setIn(kysely, 'audit_entries', its, { created_at: 1 });
      return {
        act: faulty => call(faulty),
        check: async () => {
          assert.deepEqual(await kysely.selectFrom(table).selectAll().execute(), []);
        },
      };
    },
  };
}

function throttleOf({ kysely }: Database, hash: string) {
  return rowOf(kysely, 'sign_in_throttles', { key_hash: hash });
}

export const CHANGING_PEOPLE: readonly ChangingMethod<Stores>[] = [
  {
    name: 'links.create',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const id = randomUUID();
      const letter = { id, accountId: account, recipient: 'a@b.example', subject: 'x', body: 'y' };
      const link = newLink(account, { letter });
      return {
        act: by => by.links.create(link, OPERATOR),
        check: async outcome => {
          assert.equal(outcome, 'created');
          assert.equal((await stores.links.listOpen(account)).length, 1);
          assert.deepEqual(await actionsOf(stores, account), ['person.invited']);
        },
      };
    },
  },
  {
    name: 'links.use',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const link = newLink(account);
      await stores.links.create(link, OPERATOR);
      const use = linkUse(link);
      return {
        act: by => by.links.use(use),
        check: async outcome => {
          const accountId = account;
          assert.deepEqual(outcome, { kind: 'signed-in', accountId, userId: use.newUserId });
          assert.equal((await stores.sessions.find(use.session.idHash))?.mail, link.mail);
          const actions = ['person.invited', 'person.joined'];
          assert.deepEqual(await actionsOf(stores, account), actions);
          assert.deepEqual(await stores.links.use(linkUse(link)), { kind: 'refused' });
        },
      };
    },
    late: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const link = newLink(account, { purpose: 'sign-in' });
      await stores.links.create(link, OPERATOR);
      await stores.links.use(linkUse(link));
      const late = linkUse(link);
      return { act: by => by.links.use(late), told: { kind: 'unknown' } };
    },
  },
  {
    name: 'links.withdraw',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const link = newLink(account);
      await stores.links.create(link, OPERATOR);
      const by = { actor: OPERATOR, entryId: link.id };
      return {
        act: faulty => faulty.links.withdraw(account, link.id, by),
        check: async outcome => {
          assert.equal(typeof outcome, 'boolean');
          assert.equal(await stores.links.find(link.tokenHash, 'invitation'), undefined);
          const actions = ['invitation.withdrawn', 'person.invited'];
          assert.deepEqual(await actionsOf(stores, account), actions);
        },
      };
    },
  },
  {
    name: 'sessions.find',
    arrange: async ({ stores, database, ...fixture }) => {
      const account = await fixture.account(0);
      const { session, userId } = await personOfAccount(stores, account);
      await addTo(database.kysely, 'sessions', { id: session.id }, { seen_at: -3_600_000 });
      const left = await personOfAccount(stores, account);
      await removeFrom(database.kysely, 'members', { user_id: left.userId });
      assert.equal(await stores.sessions.find(left.session.idHash), undefined);
      return {
        act: faulty => faulty.sessions.find(session.idHash),
        check: async outcome => {
          assert.equal((outcome as { userId: string }).userId, userId);
          const [listed] = await stores.sessions.list(userId);
          assert.ok(listed !== undefined && listed.seenAtMs >= listed.createdAtMs);
        },
      };
    },
  },
  ending('end', (stores, userId, id) => stores.sessions.end(userId, id)),
  ending('endOthers', (stores, userId) => stores.sessions.endOthers(userId, 'another')),
  {
    name: 'sessions.switchAccount',
    arrange: async ({ stores, database, ...fixture }) => {
      const account = await fixture.account(0);
      const other = await fixture.account(0);
      const { session, userId } = await personOfAccount(stores, account);
      await database.kysely
        .insertInto('members')
        .values({
          account_id: other,
          user_id: userId,
          role: 'viewer',
          source: 'invited',
          created_at: 1,
        })
        .execute();
      return {
        act: faulty => faulty.sessions.switchAccount(session.idHash, other),
        check: async () => {
          assert.equal((await stores.sessions.find(session.idHash))?.accountId, other);
        },
      };
    },
  },
  {
    name: 'sessions.begin',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const { session: before, userId } = await personOfAccount(stores, account);
      const session = newSession();
      const by = { passwordHash: 'a hash', endedIdHash: before.idHash };
      return {
        act: faulty => faulty.sessions.begin(userId, session, by),
        check: async outcome => {
          assert.deepEqual(outcome, { kind: 'begun', accountId: account });
          assert.equal((await stores.sessions.find(session.idHash))?.userId, userId);
          assert.equal(await stores.sessions.find(before.idHash), undefined);
        },
      };
    },
  },
  {
    name: 'identities.enter',
    arrange: async ({ stores, account }) => {
      const [left, joined] = [await account(0), await account(0)];
      const first = identityEntry([{ accountId: left, role: 'owner' }]);
      assert.equal((await stores.identities.enter(first)).kind, 'signed-in');
      const entry = {
        ...identityEntry([{ accountId: joined, role: 'viewer' }]),
        subject: first.subject,
        mail: 'another@example.org',
      };
      return {
        act: faulty => faulty.identities.enter(entry),
        check: async outcome => {
          const userId = first.newUserId;
          assert.deepEqual(outcome, { kind: 'signed-in', userId, accountId: joined });
          assert.equal(await stores.sessions.find(first.session.idHash), undefined);
          const found = await stores.sessions.find(entry.session.idHash);
          assert.deepEqual(
            found?.memberships.map(({ accountId, role }) => [accountId, role]),
            [[joined, 'viewer']],
          );
          assert.deepEqual(await actionsOf(stores, joined), ['person.joined-by-group']);
          const actions = ['person.joined-by-group', 'person.left-by-group'];
          assert.deepEqual(await actionsOf(stores, left), actions);
        },
      };
    },
  },
  ofMember(
    'changeRole',
    ({ people }, { accountId, userId, by }) => people.changeRole(accountId, userId, 'viewer', by),
    async ({ people }, { accountId, userId }) => {
      const members = await people.listMembers(accountId);
      assert.equal(members.find(one => one.userId === userId)?.role, 'viewer');
    },
  ),
  ofMember(
    'removeMember',
    ({ people }, { accountId, userId, by }) => people.removeMember(accountId, userId, by),
    async ({ people, sessions }, { accountId, session }) => {
      assert.equal((await people.listMembers(accountId)).length, 1);
      assert.equal(await sessions.find(session.idHash), undefined);
    },
  ),
  ofMember(
    'setPassword',
    ({ people }, { accountId, userId, session, by }) =>
      people.setPassword(
        {
          userId,
          accountId,
          passwordHash: 'another',
          verifiedHash: 'a hash',
          sessionId: session.id,
        },
        by,
      ),
    async ({ people }, { userId }) => {
      assert.equal((await people.find(userId))?.passwordHash, 'another');
    },
  ),
  ofMember(
    'setLanguage',
    ({ people }, { userId }) => people.setLanguage(userId, 'zh-CN'),
    async ({ people }, { userId }) => {
      assert.equal((await people.find(userId))?.language, 'zh-CN');
    },
  ),
  {
    name: 'signInThrottles.take',
    arrange: async ({ stores, database }) => {
      const key = { ...KEY, hash: sha256(randomUUID()) };
      const counted = { ...KEY, hash: sha256(randomUUID()) };
      await stores.signInThrottles.take([counted]);
      return {
        act: faulty => faulty.signInThrottles.take([key, counted]),
        check: async outcome => {
          assert.equal(outcome, 0);
          for (const { hash, before } of [
            { ...key, before: 0 },
            { ...counted, before: 1 },
          ]) {
            const failures = (await throttleOf(database, hash)).failures - before;
            // A failure whose answer was lost may count twice, but always counts.
            assert.ok(failures >= 1 && failures <= 3, `${failures}`);
          }
        },
      };
    },
  },
  {
    name: 'signInThrottles.giveBack',
    arrange: async ({ stores, database }) => {
      const key = { ...KEY, hash: sha256(randomUUID()) };
      await stores.signInThrottles.take([key]);
      return {
        act: faulty => faulty.signInThrottles.giveBack([key]),
        check: async () => {
          assert.equal((await throttleOf(database, key.hash)).failures, 0);
        },
      };
    },
  },
  removing('people.removeEndedSessions', 'sessions', ({ people }) =>
    people.removeEndedSessions(50),
  ),
  {
    name: 'endedOperatorSessions.add',
    arrange: async ({ stores }) => {
      const token = sha256(randomUUID());
      return {
        act: faulty => faulty.endedOperatorSessions.add(token, Date.now() + 60_000),
        check: async () => assert.ok(await stores.endedOperatorSessions.has(token)),
      };
    },
  },
  removing(
    'endedOperatorSessions.removeOld',
    'ended_operator_sessions',
    ({ endedOperatorSessions }) => endedOperatorSessions.removeOld(50),
  ),
  removing('people.removeOldLinks', 'one_time_links', ({ people }) => people.removeOldLinks(50)),
  removing('people.removeOldThrottles', 'sign_in_throttles', ({ people }) =>
    people.removeOldThrottles(50),
  ),
];
