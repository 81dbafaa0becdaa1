/**
 * Accounts share the making of answers by the answers' weights: an account over its share waits
 * while others go first. SQLite answers within one tick of the event loop, so a share is held until
 * the next tick; otherwise the burst of one account would be answered first.
 */

import { yieldToEventLoop } from '@matting/program/event-loop.ts';
import { networkOf } from '@matting/program/ports/addresses.ts';
import { type Release, Semaphore } from '@matting/program/semaphore.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Absent: another bound holds. */
    readonly weight?: number | ((request: FastifyRequest) => number);
  }
}

export const LIGHT = 1;
/** A list of a hundred rows, or a count of a thousand. */
export const MIDDLING = 4;
/** An account has one of these made at a time. */
export const HEAVY = 8;
/** If only one account asks, it gets half of this weight. */
const WEIGHT_MAX = 2 * HEAVY;
/** Each connection can wait with one read. */
const WAITING_MAX = 10_000;
/** As long as a synchronous submission. A thousand of the heaviest answers take less. */
const WAIT_MS_MAX = 120_000;
const RETRY_AFTER_S = 2;

export class AnswerShares {
  readonly #answers = new Semaphore({
    max: WEIGHT_MAX,
    waitingMax: WAITING_MAX,
    waitMs: WAIT_MS_MAX,
    refusal: () => unavailable('Too many of your reads wait. Send it again later.', RETRY_AFTER_S),
  });
  readonly #accountOf: (request: FastifyRequest) => string | undefined;

  constructor(accountOf: (request: FastifyRequest) => string | undefined) {
    this.#accountOf = accountOf;
  }

  get waiting(): number {
    return this.#answers.waiting;
  }

  /** Call it before any route is added. */
  serve(app: FastifyInstance): void {
    const held = new WeakMap<FastifyRequest, Release>();
    app.addHook('preHandler', async (request, reply) => {
      const { weight } = request.routeOptions.config;
      if (weight === undefined) return;
      const release = await this.enter(
        reply,
        typeof weight === 'number' ? weight : weight(request),
      );
      if (release === undefined) return reply.hijack();
      held.set(request, release);
      reply.raw.once('close', release);
    });
    app.addHook('onSend', async request => held.get(request)?.());
  }

  /**
   * Unauthenticated callers of one network share as one account.
   * @returns undefined: the caller has left
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  async enter({ request, raw }: FastifyReply, weight: number): Promise<Release | undefined> {
    const use = { key: this.#accountOf(request) ?? networkOf(request.ip), weight };
    const gone = new AbortController();
    const leave = () => gone.abort();
    raw.once('close', leave);
    try {
      const waits = !this.#answers.mayEnter(use);
      const release = await this.#answers.take({ ...use, signal: gone.signal });
      if (waits) await yieldToEventLoop();
      const later = () => void setImmediate(release);
      if (!raw.closed) return later;
      later();
    } catch (error) {
      if (!gone.signal.aborted) throw error;
    } finally {
      raw.removeListener('close', leave);
    }
    return undefined;
  }
}
