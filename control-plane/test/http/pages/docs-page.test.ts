import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { ERROR_CATALOGUE } from '#contract/errors.ts';
import { renderDocsPage } from '../../../src/http/pages/docs-page.ts';
import { renderErrorsPage } from '../../../src/http/pages/errors-page.ts';
import { ERRORS_PAGE, useTestApp } from '../../support/test-app.ts';

interface Document {
  readonly paths: Record<string, Record<string, { operationId: string; summary: string }>>;
  readonly webhooks: Record<string, { post: { operationId: string } }>;
  readonly components: { readonly schemas: Record<string, unknown> };
}

const app = useTestApp({}, async () => {
  document = (await app.app.inject('/v1/openapi.json')).json();
  const answer = await app.app.inject('/docs');
  assert.equal(answer.statusCode, 200);
  assert.equal(answer.headers['content-type'], 'text/html; charset=utf-8');
  page = answer.payload;
  policy = String(answer.headers['content-security-policy']);
});
let document: Document;
let page: string;
let policy: string;

const VOID = ['meta', 'link'];

/** Names of the elements, in order; every one that was opened is closed in its turn. */
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

test('it is whole HTML without anything that runs or loads', () => {
  const names = new Set(elementsOf(page));
  for (const name of ['script', 'img', 'iframe', 'object', 'embed', 'form', 'base', 'video']) {
    assert.ok(!names.has(name), name);
  }
  assert.doesNotMatch(page, / on[a-z]+="|javascript:|@import|url\(/i);
  assert.deepEqual(valuesOf('src'), []);
  assert.deepEqual(valuesOf('style'), []);
  const outside = valuesOf('href').filter(href => !/^(#|\/(?!\/)|data:,$)/.test(href));
  assert.deepEqual(outside, []);
});

test('its content security policy names its one style sheet and no host', () => {
  const styles = [...page.matchAll(/<style>([\s\S]*?)<\/style>/g)];
  assert.equal(styles.length, 1);
  const hash = createHash('sha256')
    .update(styles[0]?.[1] ?? '')
    .digest('base64');
  assert.ok(policy.includes(`style-src 'sha256-${hash}'`), policy);
  assert.match(policy, /^default-src 'none';/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.doesNotMatch(policy, /https?:|\*|unsafe/);
});

test('it has every operation, webhook and schema, and every link into it leads somewhere', () => {
  const ids = valuesOf('id');
  assert.equal(new Set(ids).size, ids.length);
  const operations = Object.values(document.paths).flatMap(item => Object.values(item));
  const webhooks = Object.values(document.webhooks).map(({ post }) => post);
  for (const { operationId } of [...operations, ...webhooks]) assert.ok(ids.includes(operationId));
  for (const name of Object.keys(document.components.schemas)) {
    assert.ok(ids.includes(`schema-${name}`), name);
  }
  const inside = valuesOf('href').filter(href => href.startsWith('#'));
  for (const href of inside) assert.ok(ids.includes(href.slice(1)), href);
  assert.ok(inside.length > operations.length);
});

test('links to other pages of this service are answered', async () => {
  const others = new Set(valuesOf('href').filter(href => href.startsWith('/')));
  assert.ok(others.size > 1);
  for (const href of others) {
    assert.equal((await app.app.inject(href.replace(/#.*/, ''))).statusCode, 200, href);
  }
});

test('screen readers and keyboards find a language, a title, headings and landmarks', () => {
  assert.match(page, /^<!doctype html><html lang="en">/);
  assert.match(page, /<title>[^<]+<\/title>/);
  assert.match(page, /<meta name="viewport" content="width=device-width, initial-scale=1"\/?>/);
  assert.equal(page.match(/<h1>/g)?.length, 1);
  assert.equal(page.match(/<main id="content">/g)?.length, 1);
  assert.match(page, /<nav aria-label="[^"]+">/);
  const levels = elementsOf(page.slice(page.indexOf('<header')).replace(/<\/body>[\s\S]*/, ''))
    .filter(name => /^h\d$/.test(name))
    .map(name => Number(name[1]));
  for (const [index, level] of levels.entries()) {
    assert.ok(level <= (levels[index - 1] ?? 0) + 1, `h${level} after h${levels[index - 1]}`);
  }
});

test('text of the document is text on the page', () => {
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
  assert.ok(html.includes("&lt;script>alert(&quot;1&quot;)&lt;/script>&amp;'"));
  assert.ok(!elementsOf(html).includes('script'));
  assert.doesNotMatch(html, /undefined|\[object/);
});

const errorsMarkdown = readFileSync(
  path.resolve(import.meta.dirname, '../../../../docs/errors.md'),
  'utf8',
);

test('the errors for a browser have an anchor where the type of each problem leads', () => {
  const html = renderErrorsPage(errorsMarkdown, { docsPath: '/docs' });
  const ids = valuesOf('id', html);
  assert.equal(new Set(ids).size, ids.length);
  for (const code of Object.keys(ERROR_CATALOGUE)) {
    assert.ok(ids.includes(code.toLowerCase()), code);
    assert.ok(valuesOf('href', html).includes(`#${code.toLowerCase()}`), code);
  }
  const names = elementsOf(html);
  assert.equal(names.filter(name => name === 'h1').length, 1);
  assert.ok(names.includes('pre'));
  const outside = valuesOf('href', html).filter(href => !/^(#|\/docs$|data:,$)/.test(href));
  assert.deepEqual(outside, []);
  // No mark of Markdown is left over outside of code.
  const text = html.replaceAll(/<(style|pre|code)\b[\s\S]*?<\/\1>/g, '').replaceAll(/<[^>]*>/g, '');
  assert.doesNotMatch(text, /[`*]|\]\(|^#/m);
});

test('Markdown of another make is text', () => {
  const html = renderErrorsPage(
    '# A <b>\n\n[x](javascript:alert) [y](#z) <i>\n\n```\n`<u>\n\n#\n```',
    {
      docsPath: '/docs',
    },
  );
  assert.match(html, /<h1>A &lt;b><\/h1>/);
  assert.match(html, /<p>x <a href="#z">y<\/a> &lt;i><\/p>/);
  assert.match(html, /<pre tabindex="0"><code>`&lt;u>\n\n#\n<\/code><\/pre>/);
  elementsOf(html);
});

test('the errors are HTML where a request accepts it by name, otherwise Markdown', async () => {
  const browser = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
  const forPeople = await app.app.inject({ url: '/docs/errors', headers: browser });
  assert.equal(forPeople.headers['content-type'], 'text/html; charset=utf-8');
  assert.equal(forPeople.headers['content-security-policy'], policy);
  assert.match(forPeople.payload, /<h1>Errors<\/h1>/);
  for (const accept of ['*/*', 'text/markdown', undefined]) {
    const headers = accept === undefined ? {} : { accept };
    const plain = await app.app.inject({ url: '/docs/errors', headers });
    assert.equal(plain.payload, ERRORS_PAGE);
    assert.equal(plain.headers.vary, 'accept');
    assert.match(String(plain.headers['content-type']), /^text\/markdown/);
  }
});
