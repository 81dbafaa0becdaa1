/** Bodies of multipart/form-data, written by hand so that they can be wrong. */

export const BOUNDARY = 'a-boundary-of-27-characters';

export interface Part {
  readonly name: string;
  readonly body: Buffer | string;
  /** undefined: text, without a file name. */
  readonly fileName?: string;
  readonly type?: string;
  readonly headers?: readonly string[];
}

export function partOf({ name, body, fileName, type, headers = [] }: Part): Buffer {
  const file = fileName === undefined ? '' : `; filename="${fileName}"`;
  const lines = [
    `--${BOUNDARY}`,
    `Content-Disposition: form-data; name="${name}"${file}`,
    ...(type === undefined ? [] : [`Content-Type: ${type}`]),
    ...headers,
  ];
  const head = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`);
  return Buffer.concat([head, Buffer.from(body), Buffer.from('\r\n')]);
}

export function formOf(parts: readonly Part[]): Buffer {
  return Buffer.concat([...parts.map(partOf), Buffer.from(`--${BOUNDARY}--\r\n`)]);
}

export function imagePart(bytes: Buffer, name = 'image_file'): Part {
  return { name, body: bytes, fileName: 'photo.png', type: 'image/png' };
}

export const FORM_TYPE = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` };
