/** Why a person may not (any more), where it is asked once more than at the door. */
export type AuthorityLoss =
  /** The session has ended. */
  | 'signed-out'
  /** Their role does not have the permission. */
  | 'forbidden';

export class AuthorityError extends Error {
  readonly loss: AuthorityLoss;

  constructor(loss: AuthorityLoss) {
    super(loss);
    this.name = 'AuthorityError';
    this.loss = loss;
  }
}
