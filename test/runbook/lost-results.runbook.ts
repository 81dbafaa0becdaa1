/** Pages about results whose files are gone: one of many, and all at once. */
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { at } from '../support/at.ts';
import { Installation } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const service = new Installation();
const procedure = proceduresOn(service, test);
service.use(test);

const results = () => path.join(service.storage, 'results');

async function made(count: number) {
  const jobs = [];
  for (let number = 0; number < count; number += 1) {
    jobs.push(await service.final(await service.submit()));
  }
  return jobs;
}

async function answerOf(link: string | undefined) {
  const answer = await fetch(link ?? '');
  if (answer.status === 200) return '200 there';
  return `${answer.status} ${((await answer.json()) as { code: string }).code}`;
}

async function removeFileOf(jobId: string): Promise<void> {
  const [file] = (await readdir(results())).filter(name => name.startsWith(jobId));
  await rm(path.join(results(), at([file], 0) ?? ''));
}

procedure('MattingResultsLost', async (page, t) => {
  const jobs = await made(3);
  const gone = at(jobs, 1);
  await removeFileOf(gone.job_id);
  t.is(await answerOf(gone.result?.url), '500 RESULT_LOST');
  await page.fires();
  const line = await at(service.planes, 0).line('a result is lost', { jobId: gone.job_id });
  t.is(line.foundBy, 'download');
  await page.run('npm run matting -- storage check');
  const dry = await page.run('npm run matting -- credits repay-lost --dry-run');
  t.regex(dry.out, /^1 credits would be granted again$/m);
  const done = await page.run('npm run matting -- credits repay-lost');
  t.regex(done.out, /^1 credits granted again$/m);
  t.is((await service.matting('credits check')).code, 0);
  await page.isOver();
});

procedure('MattingResultsMissing', async (page, t) => {
  const jobs = await made(3);
  const [first, second] = [at(jobs, 0), at(jobs, 1)];
  const aside = `${results()}.aside`;
  await rename(results(), aside);
  await mkdir(results());
  await page.fires(async () => {
    t.is(await answerOf(first.result?.url), '503 SERVICE_UNAVAILABLE');
  });
  await at(service.planes, 0).line('results are missing from the storage');
  await rm(results(), { recursive: true });
  await rename(aside, results());
  t.is(await answerOf(first.result?.url), '200 there');
  await page.isOver();
  // Gone for good, all but one.
  for (const file of await readdir(results())) {
    if (!file.startsWith(first.job_id)) await rm(path.join(results(), file));
  }
  const said = await page.run('npm run matting -- credits repay-lost --all-missing');
  t.regex(said.out, /^\d+ results looked at, [2-9] found gone$/m);
  t.is(await answerOf(second.result?.url), '500 RESULT_LOST');
  t.is((await service.matting('credits check')).code, 0);
});
