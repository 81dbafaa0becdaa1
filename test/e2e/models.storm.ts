/** Models that are asked for by turns, with memory for one of two, while processes die. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import sharp from 'sharp';
import { readMemoryLimitBytes } from '../../inference-node/serving/admission.ts';
import { addTinyModel } from '../../inference-node/serving/test/added-model.ts';
import { type RunningService, startService, type WireJob } from '../running-service.ts';
import { descendantsOf, until } from '../support/processes.ts';

const test = ava.serial;

const JOBS = 60;
const AT_ONCE = 6;
/** Jobs that end between two kills; the fifth time it is the node. */
const KILL_EACH = 4;
const MODELS = [undefined, 'one', 'two'] as const;
/** Of the node's memory each: both together never fit. */
const SHARE = 0.5;

let service: RunningService;
const folder = mkdtempSync(path.join(tmpdir(), 'matting-models-'));

test.before(async () => {
  const folders = { modelDir: folder, addedModelsDir: path.join(folder, 'added') };
  const peakBytes = Math.round(SHARE * readMemoryLimitBytes());
  const measured = { peakBytes, loadedBytes: peakBytes, seconds: 1, provider: 'cpu' };
  await addTinyModel(folders, 'base');
  for (const name of ['one', 'two']) await addTinyModel(folders, name, { measured });
  service = await startService({
    MATTING_MODEL: 'base',
    MATTING_MODEL_DIR: folders.modelDir,
    MATTING_ADDED_MODELS_DIR: folders.addedModelsDir,
    MATTING_MODELS_OFFERED: 'base,one,two',
    MATTING_MODEL_IDLE_MS: '1000',
    MATTING_NO_NODE_GRACE_MS: '30000',
  });
});

test.after.always(async () => {
  if (service?.process.signalCode === null) await service.close();
  rmSync(folder, { recursive: true, force: true });
});

function killOne(program: string, at: number): void {
  const all = descendantsOf(service.process.pid ?? 0);
  const pids = all.filter(({ command }) => command.includes(program)).map(({ pid }) => pid);
  const pid = pids[at % Math.max(1, pids.length)];
  if (pid === undefined) return;
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    // It ended between the listing and the signal.
    assert.equal((error as NodeJS.ErrnoException).code, 'ESRCH');
  }
}

async function enginesBeside(): Promise<number> {
  const url = `http://127.0.0.1:${service.env.MATTING_NODE_HTTP_PORT}/metrics`;
  const metrics = await fetch(url).then(
    answer => answer.text(),
    () => '',
  );
  const counted = metrics.matchAll(/^matting_node_engines\{model="(?:one|two)".*\} (\d+)$/gm);
  return [...counted].reduce((sum, [, engines]) => sum + Number(engines), 0);
}

/** Submits until it is taken: a node that starts again makes a refusal of it. */
async function submit(image: string, model: string | undefined): Promise<string> {
  const body = { image_base64: image, ...(model !== undefined && { model }) };
  for (;;) {
    const answer = await service.post(body, { path: '/v1/matting/jobs' });
    if (answer.status === 202) return answer.body.job_id;
    assert.equal(answer.status, 503, JSON.stringify(answer.body));
    await delay(250);
  }
}

/** Asks slowly: reads have a rate. */
async function untilFinal(id: string): Promise<WireJob> {
  for (;;) {
    const { body } = await service.get(`${service.baseUrl}/v1/matting/jobs/${id}`);
    if (body.status !== 'queued' && body.status !== 'processing') return body;
    await delay(250);
  }
}

test('two models by turns, engines and the node killed: every job ends, and is charged once if it succeeded', async t => {
  const create = { width: 300, height: 200, channels: 3, background: 'grey' } as const;
  const picture = await sharp({ create }).jpeg().toBuffer();
  const image = picture.toString('base64');
  const before = await service.credits();
  const ends: { readonly model: string | undefined; readonly job: WireJob }[] = [];
  let next = 0;
  let most = 0;
  let isOver = false;
  const caller = async () => {
    while (next < JOBS) {
      const at = next++;
      const model = MODELS[at % MODELS.length];
      ends.push({ model, job: await untilFinal(await submit(image, model)) });
      if (ends.length % KILL_EACH !== 0) continue;
      const isNodes = ends.length % (5 * KILL_EACH) === 0;
      killOne(isNodes ? 'inference-node/main' : 'engine-child', ends.length);
    }
  };
  const watcher = (async () => {
    while (!isOver) {
      most = Math.max(most, await enginesBeside());
      await delay(100);
    }
  })();
  await Promise.all(Array.from({ length: AT_ONCE }, caller));
  isOver = true;
  await watcher;
  for (const { job } of ends) {
    const charged = job.status === 'succeeded' ? 1 : 0;
    t.deepEqual(job.credits, { reserved: 0, charged }, JSON.stringify(job));
  }
  const succeeded = ends.filter(({ job }) => job.status === 'succeeded');
  for (const model of MODELS)
    t.true(
      succeeded.some(end => end.model === model),
      model,
    );
  t.log(`${succeeded.length} of ${ends.length} succeeded`);
  t.is(ends.length, JOBS);
  t.is(most, 1, 'never both models at once');
  const { available, reserved } = await service.credits();
  t.deepEqual([reserved, before.available - available], [0, succeeded.length]);
  await until(async () => (await enginesBeside()) === 0, {
    timeoutMs: 60_000,
    what: 'what nobody uses is unloaded',
  });
});
