/** Checks of image_url at submission: its text alone. Its addresses are checked by the job. */
import { ContractError } from '#contract/errors.ts';
import {
  ForbiddenUrlError,
  type OutgoingPolicy,
  requireOutgoingUrl,
} from './guard/outgoing-url.ts';

/** The parser would drop some and escape others: what is requested would not be what was sent. */
const CONTROL_CHARACTER = /\p{Cc}/u;

/** Before the host: the parser drops an empty one without a trace. */
const EMPTY_USERINFO = /^ *https?:[/\\]*:?@/i;

/** Throws INVALID_IMAGE_SOURCE with the field's error. */
export function requireImageUrl(text: string, policy: OutgoingPolicy): void {
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
    throw new ContractError('INVALID_IMAGE_SOURCE', `image_url is not usable: ${error.message}`, {
      cause: error,
      fieldErrors: [{ field: 'image_url', detail: error.message }],
    });
  }
}
