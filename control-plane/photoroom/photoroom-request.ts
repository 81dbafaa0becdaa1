import {
  booleanOf,
  colourOf,
  oneOf,
  opaque,
  requireMatteAlone,
  requireShort,
} from '@matting/compat/field-values.ts';
import { type FormBody, type FormFields, ignoredOf } from '@matting/compat/picture-form.ts';
import type { PictureRequest } from '@matting/compat/picture-route.ts';
import { ContractError, type FieldError } from '@matting/proto/contract/errors.ts';
import { NO_MARGINS, SHADOW, type Shadow } from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';

type Text = 'format' | 'channels' | 'bg_color' | 'size' | 'crop' | 'despill' | 'shadow.mode';
/**
 * Photoroom's reference documents only the file. Its questions and answers also show Base64 in
 * JSON.
 */
type Picture = 'image_file' | 'image_file_b64';

export const PHOTOROOM_FIELDS: FormFields<Text, Picture> = {
  texts: ['format', 'channels', 'bg_color', 'size', 'crop', 'despill', 'shadow.mode'],
  pictures: { image_file: 'image', image_file_b64: 'base64' },
  manyImages: field => {
    const detail = 'The request has more than one image. Send one of image_file, image_file_b64.';
    return new ContractError('INVALID_REQUEST', detail, { fieldErrors: [{ field, detail }] });
  },
};

/** Megapixels of a result. */
const MEGAPIXELS_MAX = { full: 36, preview: 0.25, medium: 1.5, hd: 4 } as const;
/** The service derives shadows from the matte. Photoroom draws its own by a model. */
const SHADOWS = {
  none: undefined,
  'ai.soft': SHADOW.absent,
  'ai.hard': { ...SHADOW.absent, blur: 0.5 },
  'ai.floating': { ...SHADOW.absent, blur: 6, offsetY: 6 },
} as const satisfies Record<string, Shadow | undefined>;
const FORMATS: Readonly<Record<'png' | 'jpg' | 'webp', OutputFormat>> = {
  png: 'png',
  jpg: 'jpeg',
  webp: 'webp',
};

const NO_IMAGE: FieldError = {
  field: 'image_file',
  detail: 'Please provide an image. Send it as image_file.',
};

export function isMissingImage({ fieldErrors }: ContractError): boolean {
  return fieldErrors.includes(NO_IMAGE);
}

/** @throws ContractError INVALID_IMAGE_SOURCE: the request has no image; INVALID_PARAMETER */
export function photoroomRequestOf({
  texts: given,
  pictures,
  unknown,
}: FormBody<Text, Picture>): PictureRequest {
  if (pictures.size === 0) {
    throw new ContractError('INVALID_IMAGE_SOURCE', NO_IMAGE.detail, { fieldErrors: [NO_IMAGE] });
  }
  const texts = requireShort(given);
  const format = oneOf(texts, 'format', ['png', 'jpg', 'webp']);
  const channels = oneOf(texts, 'channels', ['rgba', 'alpha']);
  const requestedBackground = colourOf(texts, 'bg_color');
  const size = oneOf(texts, 'size', ['full', 'preview', 'medium', 'hd']);
  const isCropped = booleanOf(texts, 'crop', false);
  booleanOf(texts, 'despill', false);
  const mode = oneOf(texts, 'shadow.mode', ['none', 'ai.soft', 'ai.hard', 'ai.floating']);
  const shadow = channels === 'alpha' ? undefined : SHADOWS[mode];
  if (channels === 'alpha') requireMatteAlone(format, requestedBackground);
  const background = format === 'jpg' ? opaque(requestedBackground) : requestedBackground;
  return {
    request: {
      imageUrl: undefined,
      outputFormat: FORMATS[format],
      channels,
      finishing: {
        sizeMaxMegapixels: MEGAPIXELS_MAX[size],
        ...(isCropped && { crop: NO_MARGINS }),
        ...(background && { background }),
        ...(shadow && { shadow }),
      },
      backgroundUrl: undefined,
      callback: undefined,
    },
    backgroundGiven: false,
    ignored: ignoredOf({ unknown, texts }, shadow ? ['despill'] : ['despill', 'shadow.mode']),
  };
}
