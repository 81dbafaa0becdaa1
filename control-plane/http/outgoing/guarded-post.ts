/** Reads only enough of the answer's body for the receiver to finish. */

import { hostOf } from '@matting/program/ports/addresses.ts';
import type { Dispatcher } from 'undici';
import { type CallbackPolicy, wrongWithCallbackUrl } from './callback-url.ts';
import {
  boundedRequest,
  type ConnectionLimits,
  type OutgoingGuard,
  TLS_CODE,
} from './outgoing-guard.ts';
import { ForbiddenUrlError, requirePublicHost } from './outgoing-url.ts';

export type PostLimits = typeof POST_LIMITS;

const POST_LIMITS = {
  /** The contract's bound until the answer's headers. */
  totalMs: 15_000,
  headerBytesMax: 16_384,
  replyBytesMax: 4_096,
  replyMs: 500,
};

interface PostRequest {
  readonly accountId: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

interface PostAnswer {
  readonly status: number;
  readonly retryAfter: string | undefined;
}

/**
 * forbidden: the URL or an address is not allowed and was not contacted. unresolved: the name has
 * no address. timeout: no answer within totalMs. connection_refused: nothing listens there. tls: no
 * certificate for the name, or no TLS. unreachable: any other failure of the network or of the
 * answer's bytes.
 */
export const POST_FAILURES = [
  'forbidden',
  'unresolved',
  'timeout',
  'connection_refused',
  'tls',
  'unreachable',
] as const;
export type PostFailure = (typeof POST_FAILURES)[number];

/** No answer came. Neither message nor code names the receiver. */
export class PostFailedError extends Error {
  readonly failure: PostFailure;
  /** A code of Node, OpenSSL or undici. */
  readonly code: string | undefined;

  constructor(failure: PostFailure, cause?: unknown) {
    super(`the notification was not answered: ${failure}`, { cause });
    this.name = 'PostFailedError';
    this.failure = failure;
    const code = (cause as { code?: unknown } | undefined)?.code;
    this.code = typeof code === 'string' ? code : undefined;
  }
}

export class GuardedPost {
  readonly #guard: OutgoingGuard;
  readonly #policy: CallbackPolicy;
  readonly #limits: PostLimits;

  constructor(guard: OutgoingGuard, policy: CallbackPolicy, limits: Partial<PostLimits> = {}) {
    this.#guard = guard;
    this.#policy = policy;
    this.#limits = { ...POST_LIMITS, ...limits };
  }

  /** Rejects with PostFailedError or the signal's reason. */
  async post(text: string, request: PostRequest, signal: AbortSignal): Promise<PostAnswer> {
    const deadline = new AbortController();
    using _timer = setTimeout(() => deadline.abort(), this.#limits.totalMs);
    const either = AbortSignal.any([signal, deadline.signal]);
    try {
      return await this.#send(text, request, either);
    } catch (error) {
      signal.throwIfAborted();
      throw toPostFailed(error, deadline.signal.aborted);
    }
  }

  async #send(text: string, request: PostRequest, signal: AbortSignal): Promise<PostAnswer> {
    // The operator's settings may have changed since the check at submission.
    const wrong = wrongWithCallbackUrl(text, this.#policy);
    if (wrong !== undefined) throw new ForbiddenUrlError(wrong);
    const url = new URL(text);
    const host = hostOf(url);
    requirePublicHost(host, this.#guard.policy);
    const addresses = await this.#guard.requireAddresses(host, signal, request.accountId);
    if (addresses.length === 0) throw new PostFailedError('unresolved');
    await using client = this.#guard.openClient(url, addresses, this.#connection);
    const { headers, body } = request;
    const path = `${url.pathname}${url.search}`;
    const sent = { method: 'POST', path, headers, body, signal } as const;
    const response = await boundedRequest(client, sent);
    await this.#drain(response.body);
    const retryAfter = response.headers['retry-after'];
    return {
      status: response.statusCode,
      retryAfter: typeof retryAfter === 'string' ? retryAfter : undefined,
    };
  }

  get #connection(): ConnectionLimits {
    const { totalMs, headerBytesMax, replyMs } = this.#limits;
    return { connectMs: totalMs, firstByteMs: totalMs, idleMs: replyMs, headerBytesMax };
  }

  /** The status is known, so errors of the body do not matter. */
  async #drain(body: Dispatcher.ResponseData['body']): Promise<void> {
    const { replyBytesMax, replyMs } = this.#limits;
    using _timer = setTimeout(() => body.destroy(), replyMs);
    let bytes = 0;
    try {
      for await (const chunk of body) {
        bytes += (chunk as Uint8Array).length;
        if (bytes > replyBytesMax) break;
      }
    } catch {
      // Either side closed the connection.
    }
  }
}

function toPostFailed(error: unknown, late: boolean): PostFailedError {
  if (error instanceof PostFailedError) return error;
  if (late) return new PostFailedError('timeout', error);
  if (error instanceof ForbiddenUrlError) return new PostFailedError('forbidden', error);
  const code = String((error as { code?: unknown } | undefined)?.code);
  if (code === 'ECONNREFUSED') return new PostFailedError('connection_refused', error);
  return new PostFailedError(TLS_CODE.test(code) ? 'tls' : 'unreachable', error);
}
