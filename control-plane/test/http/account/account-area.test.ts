/** The account area on the public port: what is there, what is not, and that neither knows the other. */
import ava from 'ava';
import { openTestApp, useTestApp } from '../../support/test-app.ts';

const test = ava.serial;

const fixture = useTestApp(test);

test('answers what is not there with a page', async t => {
  const answer = await fixture.app.inject({
    url: '/account/nothing',
    headers: { accept: 'text/html' },
  });
  t.is(answer.statusCode, 404);
  t.regex(answer.headers['content-type'] as string, /^text\/html/);
  t.regex(answer.headers['content-security-policy'] as string, /script-src 'self'/);
  t.regex(answer.body, /There is nothing here/);
  const chinese = await fixture.app.inject({
    url: '/account/nothing',
    headers: { accept: 'text/html', 'accept-language': 'zh-CN,zh;q=0.9' },
  });
  t.regex(chinese.body, /<html lang="zh-CN">/);
});

test('leaves the errors of the API as they are', async t => {
  const answer = await fixture.app.inject({ url: '/accounts' });
  t.is(answer.headers['content-type'], 'application/problem+json');
});

test('can be off', async t => {
  const off = await openTestApp({ accountArea: undefined }, t);
  const answer = await off.app.inject({ url: '/account/sign-in' });
  t.is(answer.statusCode, 404);
  t.is(answer.headers['content-type'], 'application/problem+json');
});
