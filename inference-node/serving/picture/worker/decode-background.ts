import { ContractError } from '@matting/proto/contract/errors.ts';
import { BACKGROUND_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import { type DecodedFile, type DecodeOptions, decodeFile } from '../codecs/decode.ts';

/**
 * Decodes the picture behind a cut-out; an error's detail begins with its field's name.
 * @throws ContractError INVALID_PARAMETER, NODE_INCAPABLE, IMAGE_RESOLUTION_TOO_LARGE
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
