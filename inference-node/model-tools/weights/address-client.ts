/**
 * Fetches files as huggingface.co, github.com and object storage serve them. Sends a token to one
 * origin alone.
 */
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { type Dispatcher, EnvHttpProxyAgent } from 'undici';
import { drop, follow, LEAST_SPEED, sendRequest } from './bounded-get.ts';
import { isInterruption, networkReason } from './fetch-reasons.ts';

export interface AddressAccess {
  /** Bearer, for `origin` alone, never along a redirect to another. */
  readonly token?: { readonly text: string; readonly origin: string };
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly limits?: Partial<AddressLimits>;
}

type AddressLimits = typeof ADDRESS_LIMITS;

const ADDRESS_LIMITS = {
  connectMs: 10_000,
  firstByteMs: 30_000,
  idleMs: 30_000,
  ...LEAST_SPEED,
  /** Attempts at one address, with growing waits in between. */
  attemptsMax: 8,
  attemptWaitMs: 1_000,
};

/** The Hub names here the commit of a branch or tag, also in redirects. */
const COMMIT_HEADER = 'x-repo-commit';
const COMMIT = /^[0-9a-f]{40}$/;

/** Another try may succeed: the answer was cut or too slow, or the server is overloaded. */
export class InterruptedError extends Error {}

export function requireAddress(text: string, from?: URL): URL {
  const url = URL.parse(text, from?.href);
  const refuse = (why: string) => new ModelError('settings', `${describeUrl(url, text)}: ${why}`);
  if (url === null) throw refuse('it is no address');
  if (url.username !== '' || url.password !== '') throw refuse('a login does not belong in it');
  if (url.protocol === 'https:') return url;
  const own = url.protocol === 'http:' && isLoopback(url.hostname.replace(/^\[|\]$/g, ''));
  if (own && from?.protocol !== 'https:') return url;
  throw refuse(from === undefined ? 'only https is fetched' : 'it redirects to what is not https');
}

/** Without the query: a signature in it would let anybody in. */
export function describeUrl(url: URL | null, text = ''): string {
  return url === null ? JSON.stringify(text.slice(0, 200)) : `${url.origin}${url.pathname}`;
}

export class AddressClient {
  readonly limits: AddressLimits;
  readonly #access: AddressAccess;
  readonly #agent: EnvHttpProxyAgent;

  constructor(access: AddressAccess) {
    this.#access = access;
    this.limits = { ...ADDRESS_LIMITS, ...access.limits };
    const { connectMs, firstByteMs, idleMs } = this.limits;
    const proxy = (name: string) =>
      access.env[name.toLowerCase()] || access.env[name.toUpperCase()] || '';
    this.#agent = new EnvHttpProxyAgent({
      connect: { timeout: connectMs },
      headersTimeout: firstByteMs,
      bodyTimeout: idleMs,
      httpProxy: proxy('http_proxy'),
      httpsProxy: proxy('https_proxy'),
      noProxy: `${proxy('no_proxy')},localhost,127.0.0.1,[::1]`,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy();
  }

  /**
   * Follows redirects.
   * @throws ModelError; InterruptedError
   */
  async get(
    address: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const requestOne = (to: URL) => this.#request('GET', to, headers, signal);
    return follow(requireAddress(address), requestOne, requireAddress);
  }

  /** The commit of a branch of the Hub. Undefined if the host does not name it. */
  async findCommit(address: string, signal: AbortSignal): Promise<string | undefined> {
    const commitOf = ({ headers }: Dispatcher.ResponseData) =>
      COMMIT.exec(String(headers[COMMIT_HEADER]))?.[0];
    const requestOne = (to: URL) => this.#request('HEAD', to, {}, signal);
    const answer = await follow(requireAddress(address), requestOne, requireAddress, commitOf);
    drop(answer);
    return commitOf(answer);
  }

  async #request(
    method: 'GET' | 'HEAD',
    url: URL,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const { token } = this.#access;
    const authorization =
      token?.origin === url.origin ? { authorization: `Bearer ${token.text}` } : {};
    try {
      const call = { method, signal, dispatcher: this.#agent, speed: this.limits };
      return await sendRequest(url, { ...headers, ...authorization }, call);
    } catch (error) {
      signal.throwIfAborted();
      if (!isInterruption(error)) throw fetchFailure(url, networkReason(error), error);
      throw new InterruptedError(networkReason(error), { cause: error });
    }
  }

  get hasToken(): boolean {
    return this.#access.token !== undefined;
  }
}

export function fetchFailure(url: URL, reason: string, cause?: unknown): ModelError {
  return new ModelError('fetch', `cannot fetch ${describeUrl(url)}: ${reason}`, cause);
}
