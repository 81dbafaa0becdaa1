/** Decodes a background's file with the defences of an image's. Its faults name it. */
import { ContractError } from '#contract/errors.ts';
import { BACKGROUND_PIXELS_MAX } from '#contract/limits.ts';
import { type DecodedFile, type DecodeOptions, decodeFile } from '../codecs/decode.ts';

/**
 * @throws ContractError INVALID_PARAMETER (it cannot be decoded), IMAGE_RESOLUTION_TOO_LARGE,
 *   NODE_INCAPABLE
 */
export async function decodeBackground(
  file: Buffer,
  options: Omit<DecodeOptions, 'pixelsMax'>,
): Promise<DecodedFile> {
  try {
    return await decodeFile(file, { ...options, pixelsMax: BACKGROUND_PIXELS_MAX });
  } catch (error) {
    throw error instanceof ContractError ? asBackgrounds(error) : error;
  }
}

function asBackgrounds(error: ContractError): ContractError {
  const isOfFile = error.code === 'UNSUPPORTED_IMAGE_FORMAT' || error.code === 'PROCESSING_FAILED';
  const code = isOfFile ? 'INVALID_PARAMETER' : error.code;
  return new ContractError(code, `background: ${error.message}`, { cause: error.cause });
}
