/** Why a person may not (any more), where it is asked once more than at the door. */

/** Changes that a person makes in one account, each a line of its log. */
export const CHANGES_A_MINUTE_MAX = 60;

export type AuthorityLoss =
  /** The session has ended. */
  | 'signed-out'
  /** Their role does not have the permission. */
  | 'forbidden'
  /** CHANGES_A_MINUTE_MAX. */
  | 'too-many-changes';

export class AuthorityError extends Error {
  readonly loss: AuthorityLoss;
  /** Seconds, for Retry-After. */
  readonly retryAfterS: number | undefined;

  constructor(loss: AuthorityLoss, retryAfterS?: number) {
    super(loss);
    this.name = 'AuthorityError';
    this.loss = loss;
    this.retryAfterS = retryAfterS;
  }
}
