/** The line that the log keeps of each request. */
import { describeSpan, underSpan } from '@matting/program/tracing/active-span.ts';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { onAnswerEnd } from './answer-end.ts';
import { answeredCodeOf, answeredErrorOf } from './error-handler.ts';
import { isProbe } from './request-path.ts';
import { spanOf } from './request-spans.ts';

/** One answer, for metrics. */
export interface Answered {
  /** The route's pattern, never the URL; undefined where no route took the request. */
  readonly route: string | undefined;
  /** Undefined where the bytes were no request. */
  readonly method: string | undefined;
  readonly status: number;
  readonly code: ErrorCode | undefined;
  /** From the request to the end of its answer. undefined: the bytes were not a request. */
  readonly seconds: number | undefined;
}

const jobs = new WeakMap<FastifyRequest, string>();
/** The owner of the result behind a link. Its reader shows no key. */
const owners = new WeakMap<FastifyRequest, string>();

/** Called by routes that answer with a job; errors carry their job themselves. */
export function noteJob(request: FastifyRequest, jobId: string): void {
  jobs.set(request, jobId);
}

/** Called by the route of result links. */
export function noteResult(
  request: FastifyRequest,
  { jobId, accountId }: { readonly jobId: string; readonly accountId: string },
): void {
  noteJob(request, jobId);
  owners.set(request, accountId);
}

interface AnswerLogOptions {
  /** The account that made the request. undefined: a stranger. */
  readonly accountOf: (request: FastifyRequest) => string | undefined;
  readonly onAnswered: ((answered: Answered) => void) | undefined;
}

/**
 * One line a request, with its id, its account and its job; the job's own lines name the node. It
 * never has a URL, since a result's link is a secret.
 */
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
    // The connection, not the request, brings the end of an answer.
    underSpan(spanOf(request), () => {
      describeSpan({ 'matting.account.id': accountId, 'matting.job.id': jobId });
      const line = { ...answered, accountId, jobId, ...gone };
      if (isProbe(request)) request.log.debug(line, 'answered');
      else request.log.info(line, 'answered');
    });
    onAnswered?.(answered);
  });
}
