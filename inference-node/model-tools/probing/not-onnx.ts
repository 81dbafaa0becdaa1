import { open } from 'node:fs/promises';
import {
  diskError,
  ModelError,
  type ModelErrorKind,
  printable,
} from '@matting/serving/models/model-error.ts';

export const HEAD_BYTES = 512;

const KINDS: readonly (readonly [what: string, is: (head: Buffer, text: string) => boolean])[] = [
  ['empty', head => head.length === 0],
  [
    'a pointer of Git LFS: the file itself is fetched by git lfs pull, or from the hub',
    (_, text) => text.startsWith('version https://git-lfs'),
  ],
  [
    'a web page; use the address of the file itself, or a token',
    (_, text) => /^\s*<(!doctype|html|head)/i.test(text),
  ],
  [
    'safetensors, weights without a graph',
    head => head[8] === 0x7b && head.readBigUInt64LE() < 1e8,
  ],
  ['a zip archive, such as a checkpoint of torch', (_, text) => text.startsWith('PK\u0003\u0004')],
  ['a pickle, such as a checkpoint of torch', head => head[0] === 0x80 && (head[1] ?? 9) < 6],
  ['compressed with gzip', head => head[0] === 0x1f && head[1] === 0x8b],
  ["in ONNX Runtime's own format", (_, text) => text.slice(4, 8) === 'ORTM'],
];

/** @returns words that continue "it is", or undefined */
export function whatElseItIs(head: Buffer): string | undefined {
  const text = head.toString('latin1', 0, HEAD_BYTES);
  if (/^\s*[{[]/.test(text)) return `JSON: ${text.trim().slice(0, 200)}`;
  return KINDS.find(([, is]) => is(head, text))?.[0];
}

export async function requireOnnx(path: string, kind: ModelErrorKind): Promise<void> {
  const head = Buffer.alloc(HEAD_BYTES);
  await using file = await open(path).catch(error => {
    throw diskError(error, 'read', path);
  });
  const { bytesRead } = await file.read(head, 0, HEAD_BYTES, 0);
  const other = whatElseItIs(head.subarray(0, bytesRead));
  if (other === undefined) return;
  throw new ModelError(kind, printable(`${path} is not an ONNX file, but ${other}`));
}
