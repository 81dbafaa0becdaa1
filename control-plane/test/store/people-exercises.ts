/** The methods of people's stores, for statements.test.ts. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import {
  personMailOf,
  personOf,
  sessionHashOf,
} from '../../../test/support/large-people-and-orders.ts';
import { accountOf } from '../../../test/support/large-tables.ts';
import { MEMBERS_MAX } from '../../src/store/people/member-rows.ts';
import { SESSIONS_MAX } from '../../src/store/people/session-store.ts';
import { bounded, type Exercise } from './exercise.ts';
import { sha256 } from './fixtures.ts';
import {
  actorOf,
  identityEntry,
  linkUse,
  newLink,
  newSession,
  OPERATOR,
  personOfAccount,
} from './people.ts';
import { setIn } from './rows.ts';

const PEOPLE_WHY = `reads the people of an account, ${MEMBERS_MAX} at most`;
/** Their index and their rows, and how servers count. */
const PEOPLE_READS_MAX = 4 * MEMBERS_MAX;
const LINKS_WHY = 'reads the links that an account made within their life';
const LINKS_READS_MAX = 3000;

function ofLinksAndPeople(run: Exercise): Exercise {
  return bounded(LINKS_READS_MAX + PEOPLE_READS_MAX, `${LINKS_WHY}; ${PEOPLE_WHY}`, run);
}

export const PEOPLE: Readonly<Record<string, Exercise>> = {
  'audit.list': async ({ audit }) => {
    const first = await audit.list(accountOf(0), { limit: 50 });
    assert.equal(first.length, 50);
    const next = await audit.list(accountOf(0), { limit: 50, after: first.at(-1) });
    assert.equal(next.length, 50);
    assert.ok(next.every(({ id }) => !first.some(one => one.id === id)));
  },
  'sessions.find': async ({ sessions }) => assert.ok(await sessions.find(sessionHashOf(3))),
  'sessions.list': async ({ sessions }) =>
    assert.equal((await sessions.list(personOf(4))).length, 1),
  'sessions.end': async ({ sessions }) => assert.ok(await sessions.end(personOf(5), 'session-5')),
  'sessions.endOthers': ({ sessions }) => sessions.endOthers(personOf(6), 'another'),
  'sessions.switchAccount': async ({ sessions }) =>
    assert.ok(await sessions.switchAccount(sessionHashOf(7), accountOf(0))),
  'links.create': bounded(LINKS_READS_MAX, LINKS_WHY, async ({ links }) => {
    const accountId = accountOf(0);
    const to = { accountId, recipient: 'a@b.example', subject: 'x', body: 'y' };
    const link = newLink(accountId, { letter: { id: randomUUID(), ...to } });
    assert.equal(await links.create(link, OPERATOR), 'created');
  }),
  'links.find': bounded(LINKS_READS_MAX, LINKS_WHY, async ({ links }) => {
    const link = newLink(accountOf(0));
    await links.create(link, OPERATOR);
    assert.ok(await links.find(link.tokenHash, 'invitation'));
  }),
  'links.listOpen': bounded(LINKS_READS_MAX, LINKS_WHY, async ({ links }) =>
    assert.ok((await links.listOpen(accountOf(0))).length > 0),
  ),
  'links.withdraw': bounded(LINKS_READS_MAX, LINKS_WHY, async ({ links }) => {
    const link = newLink(accountOf(0));
    await links.create(link, OPERATOR);
    assert.ok(await links.withdraw(accountOf(0), link.id, { actor: OPERATOR, entryId: link.id }));
  }),
  'links.use': ofLinksAndPeople(async ({ links, sessions }) => {
    const link = newLink(accountOf(0));
    await links.create(link, OPERATOR);
    const use = linkUse(link);
    assert.equal((await links.use(use)).kind, 'signed-in');
    // Signed in, and often: the oldest session goes.
    for (let count = 0; count < SESSIONS_MAX; count += 1) {
      const again = newLink(accountOf(0), { mail: link.mail, purpose: 'sign-in' });
      await links.create(again, OPERATOR);
      const by = linkUse(again, { endedIdHash: sha256('none') });
      assert.equal((await links.use(by)).kind, 'signed-in');
    }
    assert.equal(await sessions.find(use.session.idHash), undefined);
    const typed = newLink(accountOf(0), { provesMail: false });
    await links.create(typed, OPERATOR);
    assert.equal((await links.use(linkUse(typed))).kind, 'signed-in');
    const proof = newLink(accountOf(1), { mail: typed.mail });
    await links.create(proof, OPERATOR);
    assert.equal((await links.use(linkUse(proof))).kind, 'signed-in');
  }),
  'sessions.begin': async ({ sessions }) => {
    const session = newSession();
    const by = { passwordHash: 'a hash', endedIdHash: sessionHashOf(8) };
    assert.equal((await sessions.begin(personOf(8), session, by)).kind, 'begun');
  },
  'people.find': async ({ people }) => assert.ok(await people.find(personOf(9))),
  'people.findByMail': async ({ people }) =>
    assert.ok(await people.findByMail(personMailOf(9).toUpperCase())),
  'people.listMembers': async ({ people }) =>
    assert.ok((await people.listMembers(accountOf(0))).length > 100),
  'people.setPassword': async ({ people }) => {
    const userId = personOf(10);
    const of = {
      userId,
      passwordHash: 'another',
      verifiedHash: 'a hash',
      sessionId: 'session-10',
      accountId: accountOf(0),
    };
    assert.equal(await people.setPassword(of, changedBy()), 'set');
  },
  'people.setLanguage': ({ people }) => people.setLanguage(personOf(11), 'en'),
  'people.changeRole': ofLinksAndPeople(async stores => {
    const self = await personOfAccount(stores, accountOf(0));
    const by = { actor: actorOf(self, 'people.manage'), entryId: randomUUID() };
    const change = () => stores.people.changeRole(accountOf(0), personOf(12), 'viewer', by);
    assert.equal(await change(), 'changed');
    // The answer was lost, and the session has ended since.
    await stores.sessions.end(self.userId, self.session.id);
    assert.equal(await change(), 'changed');
  }),
  'people.removeMember': ofLinksAndPeople(async ({ people }) => {
    const by = changedBy();
    assert.equal(await people.removeMember(accountOf(0), personOf(13), by), 'changed');
    assert.equal(await people.removeMember(accountOf(0), personOf(13), by), 'changed');
  }),
  'identities.enter': ofLinksAndPeople(async ({ identities }) => {
    const accounts = [accountOf(0), accountOf(1)];
    const first = identityEntry(accounts.map(accountId => ({ accountId, role: 'owner' })));
    assert.equal((await identities.enter(first)).kind, 'signed-in');
    const { subject } = first;
    const session = newSession({ method: 'oidc' });
    const grants = [{ accountId: accountOf(0), role: 'viewer' }] as const;
    const next = { ...first, subject, session, grants, mail: 'new@example.org' };
    const entryIdOf = () => randomUUID();
    assert.equal((await identities.enter({ ...next, entryIdOf })).kind, 'signed-in');
  }),
  'people.removeEndedSessions': async ({ people }, { kysely }) => {
    await setIn(kysely, 'sessions', { id: 'session-20' }, { expires_at: 1 });
    assert.equal(await people.removeEndedSessions(50), 1);
  },
  'people.removeOldLinks': async ({ people }, { kysely }) => {
    await setIn(kysely, 'one_time_links', { id: 'link-3' }, { expires_at: 1 });
    assert.equal(await people.removeOldLinks(50), 1);
  },
  'people.removeOldThrottles': async ({ people }, { kysely }) => {
    const row = { key_hash: sha256(randomUUID()), window_start: 1, failures: 1 };
    await kysely.insertInto('sign_in_throttles').values(row).execute();
    assert.equal(await people.removeOldThrottles(50), 1);
  },
  'people.removeOldAuditEntries': async ({ people }, { kysely }) => {
    const [oldest] = await kysely
      .selectFrom('audit_entries')
      .select('id')
      .where('account_id', '=', accountOf(1))
      .limit(1)
      .execute();
    assert.ok(oldest);
    await setIn(kysely, 'audit_entries', { id: oldest.id }, { created_at: 1 });
    assert.equal(await people.removeOldAuditEntries(365 * 86_400_000, 50), 1);
  },
  'signInThrottles.take': async ({ signInThrottles }) => {
    const key = { hash: sha256(randomUUID()), failuresMax: 1 };
    const more = { ...key, failuresMax: 2 };
    assert.equal(await signInThrottles.take([key]), 0);
    assert.equal(await signInThrottles.take([more]), 0);
    assert.ok((await signInThrottles.take([key])) > 0);
  },
  'signInThrottles.giveBack': ({ signInThrottles }) =>
    signInThrottles.giveBack([{ hash: sha256('nobody'), failuresMax: 1 }]),
};

function changedBy() {
  return { actor: OPERATOR, entryId: randomUUID() };
}
