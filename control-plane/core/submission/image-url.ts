/**
 * Checks of image_url and background_url at submission: the text alone. Their addresses are checked
 * by the job.
 */
import { ContractError, invalidParameter } from '#contract/errors.ts';
import {
  ForbiddenUrlError,
  type OutgoingPolicy,
  requireOutgoingUrl,
} from '../fetching/outgoing-url.ts';

/** The parser would drop some and escape others: what is requested would not be what was sent. */
const CONTROL_CHARACTER = /\p{Cc}/u;

/** Before the host: the parser drops an empty one without a trace. */
const EMPTY_USERINFO = /^ *https?:[/\\]*:?@/i;

/** Throws INVALID_IMAGE_SOURCE with the field's error. */
export function requireImageUrl(text: string, policy: OutgoingPolicy): void {
  requireUsable(text, policy, cause => {
    const { message } = cause;
    const fieldErrors = [{ field: 'image_url', detail: message }];
    const detail = `image_url is not usable: ${message}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause, fieldErrors });
  });
}

/** The same rules for background_url. Throws INVALID_PARAMETER with the field's error. */
export function requireBackgroundUrl(text: string, policy: OutgoingPolicy): void {
  requireUsable(text, policy, ({ message }) =>
    invalidParameter('background_url', `is not usable: ${message}`),
  );
}

function requireUsable(
  text: string,
  policy: OutgoingPolicy,
  refusalOf: (forbidden: ForbiddenUrlError) => ContractError,
): void {
  try {
    if (CONTROL_CHARACTER.test(text)) {
      throw new ForbiddenUrlError('a URL has no control characters');
    }
    requireOutgoingUrl(text, policy);
    if (EMPTY_USERINFO.test(text)) {
      throw new ForbiddenUrlError('a user name or password in the URL is not accepted');
    }
  } catch (error) {
    if (!(error instanceof ForbiddenUrlError)) throw error;
    throw refusalOf(error);
  }
}
