/**
 * The share that each account has of the database: how many of its requests may have a statement or
 * a transaction under way here. The others wait, so a burst of one account waits in its own queue
 * and not before the others in that of the connections. A request holds its slot only for its
 * statements: not while it receives, stores or waits for a job.
 *
 * Callers whose account is not known, with an API key that was not read before or the link of a
 * result, have slots of their own, by the secret they show or the network they come from, and take
 * none from accounts. What no request waits for (dispatch, leases, sweeps, commands) takes no slot:
 * the queue of the connections bounds it.
 */
import { ContractError } from '#contract/errors.ts';
import { networkOf } from '#program/network-of.ts';
import { outsideRequests, requestOwner } from '#program/request-owner.ts';
import { Semaphore } from '#program/semaphore.ts';

/** An account alone may have half of them wait: as many as could wait for a connection. */
export const ACCOUNTS_WAITING_MAX = 4096;
/** One for each connection that the public port takes: no caller is refused for another. */
const UNKNOWN_WAITING_MAX = 10_000;
/** They have a slot where accounts have this many; what they ask for is one row by its key. */
const SLOTS_TO_AN_UNKNOWN = 4;
/** As long as an upload waits for its slot. */
const WAIT_MS = 10_000;
/** All requests that may wait before one are done in a second or two. */
const BUSY_RETRY_AFTER_S = 2;

/** A request found no slot: the work has not begun, and nothing has changed. */
export class NotBegunError extends ContractError {}

export class RequestShares {
  readonly #accounts: Semaphore;
  readonly #unknown: Semaphore;

  /** @param slotsMax of all accounts together */
  constructor(slotsMax: number) {
    const bounds = { waitMs: WAIT_MS, refusal: busy };
    this.#accounts = new Semaphore({ max: slotsMax, waitingMax: ACCOUNTS_WAITING_MAX, ...bounds });
    this.#unknown = new Semaphore({
      max: Math.ceil(slotsMax / SLOTS_TO_AN_UNKNOWN),
      waitingMax: UNKNOWN_WAITING_MAX,
      ...bounds,
    });
  }

  /** Requests that wait for their slot. */
  get waiting(): number {
    return this.#accounts.waiting + this.#unknown.waiting;
  }

  /**
   * The work in a slot of the request's owner, if there is one.
   * @throws NotBegunError; what `work` throws
   */
  run<T>(work: () => Promise<T>): Promise<T> {
    const owner = requestOwner();
    if (owner === undefined) return work();
    // Outside, so that what asks the database within its own work waits for no second slot.
    const inSlot = () => outsideRequests(work);
    return 'accountId' in owner
      ? this.#accounts.run({ key: owner.accountId }, inSlot)
      : this.#unknown.run({ key: networkOf(owner.shows) }, inSlot);
  }
}

function busy(): ContractError {
  return new NotBegunError(
    'SERVICE_UNAVAILABLE',
    'too many requests of yours wait for the database',
    { retryAfterS: BUSY_RETRY_AFTER_S },
  );
}
