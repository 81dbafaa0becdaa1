import type { Job } from '@matting/core/jobs/job.ts';
import type { JobOutcome } from '@matting/core/jobs/job-outcome.ts';
import { etagOf, fileHeaders, openForReader } from '@matting/core/results/result-download.ts';
import { judgeConditions } from '@matting/http/request-headers.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import type { FastifyReply } from 'fastify';
import { PageError } from '../session/visit.ts';
import { RESULT_HEADERS, type ResultServices } from './thumbnails.ts';

/** @throws PageError notFound: there is no result; ContractError as openForReader */
export async function sendResultOf(
  reply: FastifyReply,
  job: JobStatus & JobOutcome,
  services: ResultServices,
): Promise<FastifyReply> {
  if (publicState(job) !== 'succeeded') throw new PageError('notFound');
  const file = services.resultDownload.fileOf(job);
  const validators = { etag: etagOf(file), modifiedAtMs: file.createdAtMs };
  return await sendFile(reply, file, { headers: fileHeaders(file), validators }, services);
}

export async function sendOriginalOf(
  reply: FastifyReply,
  first: (JobStatus & Pick<Job, 'kept'>) | undefined,
  services: ResultServices,
): Promise<FastifyReply> {
  const file = first && services.resultDownload.originalOf(first);
  if (first === undefined || file === undefined) throw new PageError('notFound');
  const name = `original-${first.id}.${file.format}`;
  const headers = {
    'content-type': `image/${file.format}`,
    'content-disposition': `attachment; filename="${name}"`,
    etag: `"${first.id}-original"`,
  };
  const validators = { etag: headers.etag, modifiedAtMs: first.createdAtMs };
  return await sendFile(reply, file, { headers, validators }, services);
}

/**
 * Cacheable, so that a browser that has shown the file can save it without another download. A link
 * with the attribute `download` would prevent that.
 */
async function sendFile(
  reply: FastifyReply,
  file: Parameters<typeof openForReader>[1] & { readonly bytes: number },
  of: {
    readonly headers: Readonly<Record<string, string>>;
    readonly validators: Parameters<typeof judgeConditions>[1];
  },
  { resultReaders }: ResultServices,
): Promise<FastifyReply> {
  const headers = { ...of.headers, ...RESULT_HEADERS, 'cache-control': 'private, no-cache' };
  if (judgeConditions(reply.request.headers, of.validators) === 'not-modified') {
    return reply.code(304).headers(headers).send();
  }
  try {
    const stream = await openForReader(reply, file, resultReaders);
    return reply.headers({ ...headers, 'content-length': file.bytes }).send(stream);
  } catch (error) {
    if (error instanceof ContractError && error.code === 'RESULT_EXPIRED') {
      throw new PageError('notFound', { cause: error });
    }
    throw error;
  }
}
