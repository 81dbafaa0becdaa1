/**
 * The share that each account has of the database: how many of its requests may have a statement or
 * a transaction under way here. The others wait for their turn, so a burst of one account waits in
 * its own queue and not before the others in that of the connections. A request holds its turn only
 * for its statements: not while it receives, stores or waits for a job.
 *
 * Strangers, with an API key that was not read before or the link of a result, have turns of their
 * own, by the secret they show or the network they come from, and take none from accounts.
 */
import { ContractError } from '#contract/errors.ts';
import { networkOf } from '#program/network-of.ts';
import { Semaphore } from '#program/semaphore.ts';

/** An account alone may have half of them wait: as many as could wait for a connection. */
const WAITING_MAX = 4096;
/** One for each connection that the public port takes: no stranger is refused for another. */
const STRANGERS_WAITING_MAX = 10_000;
/** Strangers have a turn where accounts have this many; what they ask for is one row by its key. */
const TURNS_TO_A_STRANGERS = 4;
/** As long as an upload waits for its slot. */
const WAIT_MS = 10_000;
/** All requests that may wait before one are done in a second or two. */
const BUSY_RETRY_AFTER_S = 2;

export interface DatabaseTurnsOptions {
  /** Turns of all accounts together. */
  readonly turnsMax: number;
  readonly waitingMax?: number;
  readonly waitMs?: number;
}

export class DatabaseTurns {
  readonly #accounts: Semaphore;
  readonly #strangers: Semaphore;

  constructor({ turnsMax, waitingMax = WAITING_MAX, waitMs = WAIT_MS }: DatabaseTurnsOptions) {
    this.#accounts = new Semaphore({ max: turnsMax, waitingMax, waitMs, refusal: busy });
    this.#strangers = new Semaphore({
      max: Math.ceil(turnsMax / TURNS_TO_A_STRANGERS),
      waitingMax: STRANGERS_WAITING_MAX,
      waitMs,
      refusal: busy,
    });
  }

  /** Requests that wait for their turn. */
  get waiting(): number {
    return this.#accounts.waiting + this.#strangers.waiting;
  }

  /**
   * Statements of one request of an account. Never within another turn.
   * @throws ContractError SERVICE_UNAVAILABLE before `work` has begun; what `work` throws
   */
  ofAccount<T>(accountId: string, work: () => Promise<T>): Promise<T> {
    return this.#accounts.run({ key: accountId }, work);
  }

  /**
   * Statements of a request whose account is not known.
   * @param by the secret that it shows, or its address, whose network then takes the turn
   * @throws as ofAccount
   */
  ofStranger<T>(by: string, work: () => Promise<T>): Promise<T> {
    return this.#strangers.run({ key: networkOf(by) }, work);
  }
}

function busy(): ContractError {
  return new ContractError(
    'SERVICE_UNAVAILABLE',
    'too many requests of yours wait for the database',
    {
      retryAfterS: BUSY_RETRY_AFTER_S,
    },
  );
}
