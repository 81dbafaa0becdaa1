import {
  colourOf,
  oneOf,
  opaque,
  requireMatteAlone,
  requireShort,
  type Texts,
} from '@matting/compat/field-values.ts';
import { type FormBody, ignoredOf } from '@matting/compat/picture-form.ts';
import type { PictureRequest } from '@matting/compat/picture-route.ts';
import { requireBackgroundUrl, requireImageUrl } from '@matting/core/submission/image-url.ts';
import type { MattingRequest } from '@matting/core/submission/matting-request.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import { regionFault } from '@matting/proto/contract/finishing/region.ts';
import {
  type Background,
  type Finishing,
  isOpaque,
  type Region,
} from '@matting/proto/contract/finishing.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { manySources, ONE_SOURCE, RemovebgRefusal } from './removebg-errors.ts';
import {
  cropOf,
  formatOf,
  megapixelsMaxOf,
  positionOf,
  type RemovebgFields,
  type RemovebgFormat,
  type RemovebgPicture,
  type RemovebgText,
  regionOf,
  requireUnrendered,
  scaleOf,
  shadowOf,
  sizeOf,
  typeLevelOf,
  withoutEffect,
} from './removebg-values.ts';

function requireRegionIn(
  region: Region,
  { width, height }: { readonly width: number; readonly height: number },
): void {
  const fault = regionFault(region, { width, height });
  if (fault === 'exceeds') {
    const detail = `roi must lie within the image, which is ${width}x${height} pixels.`;
    throw new RemovebgRefusal('roi_exceeds_bounds', 'roi', detail);
  }
  if (fault === undefined) return;
  const detail = 'roi is empty. Send a region with at least one pixel of the image.';
  throw new RemovebgRefusal('roi_region_empty', 'roi', detail);
}

interface RemovebgRequest {
  readonly request: MattingRequest;
  readonly namesType: boolean;
}

/**
 * Checks in the order of remove.bg's list of fields.
 * @throws RemovebgRefusal; ContractError INVALID_PARAMETER, INVALID_IMAGE_SOURCE,
 * UNSUPPORTED_OUTPUT_FORMAT
 */
function requireRemovebgRequest(fields: RemovebgFields, policy: OutgoingPolicy): RemovebgRequest {
  requireOneSource(fields);
  const urls = urlsOf(fields.texts, policy);
  const texts = requireShort(fields.texts);
  const size = sizeOf(texts);
  requireUnrendered(texts);
  const namesType = typeLevelOf(texts) !== 'none';
  const format = formatOf(texts);
  const region = regionOf(texts);
  const crop = cropOf(texts);
  const scalePercent = scaleOf(texts);
  const frame = { isScaled: scalePercent !== undefined, isCropped: crop !== undefined };
  const position = positionOf(texts, frame);
  const channels = oneOf(texts, 'channels', ['rgba', 'alpha']);
  const shadow = shadowOf(texts, channels);
  const requestedBackground = backgroundOf(texts, fields);
  if (channels === 'alpha') requireMatteAlone(format, requestedBackground);
  const outputFormat = outputFormatOf(format, channels, requestedBackground);
  const background = outputFormat === 'jpeg' ? opaque(requestedBackground) : requestedBackground;
  const sizeMaxMegapixels = megapixelsMaxOf(size, outputFormat === 'png');
  const finishing: Finishing = {
    ...(region && { region }),
    ...(crop && { crop }),
    ...(scalePercent !== undefined && { scalePercent }),
    ...(position !== undefined && { position }),
    ...(sizeMaxMegapixels !== undefined && { sizeMaxMegapixels }),
    ...(background && { background }),
    ...(shadow && { shadow }),
  };
  const needsNode = channels === 'alpha' || outputFormat === 'jpeg' || outputFormat === 'zip';
  const isAsked = needsNode || Object.keys(finishing).length > 0;
  return {
    request: {
      ...urls,
      outputFormat,
      noSubject: 'fail',
      channels,
      finishing: isAsked ? finishing : undefined,
      callback: undefined,
    },
    namesType,
  };
}

function requireOneSource({ texts, pictures }: RemovebgFields): void {
  const given = [
    ...(texts.has('image_url') ? ['image_url'] : []),
    ...['image_file' as const, 'image_file_b64' as const].filter(field => pictures.has(field)),
  ];
  if (given.length === 1) return;
  throw given.length === 0
    ? new RemovebgRefusal('missing_source', 'image_file', `The request has no image. ${ONE_SOURCE}`)
    : manySources(given[1] ?? '');
}

function backgroundOf(
  texts: Texts<RemovebgText>,
  { pictures }: RemovebgFields,
): Background | undefined {
  const given = [
    ...(['bg_color', 'bg_image_url'] as const).filter(field => texts.has(field)),
    ...(pictures.has('bg_image_file') ? (['bg_image_file'] as const) : []),
  ];
  const [first, second] = given;
  if (second !== undefined) {
    const detail =
      'The request has more than one background. Send one of bg_color, bg_image_url, bg_image_file.';
    throw new RemovebgRefusal('multiple_bg_sources', second, detail);
  }
  if (first === 'bg_color') return colourOf(texts, first);
  return first === undefined ? undefined : { kind: 'picture' };
}

/** `auto` is JPEG if no part of the result can be transparent. */
function outputFormatOf(
  format: RemovebgFormat,
  channels: 'rgba' | 'alpha',
  background: Background | undefined,
): OutputFormat {
  switch (format) {
    case 'jpg':
    case 'jpeg':
      return 'jpeg';
    case 'auto':
      return channels === 'rgba' && isOpaque(background && { background }) ? 'jpeg' : 'png';
    default:
      return format;
  }
}

function urlsOf(texts: RemovebgFields['texts'], policy: OutgoingPolicy) {
  const image = texts.get('image_url');
  const background = texts.get('bg_image_url');
  return {
    imageUrl: image === undefined ? undefined : requireImageUrl(image, policy),
    backgroundUrl: background === undefined ? undefined : requireBackgroundUrl(background, policy),
  };
}

export interface RemovebgPictureRequest
  extends PictureRequest,
    Pick<RemovebgRequest, 'namesType'> {}

/** @throws what `requireRemovebgRequest` throws */
export function removebgRequestOf(
  { unknown, ...fields }: FormBody<RemovebgText, RemovebgPicture>,
  policy: OutgoingPolicy,
): RemovebgPictureRequest {
  const { request, namesType } = requireRemovebgRequest(fields, policy);
  const region = request.finishing?.region;
  return {
    request,
    backgroundGiven: fields.pictures.has('bg_image_file'),
    ignored: ignoredOf(
      { unknown, texts: fields.texts },
      withoutEffect({ namesType, shadow: request.finishing?.shadow !== undefined }),
    ),
    namesType,
    requireImage: ({ width, height }) => {
      if (region !== undefined && width !== null && height !== null) {
        requireRegionIn(region, { width, height });
      }
    },
  };
}
