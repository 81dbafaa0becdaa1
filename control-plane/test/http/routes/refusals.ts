/** Submissions that are refused on both paths, and what may not have changed then. */
import assert from 'node:assert/strict';
import type { ErrorCode } from '#contract/errors.ts';
import { pngHeader, type TestApp } from '../../support/test-app.ts';

export const SYNC = '/v1/matting';
export const ASYNC = '/v1/matting/jobs';

export const png = (width: number, height: number) => pngHeader(width, height).toString('base64');

/** Refused alike on both paths, and nothing is left of it. */
export async function assertRefused(
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
    assert.equal(problem.code, code, answer.payload);
    assert.equal(problem.errors?.[0].field, field, answer.payload);
    assert.equal(problem.job_id, undefined);
    assert.equal(answer.headers['x-credits-charged'], undefined);
    detail = problem.detail;
  }
  assert.deepEqual(await snapshot(app), before);
  return detail;
}

/** Jobs, credits, stored files, uploads. */
export async function snapshot(app: TestApp) {
  const jobs = await app.countJobs();
  const account = (await app.get('/v1/account')).json();
  return { jobs, account, files: await app.storedFiles(), uploads: app.services.uploads.open };
}
