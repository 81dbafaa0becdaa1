/** The account's jobs: a list, and one with its times, its result and its notification. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { may } from '../../../domain/account/roles.ts';
import { publicState } from '../../../domain/job.ts';
import {
  ACCOUNT_JOB_GROUPS,
  type AccountJob,
  type AccountJobQuestion,
  type AccountJobs,
  DAYS_LISTED,
} from '../../../services/account-jobs/account-jobs.ts';
import type { ResultDownload } from '../../../services/reading/result-download.ts';
import type { ResultReaders } from '../../../services/reading/result-readers.ts';
import { noteJob } from '../../answers/answer-log.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { PageError } from '../session/page-error.ts';
import { signedInOf } from '../session/signed-in.ts';
import { jobPage } from '../views/jobs/job-page.ts';
import { jobsPage } from '../views/jobs/jobs-page.ts';
import { sendResultOf } from './result-file.ts';

export interface JobsRouteServices {
  readonly accountJobs: AccountJobs;
  readonly resultDownload: Pick<ResultDownload, 'fileOf'>;
  readonly resultReaders: Pick<ResultReaders, 'enter'>;
}

const PATH = `${ACCOUNT_PATH}/jobs`;
const READ = { config: { permission: 'jobs.read' } } as const;

type JobRequest = FastifyRequest<{ Params: { jobId: string } }>;

export function registerJobsRoutes(account: FastifyInstance, services: JobsRouteServices): void {
  account.get('/jobs', READ, (request, reply) => list(request, reply, services));
  account.get('/jobs/:jobId', READ, (request: JobRequest, reply) => show(request, reply, services));
  account.get(
    '/jobs/:jobId/result',
    { config: { permission: 'results.read' } },
    async (request: JobRequest, reply) => {
      const { job } = await find(request, services);
      return sendResultOf(reply, job, services);
    },
  );
  account.post(
    '/jobs/:jobId/resend',
    { config: { permission: 'jobs.resend' } },
    async (request: JobRequest, reply) => {
      const { accountId, actor } = signedInOf(request);
      const { job } = await find(request, services);
      const outcome = await services.accountJobs.resend(accountId, job.id, actor);
      return reply.redirect(`${PATH}/${job.id}?said=${outcome}`, 303);
    },
  );
}

async function list(
  request: FastifyRequest,
  reply: FastifyReply,
  { accountJobs }: JobsRouteServices,
): Promise<FastifyReply> {
  const { accountId } = signedInOf(request);
  const words = wordsOf(request);
  const question = questionOf(request.query as Record<string, unknown>);
  const page = await accountJobs.list(accountId, question);
  const keys = await accountJobs.keys(accountId);
  const address = (after?: string) => addressOf(question, after);
  return renderPage(request, reply, {
    title: words.jobs.title,
    lead: words.jobs.lead,
    active: 'jobs',
    main: jobsPage({
      words,
      formats: formatsOf(request),
      path: PATH,
      question,
      keys,
      jobs: page.jobs.map(job => ({ ...job, status: publicState(job) })),
      next: page.next === undefined ? undefined : address(page.next),
      first: question.after === undefined ? undefined : address(),
    }),
  });
}

async function show(
  request: JobRequest,
  reply: FastifyReply,
  services: JobsRouteServices,
): Promise<FastifyReply> {
  const { accountId, role, csrf } = signedInOf(request);
  const { job, notification } = await find(request, services);
  const words = wordsOf(request);
  const keys = await services.accountJobs.keys(accountId);
  return renderPage(request, reply, {
    title: words.jobs.one,
    active: 'jobs',
    back: { href: PATH, label: words.jobs.title },
    scripts: ['compare.js'],
    said: words.jobs.resent,
    main: jobPage({
      words,
      formats: formatsOf(request),
      csrf,
      path: `${PATH}/${job.id}`,
      job: { ...job, status: publicState(job) },
      notification,
      key: keys.find(({ id }) => id === job.apiKeyId),
      maySeeResult: may(role, 'results.read'),
      mayResend: may(role, 'jobs.resend'),
    }),
  });
}

/** @throws PageError notFound: no job of this account */
async function find(request: JobRequest, { accountJobs }: JobsRouteServices): Promise<AccountJob> {
  const { accountId } = signedInOf(request);
  const found = await accountJobs.find(accountId, request.params.jobId);
  if (found === undefined) throw new PageError('notFound');
  noteJob(request, found.job.id);
  return found;
}

const KEY_ID = /^[0-9A-Za-z]{12}$/;

/** What the address asks for; what it cannot mean is as if it were not there. */
function questionOf(query: Record<string, unknown>): AccountJobQuestion {
  const { state, key, days, after } = query;
  return {
    group: ACCOUNT_JOB_GROUPS.find(group => group === state) ?? 'all',
    apiKeyId: typeof key === 'string' && KEY_ID.test(key) ? key : undefined,
    days: DAYS_LISTED.find(count => String(count) === days) ?? 30,
    after: typeof after === 'string' ? after : undefined,
  };
}

function addressOf({ group, apiKeyId, days }: AccountJobQuestion, after?: string): string {
  const query = new URLSearchParams();
  if (group !== 'all') query.set('state', group);
  if (apiKeyId !== undefined) query.set('key', apiKeyId);
  if (days !== 30) query.set('days', String(days));
  if (after !== undefined) query.set('after', after);
  const text = query.toString();
  return text === '' ? PATH : `${PATH}?${text}`;
}
