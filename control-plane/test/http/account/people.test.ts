/** The people of an account and the log of what they changed. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { describe, it } from 'node:test';
import { newLink, OPERATOR } from '../../store/people.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../../support/signed-in-browser.ts';
import { useTestApp } from '../../support/test-app.ts';

describe('the people of an account', () => {
  let owner: SignedInBrowser;
  let stranger: SignedInBrowser;
  const test = useTestApp({}, async () => {
    owner = await signIn(test, { mail: 'first@example.org' });
    stranger = await signInElsewhere(test);
  });

  it('are invited by a link that is shown once', async () => {
    const mail = '<b>guest</b>@example.org';
    const wrong = await owner.post('/account/people/invite', { mail, role: 'member' });
    assert.equal(wrong.statusCode, 422);
    assert.match(wrong.body, /This is not a mail address/);
    assert.ok(!wrong.body.includes('<b>guest'));
    const made = await owner.post('/account/people/invite', {
      mail: 'guest@example.org',
      role: 'member',
    });
    assert.match(made.body, /https:\/\/matting\.example\.com\/account\/invitations\/[\w-]{43}/);
    assert.equal(made.headers['cache-control'], 'no-store');
    const page = await owner.get('/account/people');
    assert.match(page.body, /guest@example\.org/);
    assert.ok(!page.body.includes('/account/invitations/'));
    const id = /invitations\/([0-9a-f-]{36})\/withdraw/.exec(page.body)?.[1];
    const path = `/account/people/invitations/${id}/withdraw`;
    assert.equal((await stranger.post(path)).statusCode, 404);
    assert.equal((await owner.post(path)).statusCode, 303);
    assert.match((await owner.get('/account/people')).body, /Nobody is invited/);
  });

  it('get another role at once, and lose their sessions with the membership', async () => {
    const member = await signIn(test, { role: 'member' });
    const path = `/account/people/${member.userId}`;
    assert.equal((await member.get('/account/people')).statusCode, 403);
    assert.equal((await stranger.post(`${path}/role`, { role: 'viewer' })).statusCode, 404);
    assert.equal((await owner.post(`${path}/role`, { role: 'king' })).statusCode, 400);
    assert.equal((await owner.post(`${path}/role`, { role: 'owner' })).statusCode, 303);
    assert.equal((await member.get('/account/people')).statusCode, 200);
    assert.equal((await stranger.post(`${path}/remove`)).statusCode, 404);
    assert.equal((await owner.post(`${path}/remove`)).statusCode, 303);
    assert.equal((await member.get('/account/sessions')).statusCode, 303);
  });

  it('keep an owner', async () => {
    const path = `/account/people/${owner.userId}`;
    for (const change of [`${path}/remove`, `${path}/role`]) {
      const answer = await owner.post(change, { role: 'viewer' });
      assert.equal(answer.statusCode, 422);
      assert.match(answer.body, /the account would have no owner/);
    }
    assert.equal((await owner.get('/account/people')).statusCode, 200);
  });

  it('find every change in the log, and no other account’s', async () => {
    const page = await owner.get('/account/audit');
    for (const words of ['Person invited', 'Role changed', 'Person removed', 'member → owner']) {
      assert.match(page.body, new RegExp(words));
    }
    assert.match(page.body, /first@example\.org/);
    assert.ok(!(await stranger.get('/account/audit')).body.includes('first@example.org'));
  });

  it('read the log page after page', async () => {
    const { links } = test.stores;
    for (let count = 0; count < 55; count += 1) {
      const link = newLink(test.accountId, { mail: `page-${count}@example.org` });
      await links.create(link, OPERATOR);
      await links.withdraw(test.accountId, link.id, { actor: OPERATOR, entryId: randomUUID() });
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
    assert.equal(seen.size, 55);
    assert.equal(pages, 3);
  });
});
