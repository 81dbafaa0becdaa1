/** Who changes something: each change of an account is in its audit log with one. */
export type Actor =
  | {
      readonly kind: 'person';
      readonly userId: string;
      readonly mail: string;
      /** Where the request came from, as text. */
      readonly address: string;
    }
  /** By the command line or the operator's port. */
  | { readonly kind: 'operator' }
  /** A payment provider's notification. */
  | { readonly kind: 'payment' }
  /** The service itself: what was due. */
  | { readonly kind: 'system' };
