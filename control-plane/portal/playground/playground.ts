/**
 * What the playground of the account area may take. Its jobs spend no credits: an account has so
 * many pictures a day (MATTING_PLAYGROUND_IMAGES), and they go behind everything that is paid for
 * (docs/adr/0022). Pure.
 */

/** Pictures a day and account unless the operator sets another number; 0 turns it off. */
export const PLAYGROUND_IMAGES_DEFAULT = 20;
export const PLAYGROUND_IMAGES_MAX = 10_000;
/** Open jobs of one account's playground: people try a few pictures at a time. */
export const PLAYGROUND_ACCOUNT_OPEN_MAX = 4;
/** Days begin at midnight UTC, by the database's clock. */
export const DAY_MS = 86_400_000;

/** Its pictures of this day are used, or it has PLAYGROUND_ACCOUNT_OPEN_MAX jobs open. */
export type PlaygroundRefusal = 'allowance-used' | 'too-many-open';
