/**
 * Moves a submission's body, in whichever form it comes, into its fields and its uploads, chunk by
 * chunk: what is held of it is one chunk and the small texts.
 */
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import type { MattingFields } from '../../submission/submit-fields.ts';
import type { ImageUpload, RequestUploads } from '../../submission/submit-upload.ts';
import { type BodyBounds, bodyChunks } from './body-chunks.ts';
import { bodyBytesMax, bodyFormOf } from './body-form.ts';
import { MattingBodyParser } from './matting-body.ts';
import { MattingForm } from './matting-form.ts';
import { readParts } from './multipart-reader.ts';
import { type QueryFields, readQueryFields, requireNoQueryFields } from './query-fields.ts';

/**
 * Resolves at the end of the body. The uploads are the caller's to commit or abort.
 * @throws ContractError INVALID_REQUEST, INVALID_IMAGE_SOURCE, IMAGE_TOO_LARGE
 */
export type ReadMattingBody = (uploads: RequestUploads) => Promise<MattingFields>;

/**
 * How to read this request's body, of which no byte was read yet; only where `requireBodyForm` has
 * passed. @throws ContractError INVALID_REQUEST, INVALID_PARAMETER: what its query says
 */
export function mattingBodyReaderOf(request: IncomingMessage): ReadMattingBody {
  const form = bodyFormOf(request);
  if (form === undefined) throw new Error('a body of an unsupported type is to be read');
  const bounds = { bytesMax: bodyBytesMax(form) };
  const target = request.url ?? '';
  switch (form.kind) {
    case 'json':
      return ({ image }) => readMattingJson(request, image, bounds);
    case 'multipart':
      requireNoQueryFields(target);
      return uploads => readMattingForm(request, { ...form, uploads }, bounds);
    case 'picture': {
      const texts = readQueryFields(target);
      return ({ image }) => readPicture(request, { texts, image }, bounds);
    }
  }
}

/** A JSON object. @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE */
export async function readMattingJson(
  body: Readable,
  upload: ImageUpload,
  bounds: BodyBounds,
): Promise<MattingFields> {
  const parser = new MattingBodyParser();
  for await (const chunk of bodyChunks(body, bounds)) {
    const text = parser.push(chunk);
    if (text.length > 0) await upload.write(text);
  }
  return parser.finish();
}

/**
 * multipart/form-data.
 * @throws ContractError INVALID_REQUEST, INVALID_IMAGE_SOURCE, IMAGE_TOO_LARGE
 */
export async function readMattingForm(
  body: Readable,
  { boundary, uploads }: { readonly boundary: string; readonly uploads: RequestUploads },
  bounds: BodyBounds,
): Promise<MattingFields> {
  const form = new MattingForm(uploads);
  await readParts(body, boundary, form, bounds);
  return form.finish();
}

/** The file itself. @throws ContractError INVALID_REQUEST, IMAGE_TOO_LARGE */
export async function readPicture(
  body: Readable,
  { texts, image }: { readonly texts: QueryFields; readonly image: ImageUpload },
  bounds: BodyBounds,
): Promise<MattingFields> {
  image.takeBytes();
  for await (const chunk of bodyChunks(body, bounds)) await image.write(chunk);
  return { texts, imageGiven: true };
}
