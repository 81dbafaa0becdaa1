/**
 * Forms that are held: their headers came while the person might, their last byte comes when the
 * person may not any more. What counts is who they are when the form is whole.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import ava from 'ava';
import { CHANGES_A_MINUTE_MAX } from '../../../../src/domain/account/authority.ts';
import { createSecret } from '../../../../src/http/account/session/cookies.ts';
import { linkUse, newLink, OPERATOR } from '../../../store/people.ts';
import { APP_ROUTES } from '../../../support/area/app-routes.ts';
import { multipartOf } from '../../../support/area/person.ts';
import { registerPerson, signIn } from '../../../support/area/sign-in.ts';
import { makeThings } from '../../../support/area/things.ts';
import { filled, type Member, useWorld, type World } from '../../../support/area/world.ts';
import { pngHeader } from '../../../support/test-app.ts';

const test = ava.serial;

const KEY = { name: 'a key of a held form', expires: 'never', period: 'month', scopes: 'submit' };
const NEXT = 'another long sentence 17';
const SIGN_IN = '/account/sign-in';

const world = useWorld(test);

/** Somebody with a password, signed in at two browsers. */
async function signedInTwice() {
  const known = await registerPerson(world, 'owner');
  const person = world.stranger();
  await signIn(person, known);
  const elsewhere = world.stranger();
  await signIn(elsewhere, known);
  return { person, elsewhere, known };
}

const keys = () => world.rows().api_keys?.length;
const idOf = async (mail: string) => {
  const members = await world.test.stores.people.listMembers(world.ours.accountId);
  return members.find(one => one.mail === mail)?.userId ?? assert.fail(`no member ${mail}`);
};

test('make a key where nothing has changed', async t => {
  const { person } = await signedInTwice();
  const held = await person.hold('/account/keys', KEY);
  const before = keys() ?? 0;
  const { status, body } = await held.release();
  t.is(status, 200, body);
  t.is(keys(), before + 1);
});

type Ends = (of: Awaited<ReturnType<typeof signedInTwice>>) => Promise<unknown>;
const byOwner = async (mail: string, change: string, fields = {}) => {
  const url = `/account/people/${await idOf(mail)}/${change}`;
  return world.ours.people.owner.post(url, fields);
};

const ends: Readonly<Record<string, { readonly status: number; readonly end: Ends }>> = {
  'the person was removed': {
    status: 303,
    end: ({ known }) => byOwner(known.mail, 'remove'),
  },
  'the person lost the role': {
    status: 403,
    end: ({ known }) => byOwner(known.mail, 'role', { role: 'viewer' }),
  },
  'the person signed out': {
    status: 303,
    end: ({ person }) => person.copy().post('/account/sign-out'),
  },
  'the session was ended from elsewhere': {
    status: 303,
    end: async ({ elsewhere }) => {
      const page = await elsewhere.page('/account/sessions');
      const form = page.forms.find(({ action }) => /sessions\/[0-9a-f-]{36}\/end$/.test(action));
      await elsewhere.post(form?.action ?? assert.fail('no session to end'));
    },
  },
  'the others were ended': {
    status: 303,
    end: ({ elsewhere }) => elsewhere.post('/account/sessions/end-others'),
  },
  'the password was changed': {
    status: 303,
    end: ({ elsewhere, known }) =>
      elsewhere.post('/account/profile/password', { current: known.password, next: NEXT }),
  },
  'the person was disabled': {
    status: 303,
    end: async ({ known }) => {
      const file = path.join(world.test.storageDir, '../matting.sqlite');
      const database = new DatabaseSync(file);
      database.prepare('update users set disabled_at = 1 where mail = ?').run(known.mail);
      database.close();
    },
  },
};

for (const [name, { status, end }] of Object.entries(ends)) {
  test(`make nothing once ${name}`, async t => {
    const of = await signedInTwice();
    const forms = [
      await of.person.hold('/account/keys', KEY),
      await of.person.hold('/account/people/invite', { mail: 'later@x.example', role: 'owner' }),
    ];
    await end(of);
    const before = world.rows();
    for (const form of forms) {
      const answer = await form.release();
      t.is(answer.status, status);
      t.is(answer.location, status === 303 ? SIGN_IN : undefined);
    }
    t.deepEqual(world.rows(), before);
  });
}

test('make nothing at any route once the person was removed', async t => {
  const { accountId, people } = world.ours;
  const things = await makeThings(world.test, world.ours);
  const routes = Object.entries(APP_ROUTES).filter(([name]) => name.startsWith('POST '));
  for (const [name, { params = {}, fields = {}, things: named = {} }] of routes) {
    const person = await world.join(accountId, 'owner');
    const chosen = Object.entries(named).map(([field, thing]) => [field, things[thing]]);
    const url = filled(name.slice('POST '.length), given => things[params[given] ?? 'jobId']);
    const isPlayground = url === '/account/playground';
    const own = { csrf: await person.token(), once: createSecret() };
    const sent = isPlayground ? multipartOf(own, pngHeader(4, 3)) : {};
    const held = await person.hold(url, { ...fields, ...Object.fromEntries(chosen) }, sent);
    const removed = await people.owner.post(`/account/people/${person.userId}/remove`);
    t.is(removed.statusCode, 303, removed.body);
    const before = world.rows();
    const { status, location, body } = await held.release();
    t.is(status, 303, `${name}: ${body}`);
    t.is(location, SIGN_IN, name);
    t.deepEqual(world.rows(), before, name);
  }
});

test('with a picture make no job once the person may not any more', async t => {
  const { accountId, people } = world.ours;
  const person = await world.join(accountId, 'member');
  const fields = { csrf: await person.token(), once: createSecret() };
  const held = await person.hold('/account/playground', {}, multipartOf(fields, pngHeader(4, 3)));
  const files = await world.test.storedFiles();
  const change = `/account/people/${person.userId}/role`;
  t.is((await people.owner.post(change, { role: 'viewer' })).statusCode, 303);
  const before = world.rows();
  const { status, body } = await held.release();
  t.is(status, 403, body);
  t.deepEqual(world.rows(), before);
  t.true((await world.test.storedFiles()).length <= files.length);
});

test('make nothing where the end comes between the last question and the change', async t => {
  const { accountId } = world.ours;
  const { sessions } = world.test.services.accountArea;
  const { people } = world.test.stores;
  const by = () => ({ actor: OPERATOR, entryId: randomUUID() });
  const ends = {
    303: (userId: string) => people.removeMember(accountId, userId, by()),
    403: (userId: string) => people.changeRole(accountId, userId, 'viewer', by()),
  };
  for (const [status, end] of Object.entries(ends)) {
    const person = await world.join(accountId, 'owner');
    const csrf = await person.token();
    const find = sessions.find.bind(sessions);
    let asked = 0;
    let before = {};
    sessions.find = async secret => {
      const found = await find(secret);
      asked += 1;
      if (asked === 2) {
        await end(person.userId);
        before = world.rows();
      }
      return found;
    };
    const answer = await person.post('/account/keys', KEY, { csrf }).finally(() => {
      sessions.find = find;
    });
    t.is(asked, 2, 'before the form, and once it is whole');
    t.is(answer.statusCode, Number(status), answer.body);
    t.deepEqual(world.rows(), before);
  }
});

test('are so many a minute, of one person', async t => {
  const person = await world.join(world.ours.accountId, 'owner');
  const csrf = await person.token();
  const change = (count: number) =>
    person.post('/account/settings/thresholds', { threshold: String(count) }, { csrf });
  for (let count = 1; count < CHANGES_A_MINUTE_MAX; count += 1) {
    t.is((await change(count)).statusCode, 303);
  }
  const before = world.rows();
  const late = await change(CHANGES_A_MINUTE_MAX);
  t.is(late.statusCode, 429, late.body);
  t.regex(late.body, /Too many attempts/);
  t.true(Number(late.headers['retry-after']) > 0);
  t.deepEqual(world.rows(), before);
  const { owner } = world.ours.people;
  t.is((await owner.post('/account/settings/thresholds')).statusCode, 303);
});

test('change no account but the one that their page was made for', async t => {
  const person = await world.join(world.ours.accountId, 'owner');
  await joinToo(world, person, world.theirs.accountId);
  const fields = { mail: 'of-alpha@x.example', role: 'owner' };
  const csrf = await person.token();
  const once = { csrf, once: createSecret() };
  const forms = [
    await person.hold('/account/people/invite', fields),
    await person.hold('/account/playground', {}, multipartOf(once, pngHeader(4, 3))),
  ];
  const switched = await person.copy().post('/account/switch', { account: world.theirs.accountId });
  t.is(switched.statusCode, 303, switched.body);
  const before = world.rows();
  for (const form of forms) t.is((await form.release()).status, 403);
  const stale = await person.post('/account/people/invite', fields, { csrf });
  t.is(stale.statusCode, 403);
  t.regex(stale.body, /too old/);
  t.deepEqual(world.rows(), before);
  t.is((await person.post('/account/people/invite', fields)).statusCode, 200);
});

/** Makes a member of another account of theirs; they act for the first one as before. */
async function joinToo({ test: fixture }: World, person: Member, accountId: string): Promise<void> {
  const of = { mail: person.mail, role: 'owner', purpose: 'sign-in' } as const;
  const link = newLink(accountId, of);
  assert.equal(await fixture.stores.links.create(link, OPERATOR), 'created');
  const use = linkUse(link, { passwordHash: null });
  assert.equal((await fixture.stores.links.use(use)).kind, 'signed-in');
}
