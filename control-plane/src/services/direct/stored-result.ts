/** What a stored result is, by its own bytes. */
import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import type { OutputFormat } from '#contract/formats.ts';
import { type ByteReader, readImageHeader } from '#contract/image-header.ts';
import type { BlobStore } from '../../storage/blob-store.ts';

/** One request: the readers' own window, behind the header of an archive. */
const HEAD_BYTES = 4096 + 64;
/** Requests for one result: a hostile one may have a header that is spread all over it. */
const HEAD_READS_MAX = 8;

/** An archive's first entry is stored: color.jpg, behind its own header. */
const ZIP_ENTRY = Buffer.from('PK\x03\x04', 'latin1');
const ZIP_NAME = Buffer.from('color.jpg', 'latin1');
const ZIP_NAME_AT = 30;

export interface ResultHead {
  readonly format: OutputFormat;
  /** Undefined where the header does not show it. */
  readonly width: number | undefined;
  readonly height: number | undefined;
}

/** Undefined: of none of the formats, or no still picture. */
export async function readResultHead(
  blobs: Pick<BlobStore, 'openRead'>,
  blob: string,
  bytes: number,
): Promise<ResultHead | undefined> {
  let reads = 0;
  const read = async (start: number, length: number): Promise<Buffer> => {
    if (reads === HEAD_READS_MAX) return Buffer.alloc(0);
    reads += 1;
    return await buffer(await blobs.openRead(blob, { start, end: start + length - 1 }));
  };
  const head = await read(0, Math.min(bytes, HEAD_BYTES));
  const behindHead: ByteReader = (offset, length) =>
    offset + length <= head.length ? head.subarray(offset, offset + length) : read(offset, length);
  const from = archivedFrom(head);
  const header = await readImageHeader(
    (offset, length) => behindHead(from + offset, length),
    bytes - from,
  );
  if (header === undefined || header.animated) return undefined;
  const { format, width, height } = header;
  if (from === 0) return { format, width, height };
  return format === 'jpeg' ? { format: 'zip', width, height } : undefined;
}

/** Where the picture of an archive begins; 0: it is none. */
function archivedFrom(head: Buffer): number {
  const nameEnd = ZIP_NAME_AT + ZIP_NAME.length;
  if (head.length < nameEnd || !head.subarray(0, ZIP_ENTRY.length).equals(ZIP_ENTRY)) return 0;
  if (!head.subarray(ZIP_NAME_AT, nameEnd).equals(ZIP_NAME)) return 0;
  return nameEnd + head.readUInt16LE(28);
}

/** Hexadecimal. */
export async function sha256Of(blobs: Pick<BlobStore, 'openRead'>, blob: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of (await blobs.openRead(blob)) as AsyncIterable<Buffer>) {
    hash.update(piece);
  }
  return hash.digest('hex');
}
