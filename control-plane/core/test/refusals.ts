import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import type { ExecutionContext } from 'ava';
import { pngHeader, type TestApp } from './support/test-app.ts';

export const SYNC = '/v1/matting';
export const ASYNC = '/v1/matting/jobs';

export const png = (width: number, height: number) => pngHeader(width, height).toString('base64');

export async function assertRefused(
  t: ExecutionContext,
  app: TestApp,
  body: unknown,
  code: ErrorCode,
  field?: string,
): Promise<string> {
  const before = await snapshot(app);
  let detail = '';
  for (const url of [SYNC, ASYNC]) {
    const answer = await app.post(url, body);
    const problem = answer.json();
    t.is(problem.code, code, answer.payload);
    t.is(problem.errors?.[0].field, field, answer.payload);
    t.is(problem.job_id, undefined);
    t.is(answer.headers['x-credits-charged'], undefined);
    detail = problem.detail;
  }
  t.deepEqual(await snapshot(app), before);
  return detail;
}

export async function snapshot(app: TestApp) {
  const jobs = await app.countJobs();
  const account = (await app.get('/v1/account')).json();
  return { jobs, account, files: await app.storedFiles(), uploads: app.services.uploads.open };
}
