/** /operator: what `matting nodes` and `matting jobs` do, over HTTP and as JSON. */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ContractError, type FieldError } from '#contract/errors.ts';
import {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
  JOBS_LISTED_DEFAULT,
  JOBS_LISTED_MAX,
  type JobGroup,
  type JobQuestion,
} from '../jobs/operate-jobs.ts';
import type { OperatorServices } from './app-services.ts';

export function registerOperatorRoutes(
  app: FastifyInstance,
  { operateJobs, operateNodes }: OperatorServices,
): void {
  app.get('/operator/nodes', async () => ({ nodes: await operateNodes.list() }));
  app.get<{ Params: { node: string } }>('/operator/nodes/:node', request =>
    operateNodes.show(request.params.node),
  );
  for (const command of ['drain', 'undrain'] as const) {
    app.post<{ Params: { node: string } }>(`/operator/nodes/:node/${command}`, async request => {
      const changed = await operateNodes.setDraining(request.params.node, command === 'drain');
      request.log.info({ command, nodeId: changed.node_id }, 'operator');
      return changed;
    });
  }
  app.get('/operator/jobs', async request => {
    const question = questionOf(request);
    const jobs = await operateJobs.list(question);
    // Null: there is nothing behind them.
    const next = jobs.length < question.limit ? null : (jobs.at(-1)?.cursor ?? null);
    return { jobs, next };
  });
  app.get<{ Params: { job: string } }>('/operator/jobs/:job', request =>
    operateJobs.show(request.params.job),
  );
  app.post<{ Params: { job: string } }>('/operator/jobs/:job/retry', async request => {
    const retried = await operateJobs.retry(request.params.job);
    request.log.info({ command: 'retry', jobId: retried.job_id }, 'operator');
    return retried;
  });
}

const ACCOUNT_LENGTH_MAX = 64;

/** @throws ContractError INVALID_REQUEST naming every parameter that is not usable. */
function questionOf(request: FastifyRequest): JobQuestion {
  const query = request.query as Record<string, string | string[] | undefined>;
  const errors: FieldError[] = [];
  const given = (field: string): string | undefined => {
    const value = query[field];
    if (!Array.isArray(value)) return value;
    errors.push({ field, detail: 'given more than once' });
    return undefined;
  };
  const whole = (field: string, max: number, absent: number): number => {
    const text = given(field);
    const value = text === undefined ? absent : Number(/^\d{1,9}$/.exec(text)?.[0] ?? 0);
    if (value >= 1 && value <= max) return value;
    errors.push({ field, detail: `a whole number, 1 to ${max}` });
    return absent;
  };
  const state = given('state') ?? 'open';
  const group = JOB_GROUPS.find(known => known === state);
  if (group === undefined)
    errors.push({ field: 'state', detail: `one of ${JOB_GROUPS.join(', ')}` });
  const account = given('account');
  if (account !== undefined && (account === '' || account.length > ACCOUNT_LENGTH_MAX)) {
    errors.push({ field: 'account', detail: 'the name or id of an account' });
  }
  const endedWithinHours = whole('since_hours', ENDED_WITHIN_HOURS_MAX, ENDED_WITHIN_HOURS_DEFAULT);
  const limit = whole('limit', JOBS_LISTED_MAX, JOBS_LISTED_DEFAULT);
  const after = given('after');
  const known = ['state', 'account', 'since_hours', 'limit', 'after'];
  for (const field of Object.keys(query)) {
    if (!known.includes(field)) errors.push({ field, detail: 'there is no such parameter' });
  }
  if (errors.length > 0) {
    const options = { fieldErrors: errors };
    throw new ContractError('INVALID_REQUEST', 'the query is not valid', options);
  }
  return { group: group as JobGroup, account, endedWithinHours, limit, after };
}
