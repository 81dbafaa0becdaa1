/**
 * The protocol with an OpenID provider: the code flow with PKCE, state and nonce, at one exact
 * redirect. It returns the provider's name for a person, and their groups.
 */

import { CachedValue } from '@matting/program/caches.ts';
import { OWN_AGENT } from '@matting/program/ports/keyless.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import * as client from 'openid-client';

const PROVIDER_TIMEOUT_S = 10;
const METADATA_MS = 3_600_000;
/** Conversations of a replica with the provider at once. Others wait. */
const CONVERSATIONS_MAX = 8;
const WAITING_MAX = 64;
const WAIT_MS = 10_000;
const GROUPS_MAX = 1000;

interface OpenIdConnectOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string | undefined;
  readonly scopes: readonly string[];
  readonly groupsClaim: string;
  readonly redirectUrl: string;
}

export interface OpenIdFlow {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

interface OpenIdPerson {
  readonly issuer: string;
  readonly subject: string;
  /** As the provider says. It must never identify a person. */
  readonly mail: unknown;
  readonly groups: readonly string[];
}

export class OpenIdError extends Error {
  constructor(cause: unknown) {
    super('the sign-in by the identity provider failed', { cause });
    this.name = 'OpenIdError';
  }
}

export class OpenIdConnect {
  readonly #options: OpenIdConnectOptions;
  readonly #slots = new Semaphore({
    max: CONVERSATIONS_MAX,
    waitingMax: WAITING_MAX,
    waitMs: WAIT_MS,
    refusal: () => unavailable('Too many people sign in at once. Try again later.', 5),
  });
  /** A failure is not cached. */
  readonly #configuration = new CachedValue(() => this.#discover(), METADATA_MS);

  constructor(options: OpenIdConnectOptions) {
    this.#options = options;
  }

  async begin(from: string): Promise<{ readonly url: string; readonly flow: OpenIdFlow }> {
    const flow = {
      state: client.randomState(),
      nonce: client.randomNonce(),
      verifier: client.randomPKCECodeVerifier(),
    };
    const challenge = await client.calculatePKCECodeChallenge(flow.verifier);
    const configuration = await this.#talk(from, () => this.#configuration.get());
    const { redirectUrl, scopes } = this.#options;
    const url = client.buildAuthorizationUrl(configuration, {
      redirect_uri: redirectUrl,
      scope: scopes.join(' '),
      state: flow.state,
      nonce: flow.nonce,
      code_challenge: challenge,
      code_challenge_method: 'S256',
    });
    return { url: url.href, flow };
  }

  /** @param query of the redirect, with `?` @throws OpenIdError; SERVICE_UNAVAILABLE */
  finish(from: string, query: string, flow: OpenIdFlow): Promise<OpenIdPerson> {
    return this.#talk(from, async () => {
      const configuration = await this.#configuration.get();
      const tokens = await client.authorizationCodeGrant(
        configuration,
        new URL(`${this.#options.redirectUrl}${query}`),
        {
          expectedState: flow.state,
          expectedNonce: flow.nonce,
          pkceCodeVerifier: flow.verifier,
          idTokenExpected: true,
        },
      );
      const claims = tokens.claims();
      if (claims === undefined) throw new Error('there is no ID token');
      const { groupsClaim } = this.#options;
      const { userinfo_endpoint } = configuration.serverMetadata();
      // A provider may leave claims out of a small ID token.
      const isWhole = claims.email !== undefined && claims[groupsClaim] !== undefined;
      const more =
        isWhole || userinfo_endpoint === undefined
          ? {}
          : await client.fetchUserInfo(configuration, tokens.access_token, claims.sub);
      return personOfClaims({ ...more, ...claims }, claims, groupsClaim);
    });
  }

  async #talk<T>(from: string, work: () => Promise<T>): Promise<T> {
    return this.#slots.run({ key: from }, async () => {
      try {
        return await work();
      } catch (error) {
        throw new OpenIdError(error);
      }
    });
  }

  #discover(): Promise<client.Configuration> {
    const { issuer, clientId, clientSecret } = this.#options;
    const isPlain = issuer.startsWith('http:');
    return client.discovery(
      new URL(issuer),
      clientId,
      clientSecret,
      clientSecret === undefined ? client.None() : undefined,
      {
        timeout: PROVIDER_TIMEOUT_S,
        [client.customFetch]: fetchAsService,
        // Signatures are checked even over TLS. The configuration allows plain HTTP only for this
        // machine.
        execute: [
          client.enableNonRepudiationChecks,
          ...(isPlain ? [client.allowInsecureRequests] : []),
        ],
      },
    );
  }
}

/** Marks requests to the provider's addresses, so that none passes for a local program's. */
const fetchAsService: client.CustomFetch = (url, { headers, ...options }) =>
  fetch(url, {
    ...(options as RequestInit),
    headers: { ...headers, 'user-agent': `${OWN_AGENT} (sign-in)` },
  });

function personOfClaims(
  all: Readonly<Record<string, unknown>>,
  { iss, sub }: { readonly iss: string; readonly sub: string },
  groupsClaim: string,
): OpenIdPerson {
  if (!/^[\x20-\x7e]{1,255}$/.test(sub)) throw new Error('the subject has another form');
  const groups = all[groupsClaim];
  const listed = Array.isArray(groups) ? groups.slice(0, GROUPS_MAX) : [];
  return {
    issuer: iss,
    subject: sub,
    mail: all.email,
    groups: listed.filter(group => typeof group === 'string'),
  };
}
