import assert from 'node:assert/strict';
import { ContractError } from '@matting/proto/contract/errors.ts';

export const BOUNDARY = 'a-boundary-of-27-characters';

export interface Part {
  readonly name: string;
  readonly body: Buffer | string;
  /** undefined: a text field. */
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

export function splits(body: Buffer): Buffer[][] {
  return Array.from({ length: body.length + 1 }, (_, at) => [
    body.subarray(0, at),
    body.subarray(at),
  ]);
}

/** Indexes modulo the length. */
export function cutAt(body: Buffer, at: readonly number[]): Buffer[] {
  const ends = [...at.map(n => n % (body.length + 1)), body.length].sort((a, b) => a - b);
  return ends.map((end, index) => body.subarray(ends[index - 1] ?? 0, end));
}

export function refusalOf(read: (chunks: Buffer[]) => unknown, chunks: Buffer[]): ContractError {
  try {
    read(chunks);
  } catch (error) {
    assert.ok(error instanceof ContractError, String(error));
    assert.equal(error.code, 'INVALID_REQUEST');
    return error;
  }
  assert.fail(`accepted: ${Buffer.concat(chunks).toString('latin1').slice(0, 300)}`);
}
