import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { BASE_URL, openTestApp as openCoreApp } from '@matting/core/test/support/test-app.ts';
import { ERROR_CATALOGUE } from '@matting/proto/contract/errors.ts';
import ava from 'ava';
import { openTestApp, useTestApp } from '../test/portal-app.ts';
import { renderPart } from '../test/render-part.ts';
import { renderMarkdownPage } from './document-pages.ts';
import { GUIDES, guidePath, readGuide } from './guides.ts';
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

const BRAND = { name: undefined, style: undefined, logo: undefined };
const NAVIGATION = [{ group: 'Start', links: [{ href: '/docs', label: 'Quick start' }] }];
const PLACE = { path: '/docs', navigation: NAVIGATION, brand: BRAND, hasAccountArea: true };
const VOID = ['meta', 'link', 'input', 'img'];

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

test('a page is complete HTML, and loads from this service alone', t => {
  const names = new Set(elementsOf(page));
  for (const name of ['iframe', 'object', 'embed', 'form', 'base', 'video']) {
    t.false(names.has(name), name);
  }
  t.notRegex(page, / on[a-z]+="|javascript:|@import|url\(|<style/i);
  t.deepEqual(valuesOf('style'), []);
  const outside = valuesOf('href').filter(href => !/^(#|\/(?!\/)|data:,$)/.test(href));
  t.deepEqual(outside, []);
  t.regex(policy, /^default-src 'none'; style-src 'self'; script-src 'self';/);
  t.regex(policy, /frame-ancestors 'none'/);
  t.notRegex(policy, /https?:|\*|unsafe/);
});

test('pages behind a base URL with a path lead to addresses that the proxy in front serves', async t => {
  const prefix = '/matting';
  const proxied = await openTestApp({ baseUrl: `${BASE_URL}${prefix}` });
  t.teardown(() => proxied.close());
  const request = (url: string) => {
    const headers = { accept: 'text/html' };
    return proxied.app.inject({ url: url.slice(prefix.length), headers });
  };
  const home = await proxied.app.inject({ url: '/', headers: { accept: 'text/html' } });
  t.is(home.headers.location, `${prefix}/docs`);
  const { docs } = (await proxied.app.inject('/')).json();
  t.is(docs, `${prefix}/docs`);
  const left = new Set([docs, `${prefix}/docs/errors`, `${prefix}/account`, `${prefix}/nothing`]);
  const seen = new Set<string>();
  for (const url of left) {
    seen.add(url);
    const answer = await request(url);
    if (answer.headers.location !== undefined) left.add(String(answer.headers.location));
    if (!/html/.test(String(answer.headers['content-type']))) continue;
    const links = [...valuesOf('href', answer.payload), ...valuesOf('src', answer.payload)];
    const own = links.map(link => link.replace(/#.*/, '')).filter(link => link.startsWith('/'));
    t.deepEqual(
      own.filter(link => !link.startsWith(`${prefix}/`)),
      [],
      url,
    );
    for (const link of own) if (!seen.has(link)) left.add(link);
  }
  t.true(seen.size > 30);
  const missing: string[] = [];
  for (const url of seen) {
    if (/\/(account|nothing)/.test(url)) continue;
    const { statusCode } = await request(url);
    if (statusCode !== 200) missing.push(`${statusCode} ${url}`);
  }
  t.deepEqual(missing, []);
  const markdown = (await proxied.app.inject('/docs/errors.md')).payload;
  const links = [...markdown.matchAll(/\]\((\/[^)]*)\)/g)].map(([, link = '']) => link);
  t.true(links.length > 0 && links.every(link => link.startsWith(`${prefix}/`)), links.join());
});

function textOf(line: string): string[] {
  if (/^\|[ :|-]+$/.test(line)) return [];
  const cells = line.startsWith('|') ? line.slice(1, -1).split(/ \|(?= )/) : [line];
  return cells.map(cell => squeezed(cell.replace(/^(?:#+|-|\d+\.) /, '')));
}

/** Without Markdown's marks, and without blanks, which a page may place differently. */
function squeezed(text: string): string {
  return text.replaceAll(/[\s`*]/g, '');
}

test('a guide’s page has every line of its Markdown, whatever stands beside it', async t => {
  for (const guide of GUIDES) {
    const headers = { accept: 'text/html' };
    const { payload } = await app.app.inject({ url: guidePath(guide), headers });
    const [, main = ''] = payload.split(/<main[^>]*>/);
    const shown = squeezed(decoded(main.replaceAll(/<[^>]+>/g, '')));
    const markdown = readGuide(guide, BASE_URL).replaceAll(/^```\w*$/gm, '');
    const plain = markdown
      .replaceAll(/!\[[^\]]*\]\([^)]+\)/g, '')
      .replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1');
    const texts = plain.split('\n').flatMap(textOf);
    t.true(texts.length > 20, guide.name);
    t.deepEqual(
      texts.filter(text => !shown.includes(text)),
      [],
      guide.name,
    );
  }
});

function decoded(html: string): string {
  const named: Readonly<Record<string, string>> = {
    lt: '<',
    gt: '>',
    quot: '"',
    amp: '&',
    '#39': "'",
  };
  return html.replaceAll(/&(#?\w+);/g, (whole, name: string) => named[name] ?? whole);
}

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
    PLACE,
    { hasAccountArea: true, hasClient: true },
  );
  t.true(html.includes("&lt;script>alert(&quot;1&quot;)&lt;/script>&amp;'"));
  t.notRegex(html, /<script(?!(?: type="module")? src="\/docs\/assets\/)/);
  elementsOf(html);
  t.notRegex(html, /undefined|\[object/);
});

const read = (name: string) =>
  readFileSync(path.resolve(import.meta.dirname, '../../../docs', name), 'utf8');
const rendered = (markdown: string) => renderMarkdownPage(markdown, 'docs/errors.md', PLACE);

test('the errors for a browser have an anchor where the type of each problem leads', t => {
  const ids = valuesOf('id', rendered(read('errors.md')));
  t.is(new Set(ids).size, ids.length);
  for (const code of Object.keys(ERROR_CATALOGUE)) {
    t.true(ids.includes(code.toLowerCase()), code);
  }
});

test('Markdown of another make is text', t => {
  const text = '# A <b>\n\n[x](javascript:alert) [y](//b.c) [z](/zz) <i>\n\n```\n<u>\n```';
  const html = rendered(text);
  t.notRegex(html, /<b>|<i>|<u>|href="(?:javascript|\/\/|\/zz)/);
  elementsOf(html);
});

const get = (url: string, accept = 'text/html') => app.app.inject({ url, headers: { accept } });

async function allPages(): Promise<ReadonlyMap<string, string>> {
  const listed = [...page.matchAll(/<li><a href="(\/docs[^"#]*)"/g)].map(([, path = '']) => path);
  const found = new Map<string, string>();
  for (const path of listed) found.set(path, (await get(path)).payload);
  return found;
}

test('each guide has all of its file, none of its marks, and links that lead somewhere', async t => {
  for (const guide of GUIDES) {
    const html = (await get(guidePath(guide))).payload;
    elementsOf(html);
    const main = /<main[\s\S]*<\/main>/.exec(html)?.[0] ?? '';
    const words = main.replaceAll(/<(pre|code)\b[\s\S]*?<\/\1>/g, '');
    t.notRegex(words, /\*\*|`|\]\(|^\||^#|^- |^\d\. /m, guide.name);
    const text = readFileSync(new URL(`../../../${guide.file}`, import.meta.url), 'utf8');
    const headings = [...text.replaceAll(/^```[\s\S]*?^```/gm, '').matchAll(/^##+ /gm)];
    t.is(main.match(/<h[23]>/g)?.length ?? 0, headings.length, guide.name);
    t.true(
      (main.match(/<pre/g)?.length ?? 0) >= [...text.matchAll(/^```/gm)].length / 2,
      guide.name,
    );
  }
});

test('every link among the documents leads to a place on one', async t => {
  const pages = await allPages();
  t.true(pages.size > 15);
  for (const guide of GUIDES) {
    const [title = ''] = readGuide(guide, BASE_URL).split('\n');
    const shown = /<h1>(.*)<\/h1>/.exec(pages.get(guidePath(guide)) ?? '');
    t.is(shown?.[1], title.slice('# '.length).replaceAll('`', ''), 'no other page has its path');
  }
  for (const [path, html] of pages) {
    t.true(Buffer.byteLength(html) <= 70_000, `${path} has ${Buffer.byteLength(html)} bytes`);
    elementsOf(html);
    const ids = valuesOf('id', html);
    t.is(new Set(ids).size, ids.length, path);
    for (const href of [...valuesOf('href', html), ...valuesOf('src', html)]) {
      const [to, anchor] = href.split('#');
      const target = pages.get(to || path);
      if (target !== undefined) {
        if (anchor) t.true(valuesOf('id', target).includes(anchor), `${path}: ${href}`);
      } else if (!/^(?:\/account|data:,$|https:)/.test(href)) {
        t.is((await get(href)).statusCode, 200, `${path}: ${href}`);
      }
    }
  }
});

/** The sections that /docs/rest had before they got pages of their own. */
const MOVED = `send-the-image images-by-their-url wait-for-the-result submit-without-waiting batches
  get-the-picture-as-the-answer references list-your-jobs cancel-and-delete download-the-result
  callbacks check-the-signature callbacks-to-your-own-machine events-of-an-account finishing images
  retries-and-idempotency say-what-to-keep correct-a-result what-was-seen models credits api-keys
  rate-limits the-order-of-checks`.split(/\s+/);

test('a bookmark of each section that /docs/rest had leads to the section', async t => {
  const [, rest = ''] = (await get('/docs/rest')).payload.split(/<main[^>]*>/);
  const anchors = [...new Set(valuesOf('href', rest))].map(href => href.split('#')[1]);
  for (const anchor of MOVED) {
    t.is(anchors.filter(one => one === anchor).length, 1, anchor);
    t.false(valuesOf('id', rest).includes(anchor), 'its script would stay here');
  }
  t.true(valuesOf('id', rest).includes('make-your-first-call'));
});

test('programs get Markdown of every page, with links that lead to Markdown or files', async t => {
  for (const path of (await allPages()).keys()) {
    const accepted = await get(path, 'text/markdown');
    t.regex(String(accepted.headers['content-type']), /^text\/markdown/, path);
    t.is(accepted.headers.vary, 'accept', path);
    if (path !== '/docs') t.is((await get(`${path}.md`)).payload, accepted.payload, path);
    for (const [, to = ''] of accepted.payload.matchAll(/\]\((\/[^)#]+)/g)) {
      t.is((await get(to, 'text/markdown')).statusCode, 200, `${path}: ${to}`);
    }
    t.notRegex(accepted.payload, /\]\((?!\/|#|https?:)/, path);
  }
});

test('llms.txt lists the documents, with the address of this service', async t => {
  const { payload, headers } = await get('/llms.txt', '*/*');
  t.regex(String(headers['content-type']), /^text\/markdown/);
  t.regex(payload, /^# .+\n\n> .+/);
  const links = [...payload.matchAll(/\]\(([^)]+)\)/g)].map(([, to = '']) => to);
  t.true(links.length > GUIDES.length);
  for (const link of links) {
    t.true(link.startsWith(`${BASE_URL}/`), link);
    t.is((await get(link.slice(BASE_URL.length), '*/*')).statusCode, 200, link);
  }
});

test('the client is served as npm installs it, of the version of this project', async t => {
  const { rawPayload, headers } = await get('/client.tgz', '*/*');
  t.is(headers['content-type'], 'application/gzip');
  const options = { input: rawPayload, encoding: 'utf8' } as const;
  const manifest = execFileSync('tar', ['-xzO', 'package/package.json'], options);
  const project = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  t.is(JSON.parse(manifest).version, JSON.parse(project).version);
  const guide = (await get('/docs/client')).payload;
  for (const html of [page, guide]) t.true(html.includes(`npm install ${BASE_URL}/client.tgz`));
});

test('files that no guide leads to are not served', async t => {
  for (const path of [
    'images/draw-demo.ts',
    'examples/tell-payment.ts',
    'adr/0045',
    '..%2frest/a',
  ]) {
    t.is((await get(`/docs/${path}`)).statusCode, 404, path);
  }
  for (const name of ['nodes', 'settings.md', '..%2f..%2fpackage.json', 'toString']) {
    t.is((await get(`/docs/${name}`)).statusCode, 404, name);
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

test('fields stand before parameters, and what is said of a body is said once', async t => {
  const reference = (await get('/docs/matting')).payload;
  const [, ...articles] = reference.split(/(?=<article )/);
  const [first = '', second = ''] = articles.filter(one => one.includes('class="method post"'));
  t.regex(first, /<h4>Body<[\s\S]*image_file[\s\S]*image_url[\s\S]*<h4>Parameters<[\s\S]*Answers:/);
  t.is(first.match(/<dt><code>output_format</g)?.length, 1);
  t.regex(first, /in the query: [\s\S]*<code>output_format</);
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
    t.regex(plain.payload, /^# Errors\n/);
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
    '/llms.txt',
    '/client.tgz',
    '/docs',
    '/docs/{page}',
    '/docs/images/{name}',
    '/docs/examples/{name}',
  ]);
});
