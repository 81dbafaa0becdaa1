/**
 * Names that want to be markup: each that somebody can choose is shown as the text that it is, on
 * every page that shows it, by a parser of HTML as browsers have it.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { newLink, OPERATOR } from '../../../store/people.ts';
import { APP_ROUTES } from '../../../support/area/app-routes.ts';
import { ReadPage } from '../../../support/area/pages.ts';
import { Person } from '../../../support/area/person.ts';
import { makeThings, submitJob, type Things } from '../../../support/area/things.ts';
import { filled, routesOf, signedIn, useWorld } from '../../../support/area/world.ts';
import { BASE_URL } from '../../../support/test-app.ts';

const test = ava.serial;

/** Breaks out of text, of an attribute in either quotes, of a script, of a comment. */
const MARKUP = `"><script>alert(1)</script>'><img src=x onerror=alert(2)>`;
const NAMES = {
  account: `acc${MARKUP}`,
  key: `key${MARKUP}`,
  otherKey: '</title></textarea><svg/onload=alert(3)>-->{{7*7}}<%= 7*7 %>',
  agent: `agent${MARKUP}`,
} as const;
/** What an address of mail may hold. */
const MAIL = `o'onload=alert&amp;4{}|%0a@example.org`;

let owner: Person;
let shown: readonly (readonly [string, ReadPage])[];
const world = useWorld(test, {}, async () => {
  const { test: fixture } = world;
  const { stores } = fixture;
  const account = await stores.accounts.create(NAMES.account);
  assert.ok(account);
  await stores.ledger.grant(account.id, 100, `reference ${MARKUP}`);
  const { token } = await stores.apiKeys.create(account.id, NAMES.key);
  await stores.apiKeys.create(account.id, NAMES.otherKey);
  const link = newLink(account.id, { role: 'owner', mail: MAIL });
  const person = await signedIn(fixture, new Person(fixture.app, BASE_URL), link, NAMES.agent);
  owner = person;
  const invited = newLink(account.id, { mail: `x${MAIL}` });
  assert.equal(await stores.links.create(invited, OPERATOR), 'created');
  const failed = await submitJob(fixture, token, {
    callback_url: `https://hooks.example.com/?a="><script>alert(5)</script>'&b=javascript:alert(6)`,
    callback_secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
  });
  const detail = `the decoder said ${MARKUP}`;
  await fixture.failJob(failed, { code: 'PROCESSING_FAILED', detail, retryable: false });
  const people = { owner: person, member: person, viewer: person };
  const things = {
    ...(await makeThings(fixture, { accountId: account.id, people })),
    jobId: failed,
  };
  shown = await readAll(things);
});

async function readAll(things: Things) {
  const pages: [string, ReadPage][] = [];
  for (const { method, url: pattern } of routesOf(world.test)) {
    if (method !== 'GET') continue;
    const { params = {} } = APP_ROUTES[`GET ${pattern}`] ?? {};
    const url = filled(pattern, name => things[params[name] ?? 'keyId']);
    const query = new URLSearchParams({
      to: MARKUP,
      said: MARKUP,
      after: MARKUP,
      status: MARKUP,
    });
    for (const asked of [url, `${url}?${query}`]) {
      // Some pages end what they are asked with.
      const answer = await owner.copy().get(asked, { headers: { 'user-agent': NAMES.agent } });
      if (!String(answer.headers['content-type']).startsWith('text/html')) continue;
      pages.push([asked, new ReadPage(answer.body)]);
    }
  }
  return pages;
}

test('nothing of a name runs, frames, styles or leads elsewhere', t => {
  t.true(shown.length > 20, 'the pages were not found');
  for (const [url, page] of shown) t.deepEqual(page.dangers, [], url);
});

test('they are shown as they are', t => {
  for (const name of [...Object.values(NAMES), MAIL, `x${MAIL}`]) {
    const where = shown.filter(([, page]) => page.shows(name));
    t.true(where.length > 0, `no page shows ${name}`);
  }
});
