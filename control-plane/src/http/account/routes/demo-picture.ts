/** The picture that `make demo` cuts out (docs/images/draw-demo.ts drew it), for the playground. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';

const FILE = path.join(import.meta.dirname, '../../../../../docs/images/demo.jpg');

let bytes: Promise<Buffer> | undefined;

/** The file's bytes, read once. */
export function demoPicture(): Promise<Buffer> {
  bytes ??= readFile(FILE);
  // A failure is not kept: the next who asks reads again.
  bytes.catch(() => {
    bytes = undefined;
  });
  return bytes;
}
