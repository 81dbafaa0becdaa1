/** The account area on the public port: what is there, what is not, and that neither knows the other. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

describe('the account area', () => {
  const test = useTestApp();

  it('answers what is not there with a page', async () => {
    const answer = await test.app.inject({
      url: '/account/nothing',
      headers: { accept: 'text/html' },
    });
    assert.equal(answer.statusCode, 404);
    assert.match(answer.headers['content-type'] as string, /^text\/html/);
    assert.match(answer.headers['content-security-policy'] as string, /script-src 'self'/);
    assert.match(answer.body, /There is nothing here/);
    const chinese = await test.app.inject({
      url: '/account/nothing',
      headers: { accept: 'text/html', 'accept-language': 'zh-CN,zh;q=0.9' },
    });
    assert.match(chinese.body, /<html lang="zh-CN">/);
  });

  it('leaves the errors of the API as they are', async () => {
    const answer = await test.app.inject({ url: '/accounts' });
    assert.equal(answer.headers['content-type'], 'application/problem+json');
  });

  it('can be off', async t => {
    const off = await openTestApp({ accountArea: undefined }, t);
    const answer = await off.app.inject({ url: '/account/sign-in' });
    assert.equal(answer.statusCode, 404);
    assert.equal(answer.headers['content-type'], 'application/problem+json');
  });
});
