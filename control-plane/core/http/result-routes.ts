import { noteResult } from '@matting/http/answer-log.ts';
import {
  formatHttpDate,
  judgeConditions,
  namesTag,
  parseRange,
  rangeStillHolds,
  type Validators,
} from '@matting/http/request-headers.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  dispositionOf,
  etagOf,
  fileHeaders,
  openForReader,
  type ResultFile,
  type ResultReaders,
} from '../results/result-download.ts';
import type { AppServices } from './app-services.ts';

export function registerResultRoutes(
  app: FastifyInstance,
  { resultDownload, resultReaders }: AppServices,
): void {
  app.route<{ Params: { token: string } }>({
    method: ['GET', 'HEAD'],
    url: '/v1/results/:token',
    handler: async (request, reply) => {
      const file = await resultDownload.find(request.params.token);
      return sendResult(request, reply, file, resultReaders);
    },
  });
}

async function sendResult(
  request: FastifyRequest,
  reply: FastifyReply,
  file: ResultFile,
  readers: ResultReaders,
): Promise<FastifyReply> {
  const { headers, method } = request;
  noteResult(request, file);
  const validators: Validators = {
    etag: etagOf(file),
    modifiedAtMs: file.createdAtMs - (file.createdAtMs % 1000),
  };
  // The storage does not know our tag, so the service answers.
  const url = namesTag(headers, validators.etag)
    ? undefined
    : await file.signedUrl({ method: method === 'HEAD' ? 'HEAD' : 'GET', ...dispositionOf(file) });
  if (url !== undefined) {
    await file.requireThere();
    const redirected = { location: url, 'cache-control': 'private, no-store' };
    return reply.code(302).headers(redirected).send();
  }
  const verdict = judgeConditions(headers, validators);
  if (verdict === 'failed') {
    throw new ContractError(
      'PRECONDITION_FAILED',
      'The file behind this link is another one. Download it without If-Match.',
    );
  }
  const validated = {
    etag: validators.etag,
    'last-modified': formatHttpDate(validators.modifiedAtMs),
    'cache-control': `private, max-age=${Math.floor(file.remainingMs / 1000)}`,
  };
  if (verdict === 'not-modified') return reply.code(304).headers(validated).send();
  const described = { ...validated, ...fileHeaders(file), 'accept-ranges': 'bytes' };
  if (method === 'HEAD') {
    await file.requireThere();
    return reply.headers({ ...described, 'content-length': file.bytes }).send();
  }
  const wantsRange = rangeStillHolds(headers['if-range'] as string | undefined, validators);
  const range = wantsRange ? parseRange(headers.range, file.bytes) : undefined;
  if (range === 'unsatisfiable') {
    reply.header('content-range', `bytes */${file.bytes}`);
    const detail = `The file has ${file.bytes} bytes. Send a Range within them.`;
    throw new ContractError('RANGE_NOT_SATISFIABLE', detail);
  }
  const stream = await openForReader(reply, file, readers, range);
  if (range === undefined) {
    return reply.headers({ ...described, 'content-length': file.bytes }).send(stream);
  }
  const { start, end } = range;
  reply.headers({ ...described, 'content-range': `bytes ${start}-${end}/${file.bytes}` });
  return reply
    .code(206)
    .header('content-length', end - start + 1)
    .send(stream);
}
