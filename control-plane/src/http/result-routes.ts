/** GET and HEAD /v1/results/<token>: the file behind a result link. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ResultDownload, ResultFile } from '../services/result-download.ts';
import { matchesAnyTag, parseRange, rangeStillHolds } from './byte-range.ts';

export function registerResultRoutes(app: FastifyInstance, results: ResultDownload): void {
  app.route<{ Params: { token: string } }>({
    method: ['GET', 'HEAD'],
    url: '/v1/results/:token',
    handler: async (request, reply) => {
      const file = await results.find(request.params.token);
      return sendResult(request, reply, file);
    },
  });
}

async function sendResult(
  request: FastifyRequest,
  reply: FastifyReply,
  file: ResultFile,
): Promise<FastifyReply> {
  const { headers, method } = request;
  const etag = `"${file.sha256}"`;
  const validators = {
    etag,
    // The link's own end bounds how long a copy may be used.
    'cache-control': `private, max-age=${Math.floor(file.remainingMs / 1000)}`,
  };
  if (matchesAnyTag(headers['if-none-match'], etag)) {
    return reply.code(304).headers(validators).send();
  }
  const described = {
    ...validators,
    'accept-ranges': 'bytes',
    'content-type': file.contentType,
    'content-disposition': `attachment; filename="cutout-${file.jobId}.${file.format}"`,
  };
  if (method === 'HEAD') {
    return reply.headers({ ...described, 'content-length': file.bytes }).send();
  }
  const asked = rangeStillHolds(headers['if-range'] as string | undefined, etag);
  const range = asked ? parseRange(headers.range, file.bytes) : undefined;
  if (range === 'unsatisfiable') {
    // Like 304 an answer of the transfer, not of the contract: it has a header and no body.
    return reply.code(416).header('content-range', `bytes */${file.bytes}`).send();
  }
  // Opened before a header is set: a file that is gone is still an error then.
  const stream = await file.open(range);
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
