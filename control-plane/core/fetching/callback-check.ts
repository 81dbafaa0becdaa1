/** Tells callers early of a URL that cannot work. Delivery checks the addresses again. */

import { type CallbackPolicy, wrongWithCallbackUrl } from '@matting/http/outgoing/callback-url.ts';
import type { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { ForbiddenUrlError, requirePublicHost } from '@matting/http/outgoing/outgoing-url.ts';
import { isReadableSecret, UNREADABLE_SECRET } from '@matting/http/outgoing/webhook-signature.ts';
import { hostOf } from '@matting/program/ports/addresses.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';

const RESOLVE_MS = 2_000;

/** Judges the text alone. @throws ContractError INVALID_CALLBACK */
export function requireCallbackUrl(text: string, policy: CallbackPolicy): void {
  const wrong = wrongWithCallbackUrl(text, policy);
  if (wrong !== undefined) throw invalidCallback('callback_url', wrong);
}

export function invalidCallback(
  field: 'callback_url' | 'callback_secret',
  wrong: string,
  cause?: unknown,
): ContractError {
  const fieldErrors = [{ field, detail: wrong }];
  return new ContractError('INVALID_CALLBACK', `${field} ${wrong}.`, { cause, fieldErrors });
}

export class CallbackAddressCheck {
  readonly #guard: OutgoingGuard;
  readonly #resolveMs: number;

  constructor(guard: OutgoingGuard, resolveMs = RESOLVE_MS) {
    this.#guard = guard;
    this.#resolveMs = resolveMs;
  }

  async requireOf(
    callback: { readonly url: string; readonly secret: string } | undefined,
    accountId: string,
  ): Promise<void> {
    if (callback === undefined) return;
    if (!isReadableSecret(callback.secret)) {
      throw invalidCallback('callback_secret', UNREADABLE_SECRET);
    }
    await this.require(callback.url, accountId);
  }

  /**
   * Passes public hosts, and hosts without addresses yet. @throws ContractError INVALID_CALLBACK
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
      // Delivery resolves it again.
      if (!(error instanceof ForbiddenUrlError)) return;
      throw invalidCallback('callback_url', `is not usable: ${error.message}`, error);
    }
  }
}
