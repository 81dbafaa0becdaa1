/** Moves a request's body through the parser, chunk by chunk, into its fields and its upload. */
import type { Readable } from 'node:stream';
import { ContractError } from '#contract/errors.ts';
import { REQUEST_BODY_BYTES_MAX } from '#contract/limits.ts';
import type { MattingFields } from '../services/submit-fields.ts';
import type { ImageUpload } from '../services/submit-upload.ts';
import { bodyTooLarge } from './json-body.ts';
import { MattingBodyParser } from './matting-body.ts';

/**
 * Resolves at the end of the body. The stream is left as it is on a refusal: its connection still
 * has an answer to carry. The upload is the caller's to commit or abort.
 * @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE, SERVICE_UNAVAILABLE
 */
export async function readMattingBody(body: Readable, upload: ImageUpload): Promise<MattingFields> {
  const parser = new MattingBodyParser();
  let receivedBytes = 0;
  for await (const chunk of chunksOf(body)) {
    receivedBytes += chunk.length;
    if (receivedBytes > REQUEST_BODY_BYTES_MAX) throw bodyTooLarge();
    const text = parser.push(chunk);
    if (text.length > 0) await upload.write(text);
  }
  return parser.finish();
}

/** A stream that breaks off is a caller who went away: nobody reads the answer. */
async function* chunksOf(body: Readable): AsyncGenerator<Buffer> {
  try {
    for await (const chunk of body.iterator({ destroyOnReturn: false })) yield chunk as Buffer;
  } catch (cause) {
    throw new ContractError('INVALID_REQUEST', 'the request body ended early', { cause });
  }
}
