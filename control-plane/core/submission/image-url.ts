/** The URLs of a request's pictures, judged before anything is fetched. */
import {
  ForbiddenUrlError,
  type OutgoingPolicy,
  requireOutgoingUrl,
} from '@matting/http/outgoing/outgoing-url.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { SEND_ITSELF } from '../jobs/acceptable-image.ts';

/** The parser would drop some and escape others. */
const CONTROL_CHARACTER = /\p{Cc}/u;
/** The expression matches before the host: the parser drops an empty userinfo without a trace. */
const EMPTY_USERINFO = /^ *https?:[/\\]*:?@/i;

export function requireImageUrl(text: string, policy: OutgoingPolicy): void {
  requireUsable(text, policy, cause => {
    const wrong = `is not usable: ${cause.message}`;
    const fieldErrors = [{ field: 'image_url', detail: wrong }];
    const detail = `image_url ${wrong}. ${SEND_ITSELF}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause, fieldErrors });
  });
}

export function requireBackgroundUrl(text: string, policy: OutgoingPolicy): void {
  requireUsable(text, policy, ({ message }) =>
    invalidParameter('background_url', `is not usable: ${message}`),
  );
}

function requireUsable(
  text: string,
  policy: OutgoingPolicy,
  errorOfForbidden: (forbidden: ForbiddenUrlError) => ContractError,
): void {
  try {
    if (CONTROL_CHARACTER.test(text)) {
      throw new ForbiddenUrlError('it has a control character');
    }
    requireOutgoingUrl(text, policy);
    if (EMPTY_USERINFO.test(text)) {
      throw new ForbiddenUrlError('it must have no user name or password');
    }
  } catch (error) {
    if (!(error instanceof ForbiddenUrlError)) throw error;
    throw errorOfForbidden(error);
  }
}
