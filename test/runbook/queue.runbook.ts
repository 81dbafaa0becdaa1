/** Pages about what waits. Needs: portal. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { at } from '../support/at.ts';
import { Installation, OPERATOR_KEY } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

/** A small picture counts as one. */
const QUEUE_MEGAPIXELS = 10;

const service = new Installation();
const procedure = proceduresOn(service, test);
service.use(test, {
  env: {
    MATTING_NODES_ON_DEMAND: 'true',
    MATTING_QUEUE_MEGAPIXELS_MAX: String(QUEUE_MEGAPIXELS),
  },
  startNodes: false,
});

/** Jobs begin on the node that was started, and it goes again. */
async function startNode(jobIds: readonly string[]): Promise<void> {
  at(service.nodes, 0).start();
  for (const id of jobIds) assert.equal((await service.final(id)).status, 'succeeded');
}

procedure('MattingQueueNearlyFull', async (page, t) => {
  const jobIds: string[] = [];
  for (let count = 1; count < QUEUE_MEGAPIXELS; count += 1) jobIds.push(await service.submit());
  await page.fires();
  t.deepEqual(await page.query(at(page.codeOf(/^rate\(/), 0)), []);
  const cookie = await signIn();
  const operator = await fetch(`${at(service.planes, 0).metricsUrl}/operator`, {
    headers: { cookie },
  });
  t.regex(await operator.text(), /shop/);
  await startNode(jobIds);
  await page.isOver();
  await at(service.nodes, 0).stop();
  await service.ready(0);
});

procedure('MattingNodesDoNotCome', async (page, t) => {
  const jobId = await service.submit();
  await page.fires();
  const { out } = await page.run('npm run matting -- nodes list');
  t.notRegex(out, / live /);
  await startNode([jobId]);
  await page.isOver();
  await at(service.nodes, 0).stop();
  await service.ready(0);
});

procedure('MattingQueueOld', async (page, t) => {
  const jobId = await service.submit();
  await page.fires();
  const { out } = await page.run('npm run matting -- jobs list');
  t.true(out.includes(jobId), out);
  await startNode([jobId]);
  await page.isOver();
});

/** As a person does at the page; the cookie of the session. */
async function signIn(): Promise<string> {
  const url = `${at(service.planes, 0).metricsUrl}/operator/sign-in`;
  const answer = await fetch(url, {
    method: 'POST',
    redirect: 'manual',
    headers: { origin: new URL(url).origin },
    body: new URLSearchParams({ key: OPERATOR_KEY }),
  });
  assert.equal(answer.status, 303, await answer.text());
  return (answer.headers.getSetCookie()[0] ?? '').split(';')[0] ?? '';
}
