/**
 * callback_url at submission: what its text shows, and, later, where its name leads. Delivery
 * checks the address again, since names move: what is found here only saves a caller from a
 * notification that could never come.
 */
import { isIP } from 'node:net';
import { ContractError } from '#contract/errors.ts';
import { URL_LENGTH_MAX } from '#contract/limits.ts';
import { ForbiddenUrlError, hostOf, requirePublicHost } from './outgoing-url.ts';
import { interfaceAddresses } from './own-addresses.ts';
import { isPublicAddress } from './public-address.ts';
import { raceAbort } from './race-abort.ts';
import { createPublicResolver, type ResolveHost } from './resolve-host.ts';

export interface CallbackPolicy {
  readonly allowHttpCallbacks: boolean;
  /** For tests and trusted networks: any address. */
  readonly allowPrivateAddresses: boolean;
}

/** A submission waits no longer for a name. */
const RESOLVE_MS = 2_000;

/** Up to the "@" in front of the host: the parser drops an empty user name without a trace. */
const USERINFO = /^ *https?:[/\\]*[^/\\?#]*@/i;
const CONTROL_CHARACTER = /\p{Cc}/u;

/** Throws INVALID_CALLBACK for what the text alone shows; addresses are CallbackAddressCheck's. */
export function requireCallbackUrl(text: string, policy: CallbackPolicy): void {
  const wrong = wrongWith(text, policy);
  if (wrong !== undefined) throw invalidCallbackUrl(wrong);
}

function wrongWith(text: string, { allowHttpCallbacks }: CallbackPolicy): string | undefined {
  if (text.length > URL_LENGTH_MAX) return `must be at most ${URL_LENGTH_MAX} characters`;
  const url = CONTROL_CHARACTER.test(text) ? null : URL.parse(text);
  const schemes = allowHttpCallbacks ? ['https:', 'http:'] : ['https:'];
  if (url === null || !schemes.includes(url.protocol)) {
    return `must be an absolute URL of the scheme ${schemes.join(' or ')}`;
  }
  if (USERINFO.test(text)) return 'must have no user name or password';
  // An empty fragment leaves no trace in url.hash.
  if (text.includes('#')) return 'must have no fragment';
  return undefined;
}

function invalidCallbackUrl(wrong: string, cause?: unknown): ContractError {
  const fieldErrors = [{ field: 'callback_url', detail: wrong }];
  return new ContractError('INVALID_CALLBACK', `callback_url: ${wrong}`, { cause, fieldErrors });
}

export interface CallbackAddressCheckOptions {
  readonly policy: CallbackPolicy;
  readonly resolveMs?: number;
  readonly resolveHost?: ResolveHost;
  readonly ownAddresses?: () => ReadonlySet<string>;
}

export class CallbackAddressCheck {
  readonly #policy: CallbackPolicy;
  readonly #resolveMs: number;
  readonly #resolveHost: ResolveHost;
  readonly #ownAddresses: () => ReadonlySet<string>;

  constructor(options: CallbackAddressCheckOptions) {
    this.#policy = options.policy;
    this.#resolveMs = options.resolveMs ?? RESOLVE_MS;
    this.#resolveHost = options.resolveHost ?? createPublicResolver();
    this.#ownAddresses = options.ownAddresses ?? interfaceAddresses;
  }

  /**
   * Passes where the host is public, has no address yet, or does not resolve in time.
   * @param text that passed requireCallbackUrl
   * @throws ContractError INVALID_CALLBACK for any address that is not public
   */
  async require(text: string): Promise<void> {
    if (this.#policy.allowPrivateAddresses) return;
    const host = hostOf(new URL(text));
    try {
      requirePublicHost(host);
    } catch (error) {
      if (!(error instanceof ForbiddenUrlError)) throw error;
      throw invalidCallbackUrl(error.message, error);
    }
    const addresses = isIP(host) === 0 ? await this.#resolve(host) : [host];
    const own = this.#ownAddresses();
    if (addresses.every(address => isPublicAddress(address) && !own.has(address))) return;
    throw invalidCallbackUrl('the host is not a public address');
  }

  async #resolve(host: string): Promise<readonly string[]> {
    const timeout = AbortSignal.timeout(this.#resolveMs);
    try {
      return await raceAbort(this.#resolveHost(host, timeout), timeout);
    } catch {
      // A resolver that is slow or broken says nothing about the address: delivery asks again.
      return [];
    }
  }
}
