import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import type { LightMyRequestResponse } from 'fastify';
import { createLink } from '../../people/invitations.ts';
import type { Role } from '../../session/roles.ts';
import { hashOfSecret } from '../../session/secret.ts';
import { newLink, OPERATOR } from '../people.ts';
import type { PortalApp } from '../portal-app.ts';
import { ReadPage } from './pages.ts';
import type { Person } from './person.ts';
import type { World } from './world.ts';

export interface Registered {
  readonly mail: string;
  readonly password: string;
}

export async function registerPerson(world: World, role: Role): Promise<Registered> {
  const token = randomBytes(32).toString('base64url');
  const link = newLink(world.ours.accountId, { role, tokenHash: hashOfSecret(token) });
  assert.equal(await world.test.stores.links.create(link, OPERATOR), 'created');
  const person = world.stranger();
  const url = `/account/invitations/${token}`;
  const password = `a long sentence ${randomBytes(4).toString('hex')}`;
  const csrf = (await person.page(url)).csrf ?? '';
  const answer = await person.post(url, { password }, { csrf });
  assert.equal(answer.statusCode, 303, answer.body);
  return { mail: link.mail, password };
}

export async function trySignIn(
  person: Person,
  { mail, password }: Registered,
  more: { readonly to?: string; readonly address?: string } = {},
): Promise<LightMyRequestResponse> {
  const query = more.to === undefined ? '' : `?to=${encodeURIComponent(more.to)}`;
  const sent = more.address === undefined ? {} : { address: more.address };
  const answer = await person.get(`/account/sign-in${query}`, sent);
  // The page redirects a signed-in person, but a form in another window can still be sent.
  if (answer.statusCode === 303) return person.post('/account/sign-in', { mail, password }, sent);
  const form = new ReadPage(answer.body).forms.find(({ fields }) => fields.has('password'));
  assert.ok(form, `no form to sign in: ${answer.statusCode} ${answer.body}`);
  const fields = { ...Object.fromEntries(form.fields), mail, password };
  return person.post(form.action, fields, { csrf: form.fields.get('csrf') ?? null, ...sent });
}

export async function signIn(person: Person, as: Registered): Promise<void> {
  const answer = await trySignIn(person, as);
  assert.equal(answer.statusCode, 303, answer.body);
}

export async function operatorLink(
  { stores }: PortalApp,
  of: { readonly accountId: string; readonly mail: string; readonly role: Role },
): Promise<string> {
  const link = { ...of, purpose: 'sign-in' } as const;
  const made = await createLink(stores.links, '', link, { kind: 'operator' });
  assert.ok(typeof made === 'object' && 'url' in made);
  return made.url;
}
