/** Who changes something: each change of an account is in its audit log with one. */
import type { Permission } from './roles.ts';

export interface NamedPerson {
  readonly kind: 'person';
  readonly userId: string;
  readonly mail: string;
  /** Where the request came from, as text. */
  readonly address: string;
}

/** A person who is signed in. The transaction of the change asks once more whether they may. */
export interface ActingPerson extends NamedPerson {
  /** The public id of the session. */
  readonly sessionId: string;
  /** What the change asks for. */
  readonly permission: Permission;
}

export type ServiceActor =
  /** By the command line or the operator's port. */
  | { readonly kind: 'operator' }
  /** A payment provider's notification. */
  | { readonly kind: 'payment' }
  /** The service itself: what was due. */
  | { readonly kind: 'system' };

export type Actor = ActingPerson | ServiceActor;
