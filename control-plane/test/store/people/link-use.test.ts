/**
 * Who comes in by a link, row by row of docs/adr/0042: a person is made of what was proven, and a
 * mail that somebody typed joins nobody to another account.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { it } from 'node:test';
import type { LinkUse, NewLink } from '../../../src/store/people/link-store.ts';
import { MEMBERS_MAX } from '../../../src/store/people/member-rows.ts';
import { describeStores, fundedAccount } from '../fixtures.ts';
import {
  actorOf,
  identityEntry,
  linkUse,
  newLink,
  newSession,
  OPERATOR,
  personOfAccount,
} from '../people.ts';

/** Links by who has seen them. */
const BY_MAIL = { purpose: 'invitation', provesMail: true } as const;
const SEEN = { purpose: 'invitation', provesMail: false } as const;
const SIGN_IN = { purpose: 'sign-in', provesMail: true } as const;
const KINDS = Object.entries({ BY_MAIL, SEEN, SIGN_IN });

describeStores('who comes in by a link', ({ database, stores, replica }) => {
  /** Another replica. */
  const others = replica();
  const mailOf = () => `${randomUUID()}@example.org`;
  const personBy = (mail: string) => stores.people.findByMail(mail);
  const accountsOf = async (userId: string) => {
    const { kysely } = database;
    const rows = await kysely
      .selectFrom('members')
      .select('account_id')
      .where('user_id', '=', userId)
      .execute();
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

  /** Somebody whose mail is that, from an account of their own. */
  async function somebody(kind: Partial<NewLink>) {
    const [mail, account] = [mailOf(), await fundedAccount(stores, 0)];
    const { used } = await use(account, mail, kind, { passwordHash: 'of before' });
    const { userId, isProven } = (await personBy(mail)) ?? {};
    assert.ok(userId);
    assert.equal(isProven, kind.provesMail);
    return { mail, account, userId, session: used.session };
  }

  for (const [name, kind] of KINDS) {
    it(`${name}: who has a mail that nobody has here is new`, async () => {
      const [mail, account] = [mailOf(), await fundedAccount(stores, 0)];
      const { outcome, used } = await use(account, mail, kind, { passwordHash: 'theirs' });
      const userId = used.newUserId;
      assert.deepEqual(outcome, { kind: 'signed-in', accountId: account, userId });
      const person = await personBy(mail);
      assert.equal(person?.isProven, kind !== SEEN);
      assert.equal(person?.passwordHash, 'theirs');
      assert.deepEqual(await accountsOf(userId), [account]);
    });
  }

  for (const [name, kind] of KINDS.filter(([, { provesMail }]) => provesMail)) {
    it(`${name}: ends what was there of a mail that was never proven`, async () => {
      const before = await somebody(SEEN);
      const account = await fundedAccount(stores, 0);
      const passwordHash = kind === SIGN_IN ? null : 'theirs';
      const { outcome, used } = await use(account, before.mail, kind, { passwordHash });
      const { userId } = before;
      assert.deepEqual(outcome, { kind: 'signed-in', accountId: account, userId });
      assert.equal(await stores.sessions.find(before.session.idHash), undefined);
      const person = await personBy(before.mail);
      assert.equal(person?.passwordHash, passwordHash);
      assert.ok(person?.isProven);
      assert.ok(await stores.sessions.find(used.session.idHash));
      // Whoever verified the password of before is not let in by it any more.
      const by = { passwordHash: 'of before', endedIdHash: null };
      assert.deepEqual(await stores.sessions.begin(userId, newSession(), by), {
        kind: 'refused',
      });
      const log = await stores.audit.list(account, { limit: 1 });
      assert.deepEqual(log[0]?.after, { role: 'member', mail_proven: true });
    });
  }

  it('BY_MAIL and SEEN: who is proven joins by their password, and by nothing else', async () => {
    for (const kind of [BY_MAIL, SEEN]) {
      const { mail, userId, account, session } = await somebody(BY_MAIL);
      const other = await fundedAccount(stores, 0);
      for (const verifiedHash of [null, 'another', '']) {
        const { outcome } = await use(other, mail, kind, { verifiedHash, passwordHash: 'x' });
        assert.deepEqual(outcome, { kind: 'refused' });
      }
      const link = await made(other, mail, kind);
      const right = linkUse(link, { verifiedHash: 'of before', passwordHash: 'x' });
      assert.equal((await stores.links.use(right)).kind, 'signed-in');
      assert.deepEqual(await accountsOf(userId), [account, other].sort());
      assert.equal((await personBy(mail))?.passwordHash, 'of before');
      assert.ok(await stores.sessions.find(session.idHash));
    }
  });

  it('SIGN_IN: who is proven signs in, and keeps sessions and password', async () => {
    const { mail, userId, session } = await somebody(BY_MAIL);
    const other = await fundedAccount(stores, 0);
    const { outcome } = await use(other, mail, SIGN_IN, { passwordHash: null });
    assert.deepEqual(outcome, { kind: 'signed-in', accountId: other, userId });
    assert.equal((await personBy(mail))?.passwordHash, 'of before');
    assert.ok(await stores.sessions.find(session.idHash));
  });

  it('SEEN: who is not proven joins no other account, even by their password', async () => {
    const { mail, userId, account } = await somebody(SEEN);
    const other = await fundedAccount(stores, 0);
    const by = { verifiedHash: 'of before' };
    assert.deepEqual((await use(other, mail, SEEN, by)).outcome, { kind: 'unproven' });
    const wrong = { verifiedHash: 'another' };
    assert.deepEqual((await use(other, mail, SEEN, wrong)).outcome, { kind: 'refused' });
    assert.deepEqual(await accountsOf(userId), [account]);
    // In the account that it was made in they come in, as by their password.
    assert.equal((await use(account, mail, SEEN, by)).outcome.kind, 'signed-in');
    assert.equal((await personBy(mail))?.isProven, false);
  });

  it('BY_MAIL: a password that became another since it was shown is not set again', async () => {
    const { mail, account } = await somebody(SEEN);
    const by = { verifiedHash: 'of long ago', passwordHash: 'of long ago' };
    assert.deepEqual((await use(account, mail, BY_MAIL, by)).outcome, { kind: 'refused' });
    const person = await personBy(mail);
    assert.deepEqual([person?.passwordHash, person?.isProven], ['of before', false]);
    const right = { verifiedHash: 'of before', passwordHash: 'of before' };
    assert.equal((await use(account, mail, BY_MAIL, right)).outcome.kind, 'signed-in');
    assert.ok((await personBy(mail))?.isProven);
  });

  it('lets nobody in who was disabled', async () => {
    const { mail, userId } = await somebody(BY_MAIL);
    await database.kysely
      .updateTable('users')
      .set({ disabled_at: 1 })
      .where('id', '=', userId)
      .execute();
    for (const [, kind] of KINDS) {
      const by = { verifiedHash: 'of before' };
      const { outcome } = await use(await fundedAccount(stores, 0), mail, kind, by);
      assert.deepEqual(outcome, { kind: 'refused' });
    }
  });

  it('knows nobody of an identity provider by the mail that it claims', async () => {
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
      assert.notEqual(outcome.kind === 'signed-in' && outcome.userId, userId);
    }
    assert.deepEqual(await accountsOf(userId), []);
  });

  it('makes one person of a mail that is used at two replicas at once', async () => {
    const mail = mailOf();
    const accounts = await Promise.all([fundedAccount(stores, 0), fundedAccount(stores, 0)]);
    const [seen, proof] = [
      await made(accounts[0], mail, SEEN),
      await made(accounts[1], mail, SIGN_IN),
    ];
    const uses = [linkUse(seen), linkUse(proof, { passwordHash: null })] as const;
    const outcomes = await Promise.all([stores.links.use(uses[0]), others.links.use(uses[1])]);
    assert.equal(outcomes[1].kind, 'signed-in');
    const person = await personBy(mail);
    assert.ok(person?.isProven);
    // Whichever came first: no password of the link that was seen is left.
    assert.equal(person.passwordHash, null);
    if (outcomes[0].kind === 'signed-in') {
      assert.equal(await stores.sessions.find(uses[0].session.idHash), undefined);
    } else assert.deepEqual(outcomes[0], { kind: 'refused' });
  });

  it('lets no more people in than an account may have, at two replicas at once', async () => {
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
    assert.deepEqual(kinds, [...Array(4).fill('account-full'), 'signed-in', 'signed-in']);
  });

  it('frees a mail that nobody proved with its last membership, and no proven one', async () => {
    const by = () => ({ actor: OPERATOR, entryId: randomUUID() });
    for (const kind of [SEEN, BY_MAIL]) {
      const { mail, userId, account } = await somebody(kind);
      await personOfAccount(stores, account, 'owner');
      assert.equal(await stores.people.removeMember(account, userId, by()), 'changed');
      const left = await personBy(mail);
      assert.equal(left?.userId, kind === SEEN ? undefined : userId);
      const { outcome } = await use(await fundedAccount(stores, 0), mail, SEEN);
      assert.equal(outcome.kind, kind === SEEN ? 'signed-in' : 'refused');
    }
  });

  it('ends the links of who is removed or is no owner any more', async () => {
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
      assert.equal(change, 'changed');
      const found = async ({ tokenHash, purpose }: NewLink) =>
        (await stores.links.find(tokenHash, purpose)) !== undefined;
      assert.equal(await found(links.theirs), false);
      assert.equal(await found(links['for their mail']), false);
      assert.ok(await found(links['of another']));
      assert.ok(await found(elsewhere));
      const [entry] = await stores.audit.list(account, { limit: 1 });
      assert.equal(entry?.after?.links_ended, 2);
    }
  });

  it('ends the links of who lost the group that made them owner', async () => {
    for (const role of [undefined, 'viewer'] as const) {
      const account = await fundedAccount(stores, 0);
      const entry = identityEntry([{ accountId: account, role: 'owner' }]);
      assert.equal((await stores.identities.enter(entry)).kind, 'signed-in');
      const link = newLink(account);
      const { newUserId: userId, mail, session } = entry;
      await stores.links.create(link, actorOf({ userId, mail, session }, 'people.manage'));
      const grants = role === undefined ? [] : [{ accountId: account, role }];
      await stores.identities.enter({ ...identityEntry(grants), subject: entry.subject });
      assert.equal(await stores.links.find(link.tokenHash, 'invitation'), undefined);
    }
  });

  it('lists sign-in links beside invitations, and withdraws both', async () => {
    const account = await fundedAccount(stores, 0);
    const links = [await made(account, mailOf(), SEEN), await made(account, mailOf(), SIGN_IN)];
    const listed = await stores.links.listOpen(account);
    assert.deepEqual(
      listed.map(({ id }) => id),
      links.map(({ id }) => id),
    );
    for (const { id } of links) {
      const by = { actor: OPERATOR, entryId: randomUUID() };
      assert.ok(await stores.links.withdraw(account, id, by));
      assert.equal(await stores.links.withdraw(account, id, by), false);
    }
    assert.deepEqual(await stores.links.listOpen(account), []);
    const actions = (await stores.audit.list(account, { limit: 2 })).map(one => one.action);
    assert.deepEqual(actions.sort(), ['invitation.withdrawn', 'sign-in-link.withdrawn']);
  });
});
