/** Every page; `MATTING_TEST_SHOTS=dir` keeps pictures. Needs: portal. */
import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import type { LightMyRequestResponse } from 'fastify';
import type { Browser } from 'playwright-core';
import { APP_ROUTES } from '../../control-plane/portal/test/area/app-routes.ts';
import {
  fillAccount,
  makeThings,
  type Things,
} from '../../control-plane/portal/test/area/things.ts';
import { filled, routesOf } from '../../control-plane/portal/test/area/world.ts';
import { isNotTested } from '../support/skip.ts';
import { launchChromium, skipWithoutChromium, Visitor, type VisitorOptions } from './chromium.ts';
import { fillOperatorPages, openOperator, openPageSite, type PageSite } from './page-site.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutChromium()));

const PAGE_BYTES_MAX = 80_000;
/** A document's length follows its text. */
const DOCUMENT_BYTES_MAX = 72_000;
const PHONE = 360;
const DESK = 1280;
/** What most phones have; PHONE is the narrowest supported width. */
const PHONE_SHOWN = 390;
const DOCUMENTS = [
  '/docs',
  '/docs/matting',
  '/docs/rest',
  '/docs/requests',
  '/docs/formats',
  '/docs/schemas',
  '/docs/errors',
  '/docs/client',
];
const CHECKED: Readonly<Record<string, number>> = { 'en-light': DESK, 'zh-dark': PHONE };
const ASKED = [
  ['orders-review', '/account/orders/new?credits=2500&price=5000'],
  ['credits-reservations', '/account/credits?reservations=1'],
  ['usage-keys', '/account/usage?group=key'],
] as const;
const FIRST_RUN = ['', '/jobs', '/keys', '/usage', '/orders'];
const SHOTS = process.env.MATTING_TEST_SHOTS;

type Reader = 'stranger' | 'owner' | 'newcomer' | 'operator';

interface PageOfArea {
  readonly name: string;
  readonly url: string;
  readonly reader: Reader;
}

let browser: Browser;
let site: PageSite;
let pages: readonly PageOfArea[];
ava.serial.before(async () => {
  [browser, site] = await Promise.all([launchChromium(), openPageSite()]);
  await fillAccount(site.test, site.ours);
  await fillOperatorPages(site);
  pages = await findPages(site);
  if (SHOTS) await mkdir(SHOTS, { recursive: true });
});
ava.serial.after.always(async () => {
  await browser?.close();
  await site?.close();
});

async function openReaders(
  options: Pick<VisitorOptions, 'theme' | 'locale'>,
): Promise<Readonly<Record<Reader, Visitor>>> {
  const open = () => Visitor.open(browser, { ...options, origins: [site.origin] });
  const [stranger, owner, newcomer] = [await open(), await open(), await open()];
  await owner.signInAs(site.ours.people.owner.cookies);
  await newcomer.signInAs(site.theirs.people.owner.cookies);
  return { stranger, owner, newcomer, operator: await openOperator(browser, site, options) };
}

async function look(visitor: Visitor, page: PageOfArea, shot: string): Promise<string[]> {
  const status = await visitor.go(page.url);
  const found = status < 500 ? [] : [`answered ${status}`];
  const bytes = Buffer.byteLength(await visitor.page.content());
  const bytesMax = page.url.startsWith('/docs') ? DOCUMENT_BYTES_MAX : PAGE_BYTES_MAX;
  if (bytes > bytesMax) found.push(`has ${bytes} bytes`);
  for (const width of [DESK, PHONE]) {
    await visitor.page.setViewportSize({ width, height: 900 });
    const overflow = await visitor.overflow();
    if (overflow > 0) found.push(`is ${overflow} px wider than ${width} px`);
    const cut = await visitor.tableOverflow();
    if (cut > 0) found.push(`has a table ${cut} px wider than its place at ${width} px`);
    if (SHOTS) await keepShot(visitor, path.join(SHOTS, `${page.name}-${shot}`), width);
    // Colours depend on the theme, names on the language, layout on the width: each is checked
    // once.
    if (CHECKED[shot] !== width) continue;
    found.push(...(await visitor.seriousViolations()));
  }
  return [...found, ...visitor.takeProblems()].map(what => `${page.url}: ${what}`);
}

/** The whole page, with lazily loaded pictures. */
async function keepShot({ page }: Visitor, name: string, width: number): Promise<void> {
  const shown = width === PHONE ? PHONE_SHOWN : width;
  await page.setViewportSize({ width: shown, height: 900 });
  await page.evaluate(`Promise.all([...document.images].map(image => {
      image.loading = 'eager';
      return image.checkVisibility() ? image.decode().catch(() => {}) : undefined;
    }))`);
  await page.screenshot({ path: `${name}-${shown}.png`, fullPage: true });
  await page.setViewportSize({ width, height: 900 });
}

for (const theme of ['light', 'dark'] as const) {
  for (const locale of ['en-GB', 'zh-CN'] as const) {
    test(`are sound in ${locale}, ${theme}`, async t => {
      const visitors = await openReaders({ theme, locale });
      const found: string[] = [];
      for (const page of pages) {
        found.push(...(await look(visitors[page.reader], page, `${locale.slice(0, 2)}-${theme}`)));
      }
      for (const visitor of Object.values(visitors)) await visitor.close();
      t.deepEqual(found, []);
    });
  }
}

test('follow the dark theme, and the choice of a person', async t => {
  const colours: string[] = [];
  for (const theme of ['light', 'dark'] as const) {
    const visitor = await Visitor.open(browser, { origins: [site.origin], theme });
    await visitor.go('/account/sign-in');
    colours.push(
      await visitor.page.evaluate<string>('getComputedStyle(document.body).backgroundColor'),
    );
    await visitor.close();
  }
  const [light = '', dark = ''] = colours;
  t.not(light, dark);
  const visitor = await Visitor.open(browser, { origins: [site.origin], theme: 'light' });
  const ground = () =>
    visitor.page.evaluate<string>('getComputedStyle(document.body).backgroundColor');
  await visitor.go('/docs');
  t.is(await ground(), light);
  await visitor.page.getByLabel('Theme').selectOption('dark');
  t.is(await ground(), dark, 'the person chose it');
  await visitor.go('/account/sign-in');
  t.is(await ground(), dark, 'and keeps it');
  await visitor.go('/docs');
  await visitor.page.getByLabel('Theme').selectOption('system');
  t.is(await ground(), light);
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

const decode = (image: unknown) => (image as { decode(): Promise<void> }).decode();

test('of jobs show small pictures, and load a whole result only when it is opened', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin] });
  await visitor.signInAs(site.ours.people.owner.cookies);
  const { page } = visitor;
  const asked: string[] = [];
  page.on('request', request => asked.push(new URL(request.url()).pathname));
  const isDrawn = (place: string) =>
    page.locator(`${place} img[src$=thumbnail]`).first().evaluate(decode);
  await visitor.go('/account/jobs');
  await isDrawn('tbody');
  const reason = await page.getByText('The file is not a picture').first().boundingBox();
  t.true((reason?.width ?? 0) > 100, 'long names of keys leave room for reasons');
  await page.locator('tbody a:has(img)').first().click();
  await isDrawn('.cut-out');
  t.false(asked.some(url => url.endsWith('/result')));
  const whole = page.waitForRequest(/\/result$/);
  await page.getByText('Full size').click();
  await whole;
  await page.evaluate(`document.querySelector('.whole img').decode()`);
  const statuses: number[] = [];
  site.test.app.server.on('request', (_request, answer) => {
    answer.once('finish', () => statuses.push(answer.statusCode));
  });
  const saved = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Download' }).click();
  await (await saved).path();
  t.deepEqual(statuses, [304], 'what was shown is saved');
  const thumbnail = (await page.locator('.cut-out img').getAttribute('src')) ?? '';
  t.deepEqual(visitor.takeProblems(), []);
  t.is(await visitor.go(thumbnail), 200);
  const other = await Visitor.open(browser, { origins: [site.origin] });
  await other.signInAs(site.theirs.people.owner.cookies);
  t.is(await other.go(thumbnail), 404);
  await other.close();
  await visitor.close();
});

test('tell times in the zone of their reader, and in UTC where one is pointed at', async t => {
  const timezone = 'Asia/Shanghai';
  const visitor = await Visitor.open(browser, { origins: [site.origin], timezone });
  await visitor.signInAs(site.ours.people.owner.cookies);
  await visitor.go('/account/credits');
  const time = visitor.page.locator('tbody time').first();
  const instant = new Date((await time.getAttribute('datetime')) ?? '');
  const inZone = (timeZone: string) =>
    new Intl.DateTimeFormat('en-GB', { timeZone, dateStyle: 'medium', timeStyle: 'short' });
  t.is(await time.innerText(), inZone(timezone).format(instant));
  t.is(await time.getAttribute('title'), `${inZone('UTC').format(instant)} UTC`);
  await visitor.go('/account/playground');
  const within = visitor.page.locator('.send-row time');
  const reset = new Date((await within.getAttribute('datetime')) ?? '');
  t.is(await within.innerText(), inZone(timezone).format(reset));
  await visitor.go('/account/sessions');
  const lately = visitor.page.locator('time[data-ago]').first();
  t.regex(await lately.innerText(), /^(now|\d+ (sec|min)\.? ago)$/);
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

test('of usage show the figures of the day under the pointer', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin] });
  await visitor.signInAs(site.ours.people.owner.cookies);
  await visitor.go('/account/usage?group=key');
  // Midnight may have passed since the account was filled.
  const day = visitor.page.locator('.day').filter({ hasText: 'Others' }).last();
  t.false(await day.locator('.tip-ground').isVisible());
  await day.hover();
  await day.locator('.tip-ground').waitFor();
  t.regex((await day.locator('.tip').textContent()) ?? '', /\d+ \w{3,4} 20\d\d.*Others\s*\d/s);
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

test('of documents find words in all of them, and lead on old bookmarks', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin] });
  const { page } = visitor;
  await visitor.go('/docs');
  const find = page.getByLabel('Search the documentation');
  const results = page.getByRole('search').getByRole('link');
  for (const [words, first] of [
    ['retries idempotency', 'Requests: Retries and idempotency'],
    ['KEYCAP', 'Schemas: KeyCap'],
    ['quick start', 'Quick start: Quick start'],
  ] as const) {
    await find.fill(words);
    await results.filter({ hasText: first }).first().waitFor();
    t.is(await results.first().innerText(), first);
  }
  await find.fill('no such words here');
  await page.getByText('0 found').waitFor();
  t.is(await results.count(), 0);
  await find.fill('keycap');
  await results.first().click();
  await page.waitForURL(/\/docs\/schemas#schema-KeyCap$/);
  await visitor.go('/docs/rest#finishing');
  await page.waitForURL(/\/docs\/finishing#finishing$/);
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

test('of a new account say what to do next, and list nothing', async t => {
  const visitor = await Visitor.open(browser, { origins: [site.origin] });
  const { page } = visitor;
  await visitor.signInAs(site.theirs.people.owner.cookies);
  await visitor.go('/account');
  for (const step of ['Try it', 'Create an API key', 'Send your first picture']) {
    await page.getByRole('heading', { name: step, exact: true }).waitFor();
  }
  await page.locator('[data-drop-link]').waitFor();
  t.is(await page.locator('main table').count(), 0);
  await visitor.go('/account/jobs');
  await page.getByText('No jobs', { exact: true }).waitFor();
  t.is(await page.locator('main tbody tr, main img').count(), 0);
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

test('of the operator grant credits, and ask before they are revoked', async t => {
  const { accountId } = site.theirs;
  const available = async () => (await site.test.stores.ledger.balances(accountId))?.available ?? 0;
  const before = await available();
  const visitor = await openOperator(browser, site);
  const { page } = visitor;
  await visitor.go('/operator/pages/accounts');
  await page.getByRole('link', { name: 'their account' }).click();
  await page.locator('#grant-amount').fill('40');
  await page.getByRole('button', { name: 'Grant' }).click();
  await page.getByText('Credits granted.').waitFor();
  t.is(await available(), before + 40);
  for (const [answer, left] of [
    ['dismiss', before + 40],
    ['accept', before],
  ] as const) {
    page.once('dialog', dialog => void dialog[answer]());
    await page.locator('#revoke-amount').fill('40');
    await page.getByRole('button', { name: 'Revoke' }).click();
    if (answer === 'accept') await page.getByText('Credits revoked.').waitFor();
    t.is(await available(), left, answer);
  }
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Operator key').waitFor();
  t.deepEqual(visitor.takeProblems(), []);
  await visitor.close();
});

/** Routes that answer HTML only if asked for it are no pages. */
async function findPages(site: PageSite): Promise<PageOfArea[]> {
  const things = await makeThings(site.test, site.ours);
  const found: PageOfArea[] = [];
  for (const { method, url: pattern, config } of routesOf(site.test)) {
    if (method !== 'GET') continue;
    const isOpen = config.permission === undefined;
    const { params = {} } = APP_ROUTES[`GET ${pattern}`] ?? {};
    const url = filled(pattern, name => things[params[name] ?? 'keyId']);
    const who = isOpen ? site.stranger() : site.ours.people.owner.copy();
    if (!isPage(await who.get(url))) continue;
    found.push({ name: nameOf(pattern), url, reader: isOpen ? 'stranger' : 'owner' });
  }
  found.push({ name: 'not-found', url: '/account/nothing-here', reader: 'owner' });
  for (const [name, url] of ASKED) found.push({ name, url, reader: 'owner' });
  for (const url of DOCUMENTS) found.push({ name: nameOf(url), url, reader: 'stranger' });
  for (const place of FIRST_RUN) {
    const url = `/account${place}`;
    found.push({ name: `first-run-${nameOf(url)}`, url, reader: 'newcomer' });
  }
  assert.ok(found.length > 10, `the pages were not found: ${found.map(({ url }) => url)}`);
  return [...found, ...(await findOperatorPages(site, things))];
}

async function findOperatorPages(site: PageSite, things: Things): Promise<PageOfArea[]> {
  const { accountId: account, jobId: job, orderId: order } = things;
  const named: Readonly<Record<string, string>> = { account, job, order };
  const visitor = await openOperator(browser, site);
  const cookies = await visitor.context.cookies(`${site.operator.origin}/operator`);
  await visitor.close();
  const cookie = cookies.map(({ name, value }) => `${name}=${value}`).join('; ');
  const found: PageOfArea[] = [];
  for (const list of ['jobs', 'orders']) {
    const url = `/operator/pages/${list}?account=their%20account`;
    found.push({ name: `operator-no-${list}`, url, reader: 'operator' });
  }
  const missing = '/operator/pages/nothing-here';
  found.push({ name: 'operator-not-found', url: missing, reader: 'operator' });
  for (const pattern of site.operator.routes) {
    const url = filled(pattern, name => named[name] ?? 'none');
    const answer = await site.operator.app.inject({ url, headers: { cookie } });
    if (answer.statusCode !== 200 || !isPage(answer)) continue;
    found.push({ name: nameOf(pattern), url, reader: 'operator' });
  }
  assert.ok(found.length > 10, `not found: ${found.map(({ url }) => url)}`);
  return found;
}

function isPage({ headers }: LightMyRequestResponse): boolean {
  return String(headers['content-type']).startsWith('text/html');
}

function nameOf(pattern: string): string {
  return pattern.replace(/^\/(?:account\/?)?/, '').replaceAll(/[/:]+/g, '-') || 'overview';
}
