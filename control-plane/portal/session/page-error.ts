/** Why a page of the account area is refused, where the person is a browser's and no program. */

/** The words of each are in words/*.json, below `errors`. */
export const PAGE_ERRORS = {
  /** The role does not allow it. */
  forbidden: 403,
  /** No such thing in this account, or not in this one. */
  notFound: 404,
  /** The form is older than the session, or of another page. */
  staleForm: 403,
  /** The request comes from another site, or the page was opened at another address. */
  otherOrigin: 403,
  /** Nobody signs in where others can read along. */
  insecure: 403,
  /** Not what a form sends. */
  badForm: 400,
  tooManyAttempts: 429,
  /** The identity provider does not answer, or refuses. */
  providerDown: 502,
} as const;

export type PageErrorKind = keyof typeof PAGE_ERRORS;

export class PageError extends Error {
  readonly kind: PageErrorKind;
  /** Seconds, for Retry-After. */
  readonly retryAfterS: number | undefined;

  constructor(
    kind: PageErrorKind,
    options: { readonly retryAfterS?: number | undefined; cause?: unknown } = {},
  ) {
    super(kind, { cause: options.cause });
    this.name = 'PageError';
    this.kind = kind;
    this.retryAfterS = options.retryAfterS;
  }

  get status(): number {
    return PAGE_ERRORS[this.kind];
  }
}
