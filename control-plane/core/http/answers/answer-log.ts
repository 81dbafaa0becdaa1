/**
 * The one log line of each request, and what the metrics count of it, also where the caller left
 * before the end of its answer. The line has the request's id, its account and its job; the job's
 * own lines name the node. It never has a URL, since a result's link is a secret.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { ErrorCode } from '#contract/errors.ts';
import { describeSpan, underSpan } from '#program/tracing/active-span.ts';
import { knownAccountOf } from '../checks/authentication.ts';
import { onAnswerEnd } from './answer-end.ts';
import { answeredCodeOf, answeredJobOf } from './error-handler.ts';
import { spanOf } from './request-span.ts';

/** One answer, for metrics. */
export interface Answered {
  /** The route's pattern, never the URL; undefined where no route took the request. */
  readonly route: string | undefined;
  /** Undefined where the bytes were no request. */
  readonly method: string | undefined;
  readonly status: number;
  readonly code: ErrorCode | undefined;
  /** From the request to the end of its answer; undefined where the bytes were no request. */
  readonly seconds: number | undefined;
}

const jobs = new WeakMap<FastifyRequest, string>();
/** Whose result a link leads to; its reader shows no key. */
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

export function addAnswerLog(
  app: FastifyInstance,
  onAnswered: ((answered: Answered) => void) | undefined,
): void {
  onAnswerEnd(app, (request, reply, { status, ...gone }) => {
    const answered: Answered = {
      route: request.is404 ? undefined : request.routeOptions.url,
      method: request.method,
      status,
      code: answeredCodeOf(request),
      seconds: reply.elapsedTime / 1000,
    };
    const accountId = knownAccountOf(request) ?? owners.get(request);
    const jobId = jobs.get(request) ?? answeredJobOf(request);
    // The connection, not the request, brings the end of an answer.
    underSpan(spanOf(request), () => {
      describeSpan({ 'matting.account.id': accountId, 'matting.job.id': jobId });
      request.log.info({ ...answered, accountId, jobId, ...gone }, 'answered');
    });
    onAnswered?.(answered);
  });
}
