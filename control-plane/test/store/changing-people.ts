/** The methods that change people, their links and their sessions. */
import assert from 'node:assert/strict';
import type { Stores } from '../../src/store/stores.ts';
import type { ChangingMethod } from './changing-methods.ts';
import { fundedAccount } from './fixtures.ts';
import { linkUse, newLink, OPERATOR, personOfAccount } from './people.ts';

async function actionsOf({ audit }: Stores, accountId: string): Promise<string[]> {
  const entries = await audit.list(accountId, { limit: 50 });
  return entries.map(({ action }) => action).sort();
}

const createLink: ChangingMethod = {
  name: 'links.create',
  arrange: async ({ stores }) => {
    const account = await fundedAccount(stores, 0);
    const link = newLink(account);
    return {
      act: by => by.links.create(link, OPERATOR),
      check: async outcome => {
        assert.equal(outcome, 'created');
        assert.equal((await stores.links.listInvitations(account)).length, 1);
        assert.deepEqual(await actionsOf(stores, account), ['person.invited']);
      },
    };
  },
};

const useLink: ChangingMethod = {
  name: 'links.use',
  arrange: async ({ stores }) => {
    const account = await fundedAccount(stores, 0);
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
        assert.deepEqual(await stores.links.use(linkUse(link)), { kind: 'person-exists' });
      },
    };
  },
  late: async ({ stores }) => {
    const account = await fundedAccount(stores, 0);
    const link = newLink(account, { purpose: 'sign-in' });
    await stores.links.create(link, OPERATOR);
    await stores.links.use(linkUse(link));
    const late = linkUse(link);
    return { act: by => by.links.use(late), told: { kind: 'unknown' } };
  },
};

const withdrawLink: ChangingMethod = {
  name: 'links.withdraw',
  arrange: async ({ stores }) => {
    const account = await fundedAccount(stores, 0);
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
};

const findSession: ChangingMethod = {
  name: 'sessions.find',
  arrange: async ({ stores, database }) => {
    const account = await fundedAccount(stores, 0);
    const { session, userId } = await personOfAccount(stores, account);
    await database.kysely
      .updateTable('sessions')
      .set(eb => ({ seen_at: eb('seen_at', '-', 3_600_000) }))
      .where('id', '=', session.id)
      .execute();
    return {
      act: faulty => faulty.sessions.find(session.idHash),
      check: async outcome => {
        assert.equal((outcome as { userId: string }).userId, userId);
        const [listed] = await stores.sessions.list(userId);
        assert.ok(listed !== undefined && listed.seenAtMs >= listed.createdAtMs);
      },
    };
  },
};

/** Ends the session of `personOfAccount`, or spares it. */
function ending(
  name: 'end' | 'endOthers',
  call: (stores: Stores, userId: string, sessionId: string) => Promise<unknown>,
): ChangingMethod {
  return {
    name: `sessions.${name}`,
    arrange: async ({ stores }) => {
      const account = await fundedAccount(stores, 0);
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

const switchAccount: ChangingMethod = {
  name: 'sessions.switchAccount',
  arrange: async ({ stores, database }) => {
    const account = await fundedAccount(stores, 0);
    const other = await fundedAccount(stores, 0);
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
};

export const CHANGING_PEOPLE: readonly ChangingMethod[] = [
  createLink,
  useLink,
  withdrawLink,
  findSession,
  ending('end', (stores, userId, id) => stores.sessions.end(userId, id)),
  ending('endOthers', (stores, userId) => stores.sessions.endOthers(userId, 'another')),
  switchAccount,
];
