/**
 * Every route of the area × every role × an account of one's own, another's, and nobody: who may
 * gets an answer, who may not gets a refusal, and what belongs to another account does not exist.
 * The routes come from the application itself: one without a line in app-routes.ts fails here.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { requestOwner } from '#program/request-owner.ts';
import { may, ROLES } from '../../../../src/domain/account/roles.ts';
import { APP_ROUTES, OPEN_ROUTES } from '../../../support/area/app-routes.ts';
import type { Person } from '../../../support/area/person.ts';
import {
  makeThing,
  makeThings,
  type ThingName,
  type Things,
} from '../../../support/area/things.ts';
import { filled, type Member, routesOf, useWorld } from '../../../support/area/world.ts';
import type { ScopedRoute } from '../../../support/test-app.ts';

const test = ava.serial;

const nameOf = ({ method, url }: ScopedRoute) => `${method} ${url}`;
/** Of a page: its title. */
const startOf = (body: string) => /<h1>.*?<\/h1>/.exec(body)?.[0] ?? body.slice(0, 300);
/** For who asks, or for what it is about; a form that lacks fields is refused otherwise. */
const REFUSED = [401, 403, 404];

let routes: readonly ScopedRoute[];
const world = useWorld(test, {}, async () => {
  routes = routesOf(world.test);
});

const guarded = () => routes.filter(({ config }) => config.permission !== undefined);
const requestOf = (route: ScopedRoute, things: Partial<Things>) => {
  const { params = {}, fields = {}, things: named = {} } = APP_ROUTES[nameOf(route)] ?? {};
  const idOf = (name: ThingName | undefined) =>
    (name && things[name]) ?? assert.fail(`${nameOf(route)}: app-routes.ts lacks a thing`);
  const chosen = Object.entries(named).map(([field, name]) => [field, idOf(name)]);
  return {
    url: filled(route.url, name => idOf(params[name])),
    fields: { ...fields, ...Object.fromEntries(chosen) } as Record<string, string>,
  };
};
const thingsIn = (route: ScopedRoute): ThingName[] => {
  const { params = {}, things = {} } = APP_ROUTES[nameOf(route)] ?? {};
  return [...Object.values(params), ...Object.values(things)];
};
/** Only what the request names. */
const ownThings = async (route: ScopedRoute, person: Member): Promise<Partial<Things>> => {
  const made = thingsIn(route).map(async name => [
    name,
    await makeThing(world.test, name, world.ours, person),
  ]);
  return Object.fromEntries(await Promise.all(made));
};
const ask = async (who: Person, route: ScopedRoute, things: Partial<Things>, csrf: string) => {
  const { url, fields } = requestOf(route, things);
  const { shares } = world.test.stores;
  const { run } = shares;
  shares.run = work => {
    assert.ok(requestOwner(), `${nameOf(route)} asks the database as nobody's request`);
    return run.call(shares, work) as ReturnType<typeof work>;
  };
  try {
    return await (route.method === 'GET' ? who.get(url) : who.post(url, fields, { csrf }));
  } finally {
    shares.run = run;
  }
};

test('every route has its line', t => {
  const known = guarded().map(nameOf).sort();
  t.deepEqual(known, Object.keys(APP_ROUTES).sort());
  const open = routes.filter(({ config }) => config.permission === undefined);
  t.deepEqual(open.map(nameOf).sort(), [...OPEN_ROUTES].sort());
});

test('nobody without a session gets past sign-in', async t => {
  const things = await makeThings(world.test, world.ours);
  for (const route of guarded()) {
    const stranger = world.stranger();
    const answer = await ask(stranger, route, things, await stranger.token());
    t.is(answer.statusCode, 303, `${nameOf(route)}: ${answer.body}`);
    t.regex(String(answer.headers.location), /^\/account\/sign-in(?:\?to=%2Faccount|$)/);
  }
});

for (const role of ROLES) {
  test(`a ${role} may what the role has, in the own account`, async t => {
    for (const route of guarded()) {
      const { accountId, people } = world.ours;
      // Somebody new for each form: some end the session or the membership that asks.
      const isForm = route.method === 'POST';
      const person = isForm ? await world.join(accountId, role) : people[role];
      const things = await ownThings(route, person);
      const answer = await ask(person, route, things, await person.token());
      const { permission } = route.config;
      const isAllowed = permission !== undefined && may(role, permission);
      const text = `${role} ${nameOf(route)}: ${answer.statusCode} ${startOf(answer.body)}`;
      t.true(answer.statusCode < 500, text);
      if (!isAllowed) t.is(answer.statusCode, 403, text);
      else t.false(REFUSED.includes(answer.statusCode), text);
    }
  });

  test(`what another account has does not exist for a ${role}`, async t => {
    const things = await makeThings(world.test, world.theirs);
    const before = world.rows();
    const { [role]: person } = world.ours.people;
    const csrf = await person.token();
    for (const route of guarded().filter(one => thingsIn(one).length > 0)) {
      const { url } = requestOf(route, things);
      const answer = await ask(person, route, things, csrf);
      const { permission } = route.config;
      const isAllowed = permission !== undefined && may(role, permission);
      const text = `${role} ${nameOf(route)}: ${answer.statusCode} ${startOf(answer.body)}`;
      t.is(answer.statusCode, isAllowed ? 404 : 403, text);
      // The page's own address is in its forms.
      const body = answer.body.replaceAll(url, '');
      for (const thing of Object.values(things)) t.false(body.includes(thing), text);
    }
    t.deepEqual(world.rows(), before);
  });
}

test('sessions are the own ones alone, in the own account too', async t => {
  const { owner, viewer } = world.ours.people;
  const answer = await owner.post(`/account/sessions/${viewer.sessionId}/end`);
  t.is(answer.statusCode, 404, answer.body);
  t.is((await viewer.get('/account/profile')).statusCode, 200);
});
