/**
 * Gets a file from an https address: redirects are followed, a token goes to one origin alone. http
 * is for this machine. What is relied on is what huggingface.co, github.com and object storage do.
 */
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { type Dispatcher, EnvHttpProxyAgent } from 'undici';
import { ask, drop, follow, LEAST_SPEED } from './bounded-get.ts';
import { isInterruption, networkReason } from './fetch-reasons.ts';

export interface AddressAccess {
  /** Bearer; goes to `origin` alone, and never along a redirect to another. */
  readonly token?: { readonly text: string; readonly origin: string };
  /** HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in either case. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly limits?: Partial<AddressLimits>;
}

type AddressLimits = typeof ADDRESS_LIMITS;

const ADDRESS_LIMITS = {
  connectMs: 10_000,
  firstByteMs: 30_000,
  /** A download may get no byte for so long. */
  idleMs: 30_000,
  ...LEAST_SPEED,
  /** One address gets so many attempts; between two the client waits, longer each time. */
  attemptsMax: 8,
  attemptWaitMs: 1_000,
};

/** The Hub's answers, redirects too, have in it the commit that a branch or tag stands for. */
const COMMIT_HEADER = 'x-repo-commit';
const COMMIT = /^[0-9a-f]{40}$/;

/** The answer is another one later: it was cut, is overloaded, or is too slow. */
export class InterruptedError extends Error {}

/** @throws ModelError `settings`: https only, and http from this machine */
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

/** Without what a query may hold: a signature lets anybody in. */
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

  /** The last answer of redirects. @throws ModelError; InterruptedError */
  async get(
    address: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const askOne = (to: URL) => this.#ask('GET', to, headers, signal);
    return follow(requireAddress(address), askOne, requireAddress);
  }

  /** Finds the commit of a branch of the Hub; undefined where the host does not name it. */
  async findCommit(address: string, signal: AbortSignal): Promise<string | undefined> {
    const commitOf = ({ headers }: Dispatcher.ResponseData) =>
      COMMIT.exec(String(headers[COMMIT_HEADER]))?.[0];
    const askOne = (to: URL) => this.#ask('HEAD', to, {}, signal);
    const answer = await follow(requireAddress(address), askOne, requireAddress, commitOf);
    drop(answer);
    return commitOf(answer);
  }

  async #ask(
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
      return await ask(url, { ...headers, ...authorization }, call);
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
