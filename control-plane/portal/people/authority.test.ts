/** A person loses the right between the route's check and the transaction. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type ActingPerson, requireAuthority } from '@matting/accounts/audit-log.ts';
import { newJob, submitted } from '@matting/core/test/fixtures.ts';
import type { Database } from '@matting/database/database.ts';
import { addTo, setIn } from '@matting/database/test/rows.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { AuthorityError } from '../session/authority.ts';
import { may, type Permission } from '../session/roles.ts';
import { HOOK_URL, SEALED, TEST_BOUNDS, watchedAccount } from '../test/alerts-fixtures.ts';
import { onStores, type Stores } from '../test/fixtures.ts';
import { newOrder, placed } from '../test/orders.ts';
import { actorOf, newLink, OPERATOR, type Person, personOfAccount } from '../test/people.ts';

const test = ava.serial;

interface Scene {
  readonly accountId: string;
  readonly keyId: string;
  readonly orderId: string;
  readonly invitationId: string;
  readonly jobId: string;
  readonly otherId: string;
  readonly self: Person;
}

interface Change {
  readonly permission: Permission;
  readonly act: (stores: Stores, scene: Scene, actor: ActingPerson) => Promise<unknown>;
}

const by = (actor: ActingPerson) => ({ actor, entryId: randomUUID() });
const byAudit = (actor: ActingPerson) => ({ actor, auditId: randomUUID() });
const eventOf = (accountId: string) => {
  const id = randomUUID();
  const event = { id, accountId, event: 'account.webhook_test', url: HOOK_URL } as const;
  return { ...event, body: '{}', ...SEALED };
};

const CHANGES: Readonly<Record<string, Change>> = {
  'a new key': {
    permission: 'keys.manage',
    act: ({ apiKeys }, { accountId }, actor) =>
      apiKeys.createBy(accountId, 'late', { actor, aliveMax: 9, everMax: 9 }),
  },
  'a rotated key': {
    permission: 'keys.manage',
    act: ({ apiKeys }, { accountId, keyId }, actor) =>
      apiKeys.rotate(keyId, { accountId, actor, overlapMs: 1000 }),
  },
  'a changed key': {
    permission: 'keys.manage',
    act: ({ apiKeys }, { accountId, keyId }, actor) =>
      apiKeys.change(keyId, { accountId, actor }, { name: 'late' }),
  },
  'a revoked key': {
    permission: 'keys.manage',
    act: ({ apiKeys }, { accountId, keyId }, actor) => apiKeys.revoke(keyId, { accountId, actor }),
  },
  'an invitation': {
    permission: 'people.manage',
    act: ({ links }, { accountId }, actor) => links.create(newLink(accountId), actor),
  },
  'an invitation withdrawn': {
    permission: 'people.manage',
    act: ({ links }, { accountId, invitationId }, actor) =>
      links.withdraw(accountId, invitationId, by(actor)),
  },
  'a role': {
    permission: 'people.manage',
    act: ({ people }, { accountId, otherId }, actor) =>
      people.changeRole(accountId, otherId, 'owner', by(actor)),
  },
  'a removal': {
    permission: 'people.manage',
    act: ({ people }, { accountId, otherId }, actor) =>
      people.removeMember(accountId, otherId, by(actor)),
  },
  'a password': {
    permission: 'self',
    act: ({ people }, { accountId, self }, actor) =>
      people.setPassword(
        {
          userId: self.userId,
          passwordHash: 'late',
          verifiedHash: 'a hash',
          sessionId: self.session.id,
          accountId,
        },
        by(actor),
      ),
  },
  thresholds: {
    permission: 'settings.manage',
    act: ({ alertSettings }, { accountId }, actor) =>
      alertSettings.setThresholds(accountId, [7], byAudit(actor)),
  },
  'an address of events': {
    permission: 'settings.manage',
    act: ({ alertSettings }, { accountId }, actor) =>
      alertSettings.setWebhook(accountId, null, byAudit(actor)),
  },
  'a test message': {
    permission: 'settings.manage',
    act: ({ alertSettings }, { accountId }, actor) =>
      alertSettings.sendTest(eventOf(accountId), TEST_BOUNDS, byAudit(actor)),
  },
  'an order': {
    permission: 'orders.manage',
    act: ({ orders }, { accountId }, actor) => orders.place(newOrder(accountId), actor),
  },
  'a cancelled order': {
    permission: 'orders.manage',
    act: ({ orders }, { accountId, orderId }, actor) => orders.cancel(accountId, orderId, actor),
  },
  'a notification again': {
    permission: 'jobs.resend',
    act: ({ outbox }, { accountId, jobId }, actor) => {
      const what = { action: 'job.resent', subject: jobId };
      return outbox.resend(jobId, { id: randomUUID(), accountId, actor, ...what }, 0);
    },
  },
};

const TABLES = [
  'account_webhooks',
  'api_keys',
  'audit_entries',
  'balance_alerts',
  'outbox',
  'members',
  'one_time_links',
  'orders',
  'users',
  'outbox',
] as const;

async function rowsOf({ kysely }: Database): Promise<Record<string, readonly unknown[]>> {
  const rows = await Promise.all(
    TABLES.map(async table => {
      const found = await kysely.selectFrom(table).selectAll().execute();
      return [table, found.map(row => JSON.stringify(row)).sort()] as const;
    }),
  );
  return Object.fromEntries(rows);
}

onStores(test, 'the authority of people', (test, { dialect, database, stores, replica }) => {
  const others = replica();
  let scene: Scene;

  test.before(async () => {
    const accountId = await watchedAccount(stores, 100, [50]);
    const { key } = await stores.apiKeys.create(accountId, 'a key');
    const invitation = newLink(accountId);
    await stores.links.create(invitation, OPERATOR);
    const callback = { url: HOOK_URL, ...SEALED };
    const job = await submitted(stores, newJob(accountId, { callback }));
    await personOfAccount(stores, accountId);
    scene = {
      accountId,
      keyId: key.id,
      orderId: (await placed(stores, accountId)).id,
      invitationId: invitation.id,
      jobId: job.id,
      otherId: (await personOfAccount(stores, accountId, 'member')).userId,
      self: await personOfAccount(stores, accountId),
    };
  });

  type Ending = readonly [
    loss: 'signed-out' | 'forbidden' | 'too-many-changes',
    end: (self: Person) => Promise<unknown>,
  ];
  const operator = () => ({ actor: OPERATOR, entryId: randomUUID() });
  const endings: Readonly<Record<string, Ending>> = {
    removed: [
      'signed-out',
      ({ userId }) => others.people.removeMember(scene.accountId, userId, operator()),
    ],
    demoted: [
      'forbidden',
      ({ userId }) => others.people.changeRole(scene.accountId, userId, 'viewer', operator()),
    ],
    'signed out': ['signed-out', ({ userId, session }) => others.sessions.end(userId, session.id)],
    'signed out with all other sessions': [
      'signed-out',
      ({ userId }) => others.sessions.endOthers(userId, 'another'),
    ],
    disabled: [
      'signed-out',
      ({ userId }) => setIn(database.kysely, 'users', { id: userId }, { disabled_at: 1 }),
    ],
    'idle for too long': [
      'signed-out',
      ({ session }) => setIn(database.kysely, 'sessions', { id: session.id }, { seen_at: 1 }),
    ],
    'acting for another account': [
      'signed-out',
      async ({ session }) => {
        const elsewhere = await watchedAccount(stores, 0, []);
        await setIn(database.kysely, 'sessions', { id: session.id }, { account_id: elsewhere });
      },
    ],
  };

  for (const [ending, [loss, end]] of Object.entries(endings)) {
    test(`makes nothing of who was ${ending} just now`, async t => {
      for (const [name, { permission, act }] of Object.entries(CHANGES)) {
        if (loss === 'forbidden' && may('viewer', permission)) continue;
        const self = await personOfAccount(stores, scene.accountId);
        t.truthy(await stores.sessions.find(self.session.idHash), 'the door was open');
        await end(self);
        const before = await rowsOf(database);
        const changed = act(stores, { ...scene, self }, actorOf(self, permission));
        await rejectsWith(t, changed, (error: unknown) => {
          assert.ok(error instanceof AuthorityError, String(error));
          t.is(error.loss, loss, name);
          return true;
        });
        t.deepEqual(await rowsOf(database), before, name);
      }
    });
  }

  test('answers as done what was done, also where the change ended the right to it', async t => {
    for (const role of ['viewer', null] as const) {
      const self = await personOfAccount(stores, scene.accountId);
      const again = by(actorOf(self, 'people.manage'));
      const act = () =>
        role === null
          ? stores.people.removeMember(scene.accountId, self.userId, again)
          : stores.people.changeRole(scene.accountId, self.userId, role, again);
      t.is(await act(), 'changed');
      t.is(await act(), 'changed', 'its answer was lost');
      await t.throwsAsync(
        stores.people.removeMember(scene.accountId, self.userId, by(again.actor)),
        { instanceOf: AuthorityError },
      );
    }
  });

  // SQLite has one writer at a time, so nothing can change meanwhile.
  if (dialect !== 'sqlite') {
    test('keeps the account and the session as they are until the change commits', async t => {
      if (database.engine.conflicts !== 'locks') {
        t.is(database.engine.conflicts, 'certification', 'members find out at the commit');
        return;
      }
      const { accountId } = scene;
      const self = await personOfAccount(stores, accountId);
      const rows = [
        ['accounts', accountId],
        ['sessions', self.session.id],
      ] as const;
      const take = (table: string, id: string) =>
        sql`select id from ${sql.table(table)} where id = ${id} for update nowait`.execute(
          database.kysely,
        );
      await database.kysely.transaction().execute(async tx => {
        const actor = actorOf(self, 'keys.manage');
        await requireAuthority(database, tx, { accountId, actor, entryId: randomUUID() });
        for (const [table, id] of rows)
          await t.throwsAsync(take(table, id), { message: /lock/i }, table);
      });
      for (const [table, id] of rows) t.is((await take(table, id)).rows.length, 1);
    });
  }

  test('bounds what one person changes in a minute, over all replicas', async t => {
    const accountId = await watchedAccount(stores, 100, [50]);
    const [first, second] = [
      actorOf(await personOfAccount(stores, accountId), 'settings.manage'),
      actorOf(await personOfAccount(others, accountId), 'settings.manage'),
    ];
    const change = (by: Stores, actor: ActingPerson, index: number) =>
      by.alertSettings.setThresholds(accountId, [100 + index], byAudit(actor));
    const { key } = await stores.apiKeys.create(accountId, 'a key');
    // The log already has one entry of theirs: that they joined.
    for (let index = 1; index < 60; index += 1) {
      await change(index % 2 === 0 ? stores : others, first, index);
    }
    const before = await rowsOf(database);
    for (const replica of [stores, others]) {
      await rejectsWith(t, change(replica, first, 0), (error: unknown) => {
        assert.ok(error instanceof AuthorityError);
        t.is(error.loss, 'too-many-changes');
        t.true((error.retryAfterS ?? 0) >= 1 && (error.retryAfterS ?? 0) <= 60);
        return true;
      });
    }
    t.deepEqual(await rowsOf(database), before);
    const revoke = { accountId, actor: { ...first, permission: 'keys.manage' } } as const;
    const revoked = await stores.apiKeys.revoke(key.id, revoke);
    t.truthy(revoked?.revokedAtMs, 'rights are taken away at any time');
    await change(stores, second, 0);
    await addTo(
      database.kysely,
      'audit_entries',
      { account_id: accountId },
      { created_at: -60_000 },
    );
    await change(stores, first, 1);
  });
});
