/**
 * Decodes further pictures of a request. An error's detail begins with the field's name.
 * @throws ContractError INVALID_PARAMETER, NODE_INCAPABLE, IMAGE_RESOLUTION_TOO_LARGE
 */
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { type DecodedFile, type DecodeOptions, decodeFile } from '../codecs/decode.ts';
import { type HintsPlane, lumaOf } from '../matte/hints/seeds.ts';
import { freePixels } from '../rgba-picture.ts';

type Options = Omit<DecodeOptions, 'pixelsMax'>;

export async function decodeBackground(file: Buffer, options: Options): Promise<DecodedFile> {
  return await decodeBeside('background', file, options);
}

export async function decodeHints(file: Buffer, options: Options): Promise<HintsPlane> {
  const picture = await decodeBeside('hints_file', file, options);
  if (picture.translucent || (picture.format !== 'png' && picture.format !== 'webp')) {
    throw invalidParameter('hints_file', 'must be PNG or WebP without an alpha channel');
  }
  const plane = lumaOf(picture);
  freePixels(picture.rgba);
  return plane;
}

async function decodeBeside(field: string, file: Buffer, options: Options): Promise<DecodedFile> {
  try {
    return await decodeFile(file, { ...options, pixelsMax: BACKGROUND_PIXELS_MAX });
  } catch (error) {
    throw error instanceof ContractError ? asField(field, error) : error;
  }
}

function asField(field: string, error: ContractError): ContractError {
  const isOfFile = error.code === 'UNSUPPORTED_IMAGE_FORMAT' || error.code === 'PROCESSING_FAILED';
  const code = isOfFile ? 'INVALID_PARAMETER' : error.code;
  return new ContractError(code, `${field}: ${error.message}`, { cause: error.cause });
}
