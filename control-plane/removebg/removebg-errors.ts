/**
 * Errors as remove.bg's clients expect them: `{"errors":[{title, code, detail}]}`. Clients show the
 * title of the first, so the list is never empty.
 */

import { fieldOf, renaming, sendRefusal } from '@matting/compat/refusals.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** remove.bg's codes that are more exact than the contract's, each with the contract's code. */
const OF_ITS_OWN = {
  missing_source: 'INVALID_IMAGE_SOURCE',
  multiple_sources: 'INVALID_IMAGE_SOURCE',
  failed_to_read_image: 'INVALID_IMAGE_SOURCE',
  multiple_bg_sources: 'INVALID_PARAMETER',
  roi_exceeds_bounds: 'INVALID_PARAMETER',
  roi_region_empty: 'INVALID_PARAMETER',
} as const satisfies Record<string, ErrorCode>;

export class RemovebgRefusal extends ContractError {
  readonly removebgCode: keyof typeof OF_ITS_OWN;

  constructor(code: keyof typeof OF_ITS_OWN, field: string, detail: string) {
    super(OF_ITS_OWN[code], detail, { fieldErrors: [{ field, detail }] });
    this.removebgCode = code;
  }
}

export const ONE_SOURCE = 'Send one of image_file, image_url, image_file_b64.';

export function manySources(field: string): RemovebgRefusal {
  const detail = `The request has more than one image. ${ONE_SOURCE}`;
  return new RemovebgRefusal('multiple_sources', field, detail);
}

const REMOVEBG_PATH = '/v1.0/';

interface RemovebgError {
  readonly status: number;
  readonly code: string;
  readonly title: string;
}

const OF_CODE: Partial<Record<ErrorCode, RemovebgError>> = {
  MISSING_API_KEY: { status: 403, code: 'auth_failed', title: 'Missing API Key' },
  INVALID_API_KEY: { status: 403, code: 'invalid_api_key', title: 'API Key invalid' },
  INSUFFICIENT_CREDITS: {
    status: 402,
    code: 'insufficient_credits',
    title: 'Insufficient credits',
  },
  KEY_CAP_REACHED: { status: 402, code: 'insufficient_credits', title: 'Insufficient credits' },
  KEY_NOT_ALLOWED: { status: 403, code: 'auth_failed', title: 'API Key not allowed to do this' },
  RATE_LIMITED: { status: 429, code: 'rate_limit_exceeded', title: 'Rate limit exceeded' },
  INVALID_REQUEST: { status: 400, code: 'invalid_request', title: 'The request is malformed' },
  UNSUPPORTED_IMAGE_FORMAT: { status: 400, code: 'invalid_file_type', title: 'Invalid file type' },
  IMAGE_TOO_LARGE: { status: 400, code: 'file_too_large', title: 'File too large' },
  IMAGE_RESOLUTION_TOO_LARGE: {
    status: 400,
    code: 'resolution_too_high',
    title: 'Image resolution too high',
  },
  NO_SUBJECT: {
    status: 400,
    code: 'unknown_foreground',
    title: 'Could not identify foreground in image',
  },
  UNSUPPORTED_OUTPUT_FORMAT: {
    status: 400,
    code: 'invalid_format',
    title: 'Invalid format parameter given',
  },
};

const OF_REFUSAL: Readonly<Record<RemovebgRefusal['removebgCode'], string>> = {
  missing_source: 'No image given',
  multiple_sources: 'Multiple image sources given',
  failed_to_read_image: 'There was an error reading the image',
  multiple_bg_sources: 'Multiple background sources given',
  roi_exceeds_bounds: 'ROI exceeds image bounds',
  roi_region_empty: 'ROI region is empty',
};

const namesHere = renaming({
  image_base64: 'image_file_b64',
  background_url: 'bg_image_url',
  background_file: 'bg_image_file',
});

/** Whether this interface writes the errors of a request, also for unknown paths. */
export function isRemovebgRequest(path: string): boolean {
  // A base URL that ends in a slash gives //v1.0.
  return path.replace(/^\/+/, '/').startsWith(REMOVEBG_PATH);
}

export function writeRemovebgError(
  error: ContractError,
  _request: FastifyRequest,
  reply: FastifyReply,
): void {
  const { status, code, title } = removebgErrorOf(error);
  const body = { errors: [{ title, code, detail: namesHere(error.message) }] };
  sendRefusal(reply, error, { status, body });
}

/** A code that is neither here nor in OF_CODE keeps its HTTP status and title. */
export function removebgErrorOf(error: ContractError): RemovebgError {
  if (error instanceof RemovebgRefusal) {
    const { removebgCode: code } = error;
    return { status: 400, code, title: OF_REFUSAL[code] };
  }
  const { code, spec, retryable } = error;
  switch (code) {
    case 'INVALID_PARAMETER':
      return ofParameter(namesHere(fieldOf(error)));
    case 'INVALID_IMAGE_SOURCE':
      return ofSource(error);
    case 'IMAGE_DOWNLOAD_FAILED':
      return ofDownload(error);
    case 'PROCESSING_FAILED':
      return retryable
        ? { status: 503, code: 'processing_failed', title: 'The image could not be processed now' }
        : { status: 400, code: 'failed_to_read_image', title: OF_REFUSAL.failed_to_read_image };
    default:
      return OF_CODE[code] ?? { status: spec.http, code: code.toLowerCase(), title: spec.title };
  }
}

function ofParameter(field: string): RemovebgError {
  // Only a node, which has the image, can detect an empty region.
  if (field === 'region') {
    return { status: 400, code: 'roi_region_empty', title: OF_REFUSAL.roi_region_empty };
  }
  if (field === 'background') {
    const title = 'There was an error reading the background image';
    return { status: 400, code: 'failed_to_read_image', title };
  }
  const title =
    field === 'bg_image_url'
      ? 'Invalid bg_image_url: Please provide a valid URL.'
      : `Invalid ${field} parameter given`;
  return { status: 400, code: `invalid_${field}`, title };
}

/** The bytes are not Base64, or the policy forbids the URL. */
function ofSource(error: ContractError): RemovebgError {
  const field = namesHere(error.fieldErrors[0]?.field ?? 'image_url');
  if (field !== 'image_url') {
    return { status: 400, code: 'failed_to_read_image', title: OF_REFUSAL.failed_to_read_image };
  }
  const title = 'Invalid image_url: Please provide a valid URL.';
  return { status: 400, code: 'invalid_image_url', title };
}

function ofDownload({ message }: ContractError): RemovebgError {
  return message.startsWith('background_url')
    ? {
        status: 400,
        code: 'failed_bg_download',
        title: 'Failed to download background image from given bg_image_url',
      }
    : {
        status: 400,
        code: 'failed_image_download',
        title: 'Failed to download image from given image_url',
      };
}
