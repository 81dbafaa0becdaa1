import type { IncomingMessage } from 'node:http';
import { type FormFields, readFormBody, requireFormBody } from '@matting/compat/picture-form.ts';
import type { RequestUploads } from '@matting/core/submission/image-uploads.ts';
import { manySources } from './removebg-errors.ts';
import { REMOVEBG_TEXTS, type RemovebgPicture, type RemovebgText } from './removebg-values.ts';

const FIELDS: FormFields<RemovebgText, RemovebgPicture> = {
  texts: REMOVEBG_TEXTS,
  pictures: { image_file: 'image', image_file_b64: 'base64', bg_image_file: 'background' },
  manyImages: manySources,
};

/** An onRequest hook. @throws ContractError UNSUPPORTED_MEDIA_TYPE, IMAGE_TOO_LARGE */
export const requireRemovebgBody = requireFormBody(FIELDS);

/**
 * Reads the whole body. The route needs `requireRemovebgBody` as a hook.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE; RemovebgRefusal multiple_sources
 */
export function readRemovebgBody(request: IncomingMessage, uploads: RequestUploads) {
  return readFormBody(request, uploads, FIELDS);
}
