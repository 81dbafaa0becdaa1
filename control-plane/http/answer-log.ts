import { describeSpan, underSpan } from '@matting/program/tracing/active-span.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { onAnswerEnd } from './answer-end.ts';
import { answeredCodeOf, answeredErrorOf } from './error-handler.ts';
import { isProbe } from './request-path.ts';
import { spanOf } from './request-spans.ts';

export interface Answered {
  /** The route's pattern, never the URL, since a result's link is a secret. undefined: no route. */
  readonly route: string | undefined;
  /** undefined: the bytes were not HTTP. The same holds for `seconds`. */
  readonly method: string | undefined;
  readonly status: number;
  readonly code: ErrorCode | undefined;
  readonly seconds: number | undefined;
}

const jobs = new WeakMap<FastifyRequest, string>();
/** Owners of downloaded results. The readers show no key. */
const owners = new WeakMap<FastifyRequest, string>();

/** Errors carry their job themselves. */
export function noteJob(request: FastifyRequest, jobId: string): void {
  jobs.set(request, jobId);
}

export function noteResult(
  request: FastifyRequest,
  { jobId, accountId }: { readonly jobId: string; readonly accountId: string },
): void {
  noteJob(request, jobId);
  owners.set(request, accountId);
}

interface AnswerLogOptions {
  /** undefined: an unauthenticated caller. */
  readonly accountOf: (request: FastifyRequest) => string | undefined;
  readonly onAnswered: ((answered: Answered) => void) | undefined;
}

export function addAnswerLog(
  app: FastifyInstance,
  { accountOf, onAnswered }: AnswerLogOptions,
): void {
  onAnswerEnd(app, (request, reply, { status, ...gone }) => {
    const answered: Answered = {
      route: request.is404 ? undefined : request.routeOptions.url,
      method: request.method,
      status,
      code: answeredCodeOf(request),
      seconds: reply.elapsedTime / 1000,
    };
    const accountId = accountOf(request) ?? owners.get(request);
    const jobId = jobs.get(request) ?? answeredErrorOf(request)?.jobId;
    // The answer ends in an event of the connection, outside the request's async context.
    underSpan(spanOf(request), () => {
      describeSpan({ 'matting.account.id': accountId, 'matting.job.id': jobId });
      const line = { ...answered, accountId, jobId, ...gone };
      if (isProbe(request)) request.log.debug(line, 'answered');
      else request.log.info(line, 'answered');
    });
    onAnswered?.(answered);
  });
}
