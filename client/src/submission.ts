/** A prepared request. Every retry sends the same bytes. */
import { MattingError } from './errors.ts';
import { collect } from './result-file.ts';
import type { CorrectionFields, ImageBytes, ImageSource, MattingFields } from './types.ts';

/** The service's bound. */
export const IMAGE_BYTES_MAX = 52_428_800;
/** URLs and secrets, because proxies log queries; shapes, because they are too long for a query. */
const NEVER_IN_QUERY = ['background_url', 'callback_url', 'callback_secret', 'keep', 'erase'];

export interface MattingRequest extends MattingFields {
  readonly image: ImageSource;
}

/** JSON without files, the picture itself, or a form. */
export interface Submission {
  readonly headers: Readonly<Record<string, string>>;
  /** With its question mark, or empty. */
  readonly query: string;
  readonly body: string | Uint8Array | FormData;
}

/** @throws MattingError IMAGE_TOO_LARGE; errors of a stream */
export async function prepare(request: MattingRequest): Promise<Submission> {
  const { image, background_file, hints_file, ...rest } = request;
  const files = Object.entries({ background_file, hints_file }).filter(([, file]) => file);
  const fields = Object.entries(rest).filter(([, value]) => value !== undefined);
  const isUrl = typeof image === 'string' || image instanceof URL;
  if (isUrl && !/^https?:/i.test(String(image).trim())) {
    const file = 'send a file as await readImage(path) of matting-client/files';
    throw new TypeError(`image is no http(s) address: ${file}`);
  }
  if (isUrl && files.length === 0) {
    const body = JSON.stringify({ image_url: String(image), ...Object.fromEntries(fields) });
    return { headers: { 'content-type': 'application/json' }, query: '', body };
  }
  const secret = fields.some(([name]) => NEVER_IN_QUERY.includes(name));
  if (!isUrl && files.length === 0 && !secret) {
    const parts = fields.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
    const headers = { 'content-type': 'application/octet-stream' };
    const query = parts.length === 0 ? '' : `?${parts.join('&')}`;
    return { headers, query, body: await bytesOf(image) };
  }
  const form = await formOf(fields, files);
  if (isUrl) form.append('image_url', String(image));
  else form.append('image_file', await blobOf(image), 'image');
  // `fetch` sets the boundary in the media type.
  return { headers: {}, query: '', body: form };
}

type Given = readonly (readonly [name: string, value: unknown])[];

async function formOf(fields: Given, files: Given): Promise<FormData> {
  const form = new FormData();
  for (const [name, value] of fields) {
    form.append(name, Array.isArray(value) ? JSON.stringify(value) : String(value));
  }
  for (const [name, file] of files) form.append(name, await blobOf(file as ImageBytes), name);
  return form;
}

/** A correction has no image. */
export async function prepareCorrection(request: CorrectionFields): Promise<Submission> {
  const { background_file, hints_file, ...rest } = request;
  const files = Object.entries({ background_file, hints_file }).filter(([, file]) => file);
  const fields = Object.entries(rest).filter(([, value]) => value !== undefined);
  if (files.length === 0) {
    const body = JSON.stringify(Object.fromEntries(fields));
    return { headers: { 'content-type': 'application/json' }, query: '', body };
  }
  return { headers: {}, query: '', body: await formOf(fields, files) };
}

async function blobOf(image: ImageBytes): Promise<Blob> {
  return new Blob([(await bytesOf(image)) as Uint8Array<ArrayBuffer>]);
}

async function bytesOf(image: ImageBytes): Promise<Uint8Array> {
  if (image instanceof ArrayBuffer) return bytesOf(new Uint8Array(image));
  if (image instanceof Blob) {
    requireSize(image.size);
    return new Uint8Array(await image.arrayBuffer());
  }
  if (image instanceof Uint8Array) {
    requireSize(image.byteLength);
    return image;
  }
  if ('getReader' in image) return collect(piecesOf(image), IMAGE_BYTES_MAX);
  return collect(image, IMAGE_BYTES_MAX);
}

function requireSize(bytes: number): void {
  if (bytes <= IMAGE_BYTES_MAX) return;
  const parts = { code: 'IMAGE_TOO_LARGE', retryable: false };
  throw new MattingError(`the image is larger than ${IMAGE_BYTES_MAX / 1_048_576} MiB`, parts);
}

/** Some runtimes' streams are not iterable. */
async function* piecesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      ended = done;
      if (done) return;
      yield value;
    }
  } finally {
    if (!ended) await reader.cancel();
  }
}
