/** Recorded from Apache's HttpClient for Java. */
import { randomUUID } from 'node:crypto';
import { pngHeader } from './support/test-app.ts';

export interface Recorded {
  readonly type: string;
  readonly head: readonly string[];
  readonly tail: readonly string[];
}

const BOUNDARY_4 = 'IndMy5NJI0r3Jp8Mbr4-psUwcr11wFA6ZPw';
const BOUNDARY_5 = 'httpclient_boundary_4895b64e-16a8-4b18-bb53-9accaada5176';

export const version4 = (field: string, value: string): Recorded => ({
  type: `multipart/form-data; boundary=${BOUNDARY_4}`,
  head: [
    `--${BOUNDARY_4}`,
    'Content-Disposition: form-data; name="image_file"; filename="tiny.png"',
    'Content-Type: application/octet-stream',
    'Content-Transfer-Encoding: binary',
  ],
  tail: [
    `--${BOUNDARY_4}`,
    `Content-Disposition: form-data; name="${field}"`,
    'Content-Type: text/plain; charset=ISO-8859-1',
    'Content-Transfer-Encoding: 8bit',
    '',
    value,
    `--${BOUNDARY_4}--`,
  ],
});
export const version5 = (field: string, value: string): Recorded => ({
  type: `multipart/form-data; charset=ISO-8859-1; boundary=${BOUNDARY_5}`,
  head: [
    `--${BOUNDARY_5}`,
    'Content-Disposition: form-data; name="image_file"; filename="tiny.png"',
    'Content-Type: application/octet-stream',
  ],
  tail: [
    `--${BOUNDARY_5}`,
    `Content-Disposition: form-data; name="${field}"`,
    'Content-Type: text/plain; charset=UTF-8',
    '',
    value,
    `--${BOUNDARY_5}--`,
  ],
});

export const picture = () => Buffer.concat([pngHeader(40, 30), Buffer.from(randomUUID())]);

export function bytesOf({ head, tail }: Recorded): Buffer {
  const [before, behind] = [`${head.join('\r\n')}\r\n\r\n`, `\r\n${tail.join('\r\n')}\r\n`];
  return Buffer.concat([Buffer.from(before), picture(), Buffer.from(behind)]);
}
