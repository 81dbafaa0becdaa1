/**
 * How many sign-ins may fail, by core/rates/attempt-window.ts.
 *
 * | attempts from                                      | are counted by                  |
 * |----------------------------------------------------|---------------------------------|
 * | a known browser: they signed in with it before,    | that browser; all known         |
 * | with the password that they have now               | browsers of the person          |
 * | any other                                          | the network address; the mail   |
 *
 * So who guesses passwords has FAILURES_MAX.mail a window for one person, from however many
 * addresses, and FAILURES_MAX.address from one address, for however many persons. They lock nobody
 * out of a browser that is known; on a new one the person waits for the window's end,
 * THROTTLE_WINDOW_MS at most. (OWASP calls it device cookies.) Who holds known browsers, however
 * many, has FAILURES_MAX.browsers for that person, until the password is another.
 */
export const THROTTLE_WINDOW_MS = 600_000;

export const FAILURES_MAX = {
  /** Also that of an office behind one address, in a few minutes. */
  address: 30,
  mail: 10,
  browser: 10,
  /** All known browsers of a person. */
  browsers: 30,
  /** Sign-ins of one mail that are given back: each has taken a hash. Nobody signs in so often. */
  success: 60,
  /** Ways back from the identity provider of one address, which ask it. */
  provider: 30,
  /** The password before, as one session asks for another. */
  session: 10,
} as const;
