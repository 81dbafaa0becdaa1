/** Who changes something: each change of an account is in its audit log with one. */
import type { Database, Db } from '../../database/database.ts';

export interface NamedPerson {
  readonly kind: 'person';
  readonly userId: string;
  readonly mail: string;
  /** Where the request came from, as text. */
  readonly address: string;
}

/** A person who is signed in. The transaction of the change asks once more whether they may. */
export interface ActingPerson extends NamedPerson {
  /**
   * Asked in the change's transaction, which has taken the account's row: why they may not (any
   * more). Undefined: they may.
   */
  readonly refusal: (
    database: Database,
    tx: Db,
    change: { readonly accountId: string; readonly endsRight: boolean },
  ) => Promise<Error | undefined>;
}

export type ServiceActor =
  /** By the command line or the operator's port. */
  | { readonly kind: 'operator' }
  /** A payment provider's notification. */
  | { readonly kind: 'payment' }
  /** The service itself: what was due. */
  | { readonly kind: 'system' };

export type Actor = ActingPerson | ServiceActor;
