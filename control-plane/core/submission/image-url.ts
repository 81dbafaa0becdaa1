import { OVERLONG, type TextValue } from '@matting/http/body-fields.ts';
import {
  ForbiddenUrlError,
  type OutgoingPolicy,
  requireOutgoingUrl,
  TOO_LONG,
} from '@matting/http/outgoing/outgoing-url.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { SEND_ITSELF } from '../jobs/acceptable-image.ts';

/** The URL parser drops some of these and escapes others. */
const CONTROL_CHARACTER = /\p{Cc}/u;
/** The parser drops an empty userinfo without a trace. */
const EMPTY_USERINFO = /^ *https?:[/\\]*:?@/i;

/** @throws ContractError INVALID_IMAGE_SOURCE */
export function requireImageUrl(text: TextValue, policy: OutgoingPolicy): string {
  return requireUsable(text, policy, cause => {
    const wrong = `is not usable: ${cause.message}`;
    const fieldErrors = [{ field: 'image_url', detail: wrong }];
    const detail = `image_url ${wrong}. ${SEND_ITSELF}`;
    return new ContractError('INVALID_IMAGE_SOURCE', detail, { cause, fieldErrors });
  });
}

export function requireBackgroundUrl(text: TextValue, policy: OutgoingPolicy): string {
  return requireUsable(text, policy, ({ message }) =>
    invalidParameter('background_url', `is not usable: ${message}`),
  );
}

function requireUsable(
  text: TextValue,
  policy: OutgoingPolicy,
  errorOfForbidden: (forbidden: ForbiddenUrlError) => ContractError,
): string {
  try {
    if (text === OVERLONG) throw new ForbiddenUrlError(TOO_LONG);
    if (CONTROL_CHARACTER.test(text)) {
      throw new ForbiddenUrlError('it has a control character');
    }
    requireOutgoingUrl(text, policy);
    if (EMPTY_USERINFO.test(text)) {
      throw new ForbiddenUrlError('it must have no user name or password');
    }
    return text;
  } catch (error) {
    if (!(error instanceof ForbiddenUrlError)) throw error;
    throw errorOfForbidden(error);
  }
}
