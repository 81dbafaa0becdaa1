/** The tests' OpenID provider is a real one: it refuses what a provider refuses. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import * as client from 'openid-client';
import { OpenIdProvider } from './openid-provider.ts';

const REDIRECT = 'http://localhost:1/back';

/** Follows redirects with cookies, says who one is, and stops at the redirect back. */
async function signIn(start: URL, subject: string): Promise<URL> {
  const cookies = new Map<string, string>();
  let place = start;
  for (let steps = 0; steps < 10; steps += 1) {
    if (place.href.startsWith(REDIRECT)) return place;
    const isForm = place.pathname.startsWith('/who-are-you/');
    const answer = await fetch(place, {
      method: isForm ? 'POST' : 'GET',
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(isForm && { body: new URLSearchParams({ subject }) }),
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
      cookies.set(name, value);
    }
    const location = answer.headers.get('location');
    if (location === null) throw new Error(`${answer.status}: ${await answer.text()}`);
    place = new URL(location, place);
  }
  throw new Error('the provider redirects for ever');
}

describe('the OpenID provider of the tests', () => {
  let provider: OpenIdProvider;
  let configuration: client.Configuration;
  before(async () => {
    provider = await OpenIdProvider.start({ redirectUris: [REDIRECT] });
    const { issuer, clientId, clientSecret } = provider;
    configuration = await client.discovery(new URL(issuer), clientId, clientSecret, undefined, {
      execute: [client.allowInsecureRequests],
    });
    provider.people.set('ann', { email: 'ann@example.com', groups: ['matting-owners'] });
  });
  after(() => provider.close());

  const startOf = async (verifier: string, more: Record<string, string> = {}) =>
    client.buildAuthorizationUrl(configuration, {
      redirect_uri: REDIRECT,
      scope: 'openid email groups',
      state: 'a-state',
      nonce: 'a-nonce',
      code_challenge: await client.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      ...more,
    });

  it('signs a person in and tells groups in the ID token', async () => {
    const verifier = client.randomPKCECodeVerifier();
    const back = await signIn(await startOf(verifier), 'ann');
    const checks = {
      pkceCodeVerifier: verifier,
      expectedState: 'a-state',
      expectedNonce: 'a-nonce',
    };
    const tokens = await client.authorizationCodeGrant(configuration, back, checks);
    const claims = tokens.claims();
    assert.equal(claims?.sub, 'ann');
    assert.equal(claims.email, 'ann@example.com');
    assert.deepEqual(claims.groups, ['matting-owners']);
  });

  it('refuses another verifier, and another place to go back to', async () => {
    const back = await signIn(await startOf(client.randomPKCECodeVerifier()), 'ann');
    const checks = {
      pkceCodeVerifier: client.randomPKCECodeVerifier(),
      expectedState: 'a-state',
      expectedNonce: 'a-nonce',
    };
    await assert.rejects(client.authorizationCodeGrant(configuration, back, checks));
    const elsewhere = { redirect_uri: 'http://localhost:1/back/elsewhere' };
    await assert.rejects(signIn(await startOf('v'.repeat(43), elsewhere), 'ann'), /400/);
  });
});
