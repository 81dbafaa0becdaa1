import { noteJob } from '@matting/http/answer-log.ts';
import { LIGHT, MIDDLING } from '@matting/http/answer-shares.ts';
import { queryOf, requireLimit } from '@matting/http/body-fields.ts';
import { invalidParameter } from '@matting/proto/contract/errors.ts';
import { isFinal } from '@matting/queue/job.ts';
import type { FastifyInstance } from 'fastify';
import {
  CALLER_JOBS_MAX,
  type CallerJobFilter,
  isCallerCursor,
  LISTED_STATES,
} from '../jobs/caller-jobs.ts';
import { serverTimingOf } from '../results/job-headers.ts';
import { requireReference } from '../submission/matting-request.ts';
import type { AppServices } from './app-services.ts';
import { callerOf, type HeaderChecks } from './header-checks.ts';
import { POLL_AFTER_S } from './matting-routes.ts';

const PATH = '/v1/matting/jobs';
const LIST_DEFAULT = 20;

export function registerJobRoutes(
  app: FastifyInstance,
  { readJob, listJobs, deleteJob, jobViews }: AppServices,
  checks: HeaderChecks,
): void {
  const read = { onRequest: checks.read, config: { weight: LIGHT } };
  app.get(PATH, { ...read, config: { weight: MIDDLING } }, async request => {
    const { apiKeyId } = callerOf(request);
    const { jobs, next } = await listJobs({ apiKeyId, ...readFilter(request.raw.url ?? '') });
    return { jobs: jobs.map(job => jobViews.view(job)), next_cursor: next };
  });
  app.get<{ Params: { jobId: string } }>(`${PATH}/:jobId`, read, async (request, reply) => {
    const job = await readJob(callerOf(request), request.params.jobId);
    noteJob(request, job.id);
    if (!isFinal(job)) reply.header('retry-after', POLL_AFTER_S);
    return reply.headers(serverTimingOf(job)).send(jobViews.view(job));
  });
  const deletion = { ...read, onRequest: checks.deletion };
  app.delete<{ Params: { jobId: string } }>(`${PATH}/:jobId`, deletion, async request => {
    const job = await deleteJob.delete(callerOf(request), request.params.jobId);
    noteJob(request, job.id);
    return jobViews.view(job);
  });
}

function readFilter(target: string): Omit<CallerJobFilter, 'apiKeyId'> {
  const given = queryOf(target, ['status', 'reference', 'limit', 'cursor']);
  const [status, limit, after] = ['status', 'limit', 'cursor'].map(name => given.get(name));
  return {
    status: status === undefined ? undefined : requireStatus(status),
    reference: requireReference(given.get('reference')),
    limit: requireLimit(limit, CALLER_JOBS_MAX) ?? LIST_DEFAULT,
    after: requireCursor(after),
  };
}

function requireStatus(text: string) {
  const status = LISTED_STATES.find(known => known === text);
  if (status !== undefined) return status;
  throw invalidParameter('status', `must be one of ${LISTED_STATES.join(', ')}`);
}

function requireCursor(text: string | undefined): string | undefined {
  if (text === undefined || isCallerCursor(text)) return text;
  throw invalidParameter('cursor', 'must be the next_cursor of the page before');
}
