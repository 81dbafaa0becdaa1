/** The people of an account and the log of what they changed. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { newLink, OPERATOR } from '../../store/people.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

let owner: SignedInBrowser;
let stranger: SignedInBrowser;
const fixture = useTestApp(test, {}, async () => {
  owner = await signIn(fixture, { mail: 'first@example.org' });
  stranger = await signInElsewhere(fixture);
});

test('are invited by a link that is shown once', async t => {
  const mail = '<b>guest</b>@example.org';
  const wrong = await owner.post('/account/people/invite', { mail, role: 'member' });
  t.is(wrong.statusCode, 422);
  t.regex(wrong.body, /This is not a mail address/);
  t.false(wrong.body.includes('<b>guest'));
  const made = await owner.post('/account/people/invite', {
    mail: 'guest@example.org',
    role: 'member',
  });
  t.regex(made.body, /https:\/\/matting\.example\.com\/account\/invitations\/[\w-]{43}/);
  t.is(made.headers['cache-control'], 'no-store');
  const page = await owner.get('/account/people');
  t.regex(page.body, /guest@example\.org/);
  t.false(page.body.includes('/account/invitations/'));
  const id = /invitations\/([0-9a-f-]{36})\/withdraw/.exec(page.body)?.[1];
  const path = `/account/people/invitations/${id}/withdraw`;
  t.is((await stranger.post(path)).statusCode, 404);
  t.is((await owner.post(path)).statusCode, 303);
  t.regex((await owner.get('/account/people')).body, /Nobody is invited/);
});

test('get another role at once, and lose their sessions with the membership', async t => {
  const member = await signIn(fixture, { role: 'member' });
  const path = `/account/people/${member.userId}`;
  t.is((await member.get('/account/people')).statusCode, 403);
  t.is((await stranger.post(`${path}/role`, { role: 'viewer' })).statusCode, 404);
  t.is((await owner.post(`${path}/role`, { role: 'king' })).statusCode, 400);
  t.is((await owner.post(`${path}/role`, { role: 'owner' })).statusCode, 303);
  t.is((await member.get('/account/people')).statusCode, 200);
  t.is((await stranger.post(`${path}/remove`)).statusCode, 404);
  t.is((await owner.post(`${path}/remove`)).statusCode, 303);
  t.is((await member.get('/account/sessions')).statusCode, 303);
});

test('keep an owner', async t => {
  const path = `/account/people/${owner.userId}`;
  for (const change of [`${path}/remove`, `${path}/role`]) {
    const answer = await owner.post(change, { role: 'viewer' });
    t.is(answer.statusCode, 422);
    t.regex(answer.body, /the account would have no owner/);
  }
  t.is((await owner.get('/account/people')).statusCode, 200);
});

test('find every change in the log, and no other account’s', async t => {
  const page = await owner.get('/account/audit');
  for (const words of ['Person invited', 'Role changed', 'Person removed', 'member → owner']) {
    t.regex(page.body, new RegExp(words));
  }
  t.regex(page.body, /first@example\.org/);
  t.false((await stranger.get('/account/audit')).body.includes('first@example.org'));
});

test('read the log page after page', async t => {
  const { links } = fixture.stores;
  for (let count = 0; count < 55; count += 1) {
    const link = newLink(fixture.accountId, { mail: `page-${count}@example.org` });
    await links.create(link, OPERATOR);
    await links.withdraw(fixture.accountId, link.id, { actor: OPERATOR, entryId: randomUUID() });
  }
  const seen = new Set<string>();
  let path: string | undefined = '/account/audit';
  let pages = 0;
  while (path !== undefined) {
    const { body } = await owner.get(path);
    for (const [, mail] of body.matchAll(/(page-\d+@example\.org)/g)) seen.add(mail ?? '');
    path = /href="([^"]+)" rel="next"/.exec(body)?.[1]?.replaceAll('&amp;', '&');
    pages += 1;
  }
  t.is(seen.size, 55);
  t.is(pages, 3);
});
