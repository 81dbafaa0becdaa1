/** A real OpenID provider in the test's process. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { Provider } from 'oidc-provider';

const SIGN_IN = '/who-are-you/';

export interface OpenIdPerson {
  readonly email?: string;
  readonly groups?: readonly string[];
}

export interface OpenIdProviderOptions {
  readonly redirectUris: readonly string[];
}

export class OpenIdProvider {
  readonly issuer: string;
  readonly clientId = 'matting';
  readonly clientSecret = randomBytes(24).toString('hex');
  /** By subject; may change between sign-ins. */
  readonly people = new Map<string, OpenIdPerson>();
  readonly agents = new Set<string | undefined>();
  readonly #server: Server;

  private constructor(server: Server, { redirectUris }: OpenIdProviderOptions) {
    this.#server = server;
    this.issuer = `http://localhost:${(server.address() as AddressInfo).port}`;
    const provider = new Provider(this.issuer, this.#configuration(redirectUris));
    const answerOther = provider.callback();
    server.on('request', (request, answer) => {
      this.agents.add(request.headers['user-agent']);
      if (!request.url?.startsWith(SIGN_IN)) return answerOther(request, answer);
      this.#signIn(provider, request, answer).catch((error: Error) => {
        answer.writeHead(500).end(error.message);
      });
    });
  }

  static async start(options: OpenIdProviderOptions): Promise<OpenIdProvider> {
    const server = createServer().listen(0, 'localhost');
    await once(server, 'listening');
    return new OpenIdProvider(server, options);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #configuration(redirectUris: readonly string[]): Readonly<Record<string, unknown>> {
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const key = { ...privateKey.export({ format: 'jwk' }), alg: 'RS256', use: 'sig', kid: 'test' };
    return {
      clients: [
        {
          client_id: this.clientId,
          client_secret: this.clientSecret,
          redirect_uris: redirectUris,
          response_types: ['code'],
          grant_types: ['authorization_code'],
        },
      ],
      jwks: { keys: [key] },
      cookies: { keys: [randomBytes(16).toString('hex')] },
      pkce: { required: () => true },
      claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'] },
      scopes: ['openid', 'email', 'profile', 'groups'],
      conformIdTokenClaims: false,
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_context: unknown, { uid }: { uid: string }) => `${SIGN_IN}${uid}` },
      ttl: { Session: 600, Interaction: 600, Grant: 600, AccessToken: 600, IdToken: 600 },
      findAccount: (_context: unknown, subject: string) => {
        const person = this.people.get(subject);
        if (person === undefined) return undefined;
        const claims = { sub: subject, email_verified: true, ...person };
        return { accountId: subject, claims: async () => claims };
      },
    };
  }

  async #signIn(provider: Provider, request: IncomingMessage, answer: ServerResponse) {
    if (request.method === 'GET') {
      answer.setHeader('content-type', 'text/html; charset=utf-8');
      answer.end(`<!doctype html><html lang="en"><title>Provider</title><main><h1>Provider</h1>
        <form method="post"><label>Subject <input name="subject"></label>
        <button>Continue</button></form></main></html>`);
      return;
    }
    const accountId = new URLSearchParams(await text(request)).get('subject') ?? '';
    const { params } = await provider.interactionDetails(request, answer);
    const grant = new provider.Grant({ accountId, clientId: params.client_id });
    grant.addOIDCScope(params.scope);
    const consent = { grantId: await grant.save() };
    await provider.interactionFinished(request, answer, { login: { accountId }, consent });
  }
}
