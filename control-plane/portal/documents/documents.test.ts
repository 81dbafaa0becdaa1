/** The pages about the interface: every call, and the error codes. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { ERRORS_PAGE, openTestApp as openCoreApp } from '@matting/core/test/support/test-app.ts';
import { ERROR_CATALOGUE } from '@matting/proto/contract/errors.ts';
import ava from 'ava';
import { useTestApp } from '../test/portal-app.ts';
import { renderDocsPage, renderErrorsPage } from './document-pages.ts';

const test = ava.serial;

const app = useTestApp(test);

let page: string;
let policy: string;
test.before(async () => {
  const answer = await app.app.inject('/docs');
  assert.equal(answer.statusCode, 200);
  assert.equal(answer.headers['content-type'], 'text/html; charset=utf-8');
  page = answer.payload;
  policy = String(answer.headers['content-security-policy']);
});

const VOID = ['meta', 'link'];

function elementsOf(html: string): string[] {
  const names: string[] = [];
  const open: string[] = [];
  for (const [, slash, name = ''] of html.matchAll(/<(\/?)([a-z][a-z0-9]*)\b[^>]*>/g)) {
    if (slash === '/') assert.equal(open.pop(), name);
    else {
      names.push(name);
      if (!VOID.includes(name)) open.push(name);
    }
  }
  assert.deepEqual(open, []);
  return names;
}

function valuesOf(attribute: string, html = page): string[] {
  return [...html.matchAll(new RegExp(` ${attribute}="([^"]*)"`, 'g'))].map(
    ([, value = '']) => value,
  );
}

test('it is whole HTML without anything that runs or loads', t => {
  const names = new Set(elementsOf(page));
  for (const name of ['script', 'img', 'iframe', 'object', 'embed', 'form', 'base', 'video']) {
    t.false(names.has(name), name);
  }
  t.notRegex(page, / on[a-z]+="|javascript:|@import|url\(/i);
  t.deepEqual(valuesOf('src'), []);
  t.deepEqual(valuesOf('style'), []);
  const outside = valuesOf('href').filter(href => !/^(#|\/(?!\/)|data:,$)/.test(href));
  t.deepEqual(outside, []);
});

test('its content security policy names its one style sheet and no host', t => {
  const styles = [...page.matchAll(/<style>([\s\S]*?)<\/style>/g)];
  t.is(styles.length, 1);
  const hash = createHash('sha256')
    .update(styles[0]?.[1] ?? '')
    .digest('base64');
  t.true(policy.includes(`style-src 'sha256-${hash}'`), policy);
  t.regex(policy, /^default-src 'none';/);
  t.regex(policy, /frame-ancestors 'none'/);
  t.notRegex(policy, /https?:|\*|unsafe/);
});

test('text of the document is text on the page', t => {
  const evil = '<script>alert("1")</script>&\'';
  const operation = {
    operationId: 'a',
    tags: ['T'],
    summary: evil,
    description: `${evil} \`${evil}\``,
    responses: { 200: { description: evil } },
  };
  const html = renderDocsPage(
    {
      info: { title: evil, version: evil, description: evil },
      servers: [{ url: evil }],
      tags: [{ name: 'T', description: evil }],
      paths: { [`/${evil}`]: { get: operation } },
      webhooks: {},
      components: { schemas: { A: { description: evil, properties: { [evil]: {} } } } },
    },
    { documentPath: '/a', errorDocsPath: '/b' },
  );
  t.true(html.includes("&lt;script>alert(&quot;1&quot;)&lt;/script>&amp;'"));
  t.false(elementsOf(html).includes('script'));
  t.notRegex(html, /undefined|\[object/);
});

const errorsMarkdown = readFileSync(
  path.resolve(import.meta.dirname, '../../../docs/errors.md'),
  'utf8',
);

test('the errors for a browser have an anchor where the type of each problem leads', t => {
  const html = renderErrorsPage(errorsMarkdown, { docsPath: '/docs' });
  const ids = valuesOf('id', html);
  t.is(new Set(ids).size, ids.length);
  for (const code of Object.keys(ERROR_CATALOGUE)) {
    t.true(ids.includes(code.toLowerCase()), code);
  }
});

test('Markdown of another make is text', t => {
  const html = renderErrorsPage('# A <b>\n\n[x](javascript:alert) <i>\n\n```\n<u>\n```', {
    docsPath: '/docs',
  });
  t.notRegex(html, /<b>|<i>|<u>|href="javascript/);
  elementsOf(html);
});

test('the errors are HTML where a request accepts it by name, otherwise Markdown', async t => {
  const browser = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
  const forPeople = await app.app.inject({ url: '/docs/errors', headers: browser });
  t.is(forPeople.headers['content-type'], 'text/html; charset=utf-8');
  t.is(forPeople.headers['content-security-policy'], policy);
  t.regex(forPeople.payload, /<h1>Errors<\/h1>/);
  for (const accept of ['*/*', 'text/markdown', undefined]) {
    const headers = accept === undefined ? {} : { accept };
    const plain = await app.app.inject({ url: '/docs/errors', headers });
    t.is(plain.payload, ERRORS_PAGE);
    t.is(plain.headers.vary, 'accept');
    t.regex(String(plain.headers['content-type']), /^text\/markdown/);
  }
});

test("the document of the interface has the portal's calls beside the core's", async t => {
  const core = await openCoreApp({}, t);
  const pathsOf = async (from: Pick<typeof app, 'app'>) =>
    Object.keys((await from.app.inject('/v1/openapi.json')).json().paths);
  const documented = await pathsOf(core);
  const others = (await pathsOf(app)).filter(path => !documented.includes(path));
  t.deepEqual(others, ['/v1/account/packages', '/v1/account/usage', '/docs']);
});
