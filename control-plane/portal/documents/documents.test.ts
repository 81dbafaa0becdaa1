/** The pages about the interface: every call, the guide, the error codes, and where they begin. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import {
  BASE_URL,
  ERRORS_PAGE,
  openTestApp as openCoreApp,
} from '@matting/core/test/support/test-app.ts';
import { ERROR_CATALOGUE } from '@matting/proto/contract/errors.ts';
import ava from 'ava';
import { renderPart } from '../page/html.ts';
import { openTestApp, useTestApp } from '../test/portal-app.ts';
import { renderMarkdownPage } from './document-pages.ts';
import { renderDocsPage } from './interface-page.ts';
import { codeSamples } from './samples.ts';

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

const VOID = ['meta', 'link', 'input'];

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

test('it is whole HTML without anything that loads, and runs its search alone', t => {
  const elements = elementsOf(page);
  t.is(elements.filter(name => name === 'script').length, 1);
  const names = new Set(elements);
  for (const name of ['img', 'iframe', 'object', 'embed', 'form', 'base', 'video']) {
    t.false(names.has(name), name);
  }
  t.notRegex(page, / on[a-z]+="|javascript:|@import|url\(/i);
  t.deepEqual(valuesOf('src'), []);
  t.deepEqual(valuesOf('style'), []);
  const outside = valuesOf('href').filter(href => !/^(#|\/(?!\/)|data:,$)/.test(href));
  t.deepEqual(outside, []);
});

test('its content security policy names its one style sheet, its one script and no host', t => {
  for (const name of ['style', 'script']) {
    const found = [...page.matchAll(new RegExp(`<${name}[^>]*>([\\s\\S]*?)</${name}>`, 'g'))];
    t.is(found.length, 1);
    const hash = createHash('sha256')
      .update(found[0]?.[1] ?? '')
      .digest('base64');
    t.true(policy.includes(`${name}-src 'sha256-${hash}'`), policy);
  }
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
    { hasAccountArea: true },
  );
  t.true(html.includes("&lt;script>alert(&quot;1&quot;)&lt;/script>&amp;'"));
  t.is(elementsOf(html).filter(name => name === 'script').length, 1);
  t.notRegex(html.replace(/<script[\s\S]*<\/script>/, ''), /undefined|\[object/);
});

const read = (name: string) =>
  readFileSync(path.resolve(import.meta.dirname, '../../../docs', name), 'utf8');
const ERRORS = { path: '/docs/errors', hasAccountArea: true } as const;

test('the errors for a browser have an anchor where the type of each problem leads', t => {
  const ids = valuesOf('id', renderMarkdownPage(read('errors.md'), ERRORS));
  t.is(new Set(ids).size, ids.length);
  for (const code of Object.keys(ERROR_CATALOGUE)) {
    t.true(ids.includes(code.toLowerCase()), code);
  }
});

test('Markdown of another make is text', t => {
  const text = '# A <b>\n\n[x](javascript:alert) [y](//b.c) [z](/zz) <i>\n\n```\n<u>\n```';
  const html = renderMarkdownPage(text, ERRORS);
  t.notRegex(html, /<b>|<i>|<u>|href="(?:javascript|\/\/|\/zz)/);
  elementsOf(html);
});

test('the guide has all of docs/rest.md, none of its marks, and links that lead somewhere', async t => {
  const guide = (await app.app.inject('/docs/rest')).payload;
  elementsOf(guide);
  const main = /<main[\s\S]*<\/main>/.exec(guide)?.[0] ?? '';
  const words = main.replaceAll(/<(pre|code)\b[\s\S]*?<\/\1>/g, '');
  t.notRegex(words, /\*\*|`|\]\(|^\||^#|^- /m);
  t.true(valuesOf('href', main).length > 5);
  const headings = [...read('rest.md').matchAll(/^##+ /gm)];
  t.is(main.match(/<h[23]>/g)?.length, headings.length);
  t.is(main.match(/<pre/g)?.length, [...read('rest.md').matchAll(/^```/gm)].length / 2);
});

test('every link among the documents leads to a place on one', async t => {
  const errors = renderMarkdownPage(read('errors.md'), ERRORS);
  const paths = ['/docs/rest', '/docs/schemas'];
  const others = await Promise.all(paths.map(async url => (await app.app.inject(url)).payload));
  const pages = {
    '/docs': page,
    '/docs/errors': errors,
    [paths[0]!]: others[0],
    [paths[1]!]: others[1],
  };
  for (const [path, html = ''] of Object.entries(pages)) {
    t.true(Buffer.byteLength(html) < 80_000, `${path} has ${Buffer.byteLength(html)} bytes`);
    elementsOf(html);
    const ids = valuesOf('id', html);
    t.is(new Set(ids).size, ids.length, path);
    for (const href of valuesOf('href', html)) {
      const [to, anchor] = href.split('#');
      const target = Object.entries(pages).find(([one]) => one === (to || path))?.[1];
      if (target === undefined) t.regex(href, /^(?:\/account|\/v1\/openapi|data:,$|https:)/, href);
      else if (anchor) t.true(valuesOf('id', target).includes(anchor), `${path}: ${href}`);
    }
  }
});

test('the page begins with the call in each language, and tells where keys are made', async t => {
  const start = page.slice(page.indexOf('id="quick-start"'), page.indexOf('id="rules"'));
  for (const { text } of codeSamples({ baseUrl: BASE_URL })) {
    t.true(start.includes(renderPart(text)), text);
  }
  t.true(start.includes('href="/account/keys"'));
  const own = await openTestApp({ settings: { portal: { accountArea: undefined } } }, t);
  t.notRegex((await own.app.inject('/docs')).payload, /href="\/account/);
});

test('fields stand before parameters, and what is said of a body is said once', t => {
  const [, first = '', second = ''] = page.split(/(?=<article )/);
  t.regex(first, /<h4>Body<[\s\S]*image_file[\s\S]*image_url[\s\S]*<h4>Parameters<[\s\S]*Answers:/);
  t.is(first.match(/<dt><code>output_format</g)?.length, 2, 'as a field and in the query');
  t.regex(second, /The body is that of/);
  t.notRegex(second, /image_file|<dt><code>(?:output_format|Idempotency-Key)</);
});

test('the root leads a browser on, and names the documents to a program', async t => {
  const own = await openTestApp({ settings: { portal: { accountArea: undefined } } }, t);
  const lone = await openCoreApp({}, t);
  for (const [at, home, docs] of [
    [app, '/account', '/docs'],
    [own, '/docs', '/docs'],
    [lone, undefined, '/docs/errors'],
  ] as const) {
    const people = await at.app.inject({ url: '/', headers: { accept: 'text/html,*/*;q=0.8' } });
    t.deepEqual([people.statusCode, people.headers.location], [home ? 303 : 200, home]);
    for (const accept of ['*/*', 'application/json', undefined]) {
      const answer = await at.app.inject({ url: '/', headers: accept ? { accept } : {} });
      t.is(answer.headers.vary, 'accept');
      const named = {
        service: 'matting',
        openapi: '/v1/openapi.json',
        docs,
        matting: '/v1/matting',
      };
      t.deepEqual(answer.json(), named);
      t.is((await at.app.inject(answer.json().docs)).statusCode, 200);
    }
  }
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
  t.deepEqual(others, [
    '/v1/account/packages',
    '/v1/account/usage',
    '/docs',
    '/docs/rest',
    '/docs/schemas',
  ]);
});
