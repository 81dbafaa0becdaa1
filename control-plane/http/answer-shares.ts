/**
 * The share that each account has of the answers that are made: reads of the interfaces and pages,
 * by their weights (ARCHITECTURE.md lists them). What an account asks beyond its share waits in a
 * line of its own, and others come between. A share is held until a turn of the event loop after
 * the answer is made: what one account sends at once would else be answered within one turn, since
 * SQLite answers at once. Readers of large answers hold none.
 */
import { networkOf } from '@matting/program/ports/addresses.ts';
import { type Release, Semaphore } from '@matting/program/semaphore.ts';
import { letOthersIn } from '@matting/program/turns.ts';
import { unavailable } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Of its answer. Absent: another bound holds, or the answer is made once. */
    readonly weight?: number | ((request: FastifyRequest) => number);
  }
}

/** A row or some. */
export const LIGHT = 1;
/** A list of a hundred rows, or a count of a thousand. */
export const MIDDLING = 4;
/** As heavy as an answer can be: an account has one of them made at a time. */
export const HEAVY = 8;
/** An account alone has answers of half of it made at once. */
const WEIGHT_MAX = 2 * HEAVY;
/** As many as connections, of which each can wait with one. */
const WAITING_MAX = 10_000;
/** As long as a synchronous submission: longer than a thousand of the heaviest answers take. */
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

  /** Reads that wait for their share. */
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
   * Takes the share of an answer. Strangers have one by their network.
   * @returns undefined: the caller is gone, and needs no answer
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
      if (waits) await letOthersIn();
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
