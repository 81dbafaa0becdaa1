/** The bytes of a result for somebody who is signed in, on pages and as a file. */
import type { FastifyReply } from 'fastify';
import { ContractError } from '#contract/errors.ts';
import { type Job, publicState } from '../../../domain/job.ts';
import type { ResultDownload } from '../../../services/reading/result-download.ts';
import type { ResultReaders } from '../../../services/reading/result-readers.ts';
import { fileHeaders, openForReader } from '../../answers/result-file.ts';
import { PageError } from '../session/page-error.ts';

/**
 * A picture that a node made of a stranger's: shown in an img or saved, never run as a page of this
 * host, whatever its bytes are.
 */
const RESULT_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; sandbox",
  'cross-origin-resource-policy': 'same-origin',
  'cache-control': 'no-store',
} as const;

/** @throws PageError notFound: there is none, or not any more; ContractError as openForReader */
export async function sendResultOf(
  reply: FastifyReply,
  job: Job,
  services: {
    readonly resultDownload: Pick<ResultDownload, 'fileOf'>;
    readonly resultReaders: Pick<ResultReaders, 'enter'>;
  },
): Promise<FastifyReply> {
  if (publicState(job) !== 'succeeded') throw new PageError('notFound');
  const file = services.resultDownload.fileOf(job, 'download');
  try {
    const stream = await openForReader(reply, file, services.resultReaders);
    const described = { ...fileHeaders(file), 'content-length': file.bytes };
    return reply.headers({ ...described, ...RESULT_HEADERS }).send(stream);
  } catch (error) {
    if (error instanceof ContractError && error.code === 'RESULT_EXPIRED') {
      throw new PageError('notFound', { cause: error });
    }
    throw error;
  }
}
