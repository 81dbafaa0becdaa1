/** A stored result on its way to a reader. */
import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import type { ByteRange } from '../../http/request-headers.ts';
import type { ResultFile, ResultReaders } from '../results/result-download.ts';

/**
 * Opens the file for the reader of this answer, whose place it holds until the answer is sent or
 * its connection closed. Called before the file's headers are set: a file that is missing is answered
 * with an error.
 * @param range all of the file where absent
 * @throws ContractError RATE_LIMITED, SERVICE_UNAVAILABLE, RESULT_EXPIRED, RESULT_LOST
 */
export async function openForReader(
  reply: FastifyReply,
  file: ResultFile,
  readers: ResultReaders,
  range?: ByteRange,
): Promise<Readable> {
  const leave = readers.enter(file);
  reply.raw.once('close', leave);
  // If the caller hung up before, 'close' was already emitted.
  if (reply.raw.closed) leave();
  const stream = await file.open(range);
  // The caller is gone: the stream is not read.
  if (reply.raw.closed) stream.destroy();
  return stream;
}

/** What names the file: in the answer of its link and in that of the call that made it. */
export function fileHeaders(file: ResultFile): Record<string, string> {
  return {
    'content-type': file.contentType,
    'content-disposition': dispositionOf(file).disposition,
    etag: etagOf(file),
  };
}

/** The file's name on the caller's disk. */
export function dispositionOf({ jobId, format }: Pick<ResultFile, 'jobId' | 'format'>) {
  return { disposition: `attachment; filename="cutout-${jobId}.${format}"` } as const;
}

/** Strong, with its quotes. */
export function etagOf({ sha256 }: Pick<ResultFile, 'sha256'>): string {
  return `"${sha256}"`;
}
