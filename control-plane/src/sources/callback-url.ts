/**
 * callback_url at submission: what its text shows, and, later, where its name leads. Delivery
 * checks the address again, since names move: what is found here only saves a caller from a
 * notification that could never come.
 */
import { ContractError } from '#contract/errors.ts';
import { type CallbackPolicy, wrongWithCallbackUrl } from './guard/callback-url-text.ts';
import type { OutgoingGuard } from './guard/outgoing-guard.ts';
import { ForbiddenUrlError, hostOf, requirePublicHost } from './guard/outgoing-url.ts';

/** A submission waits no longer for a name. */
const RESOLVE_MS = 2_000;

/** Throws INVALID_CALLBACK for what the text alone shows; addresses are CallbackAddressCheck's. */
export function requireCallbackUrl(text: string, policy: CallbackPolicy): void {
  const wrong = wrongWithCallbackUrl(text, policy);
  if (wrong !== undefined) throw invalidCallbackUrl(wrong);
}

function invalidCallbackUrl(wrong: string, cause?: unknown): ContractError {
  const fieldErrors = [{ field: 'callback_url', detail: wrong }];
  return new ContractError('INVALID_CALLBACK', `callback_url: ${wrong}`, { cause, fieldErrors });
}

export interface CallbackAddressCheckOptions {
  readonly guard: OutgoingGuard;
  readonly resolveMs?: number;
}

export class CallbackAddressCheck {
  readonly #guard: OutgoingGuard;
  readonly #resolveMs: number;

  constructor({ guard, resolveMs = RESOLVE_MS }: CallbackAddressCheckOptions) {
    this.#guard = guard;
    this.#resolveMs = resolveMs;
  }

  /**
   * Passes where the host is public, has no address yet, or does not resolve in time.
   * @param text that passed requireCallbackUrl
   * @param accountId for whom: accounts share what looks names up
   * @throws ContractError INVALID_CALLBACK for any address that is not public
   */
  async require(text: string, accountId: string): Promise<void> {
    const { policy } = this.#guard;
    if (policy.allowPrivateAddresses) return;
    const host = hostOf(new URL(text));
    try {
      requirePublicHost(host, policy);
      const signal = AbortSignal.timeout(this.#resolveMs);
      await this.#guard.requireAddresses(host, signal, accountId);
    } catch (error) {
      // A resolver that is slow or broken says nothing about the address: delivery asks again.
      if (error instanceof ForbiddenUrlError) throw invalidCallbackUrl(error.message, error);
    }
  }
}
