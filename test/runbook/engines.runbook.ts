/** Pages about a node's child processes: its engines and its picture workers. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { ROOT, type WireJob } from '../running-service.ts';
import { at } from '../support/at.ts';
import { descendantsOf } from '../support/processes.ts';
import { killStopped } from '../support/stopped-cannot-be-killed.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { type Env, Installation, pictureBase64 } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const SHELL = path.join(ROOT, 'inference-node/serving/test');
const FRUGAL = path.join(SHELL, 'frugal-pictures-hook.ts');
/** Children that cannot be killed while they are stopped, and engines that are soon given up. */
const IMPATIENT = path.join(SHELL, 'stuck-engine-hook.ts');
/** So many products of matrices take longer than any run may. */
const ENDLESS_TRIPS = '1000000';
const WHITE = 1;
/** Alpha of half its range: nothing of it is sure. */
const GREY = 0.5;

const service = new Installation();
const procedure = proceduresOn(service, test);
const node = () => at(service.nodes, 0);
const enginePids = () =>
  descendantsOf(node().pid)
    .filter(({ command }) => command.includes('engine-child'))
    .map(({ pid }) => pid);

async function submitted(brightness: number, side = 64): Promise<string> {
  return await service.submit({ image_base64: await pictureBase64(side, side, brightness) });
}

const cutOut = async (brightness = 0) =>
  await service.cutOut({ image_base64: await pictureBase64(64, 64, brightness) });

async function restart(env: Env = {}): Promise<void> {
  await node().restart(env);
  await service.ready();
}

async function enginesReady(): Promise<number> {
  const text = await (await fetch(`${node().httpUrl}/metrics`)).text();
  return Number(/^matting_node_engines_ready\{.*\} (\d+)$/m.exec(text)?.[1]);
}

service.use(test, {
  nodeImports: [FRUGAL],
  nodeEnv: { MATTING_ENGINES: '2', MATTING_PICTURE_WORKERS: '2' },
});

procedure('MattingEnginesMissing', async (page, t) => {
  // As the kernel does it for memory. An image between two kills, or the node would give up.
  await page.fires(async () => {
    if ((await enginesReady()) < 2) return;
    await cutOut();
    process.kill(at(enginePids(), 0), 'SIGKILL');
  });
  const lost = await node().line('engine lost');
  t.regex(String(lost.reason), /SIGKILL/, JSON.stringify(lost));
  await node().line('engine ready');
  await page.isOver();
  await restart({ MATTING_ENGINES: '1' });
  t.is(await enginesReady(), 1);
  await restart();
});

procedure('MattingEngineDeaths', async (page, t) => {
  // The procedure before has killed engines.
  await page.isOver();
  await restart({ TEST_TINY_TRIPS_MAX: ENDLESS_TRIPS });
  const endless = [await submitted(WHITE), await submitted(WHITE, 96)];
  const [firing] = await page.fires();
  t.deepEqual([firing?.model, firing?.cause], ['tiny-paced', 'watchdog']);
  await node().line('engine lost', { cause: 'watchdog' });
  for (const id of endless) {
    const { error, credits } = await service.final(id);
    t.is(error?.code, 'PROCESSING_FAILED');
    t.is(credits.charged, 0);
    await node().line('image failed', { jobId: id });
  }
  await cutOut();
  await page.isOver();
  await restart();
});

procedure('MattingPictureWorkersEnd', async (page, t) => {
  await restart({ TEST_PICTURE_CPU_MS: '50' });
  const key = await service.createKey('shop', 'attack');
  const image_base64 = await pictureBase64(4000, 3000);
  const submit = async () => {
    const { job } = await service.post({ image_base64 }, { key });
    return await service.final(job.job_id, key);
  };
  // Few at once: what waits would be processed after the restart.
  const ended: WireJob[] = [];
  const [firing] = await page.fires(async () => {
    ended.push(...(await Promise.all(Array.from({ length: 8 }, submit))));
  });
  t.is(firing?.cause, 'time_budget');
  const { job_id: id, error, credits } = at(ended, 0);
  t.deepEqual([error?.code, credits.charged], ['PROCESSING_FAILED', 0]);
  await node().line('image failed', { jobId: id, code: 'PROCESSING_FAILED' });
  const { out } = await page.run('npm run matting -- jobs show <job>', { job: id });
  const [, shown = ''] = /^key +(mk_\w+)$/m.exec(out) ?? [];
  t.true(key.startsWith(shown), out);
  await page.run('npm run matting -- keys revoke <key>', { key: shown });
  t.is((await service.post({ image_base64 }, { key })).status, 401);
  await restart();
  await page.isOver();
});

procedure('MattingImagesDegraded', async (page, t) => {
  await restart({ TEST_TINY_OPINION: 'yes', MATTING_ENGINES: '1' });
  await cutOut(GREY);
  const { enginePid } = await node().line('engine ready', { model: 'tiny-mean' });
  const others = new Set(enginePids());
  process.kill(Number(enginePid), 'SIGKILL');
  // Its next engine loads for as long as this lasts.
  await service.until('the next engine begins', () => {
    const next = enginePids().find(pid => !others.has(pid));
    if (next !== undefined) process.kill(next, 'SIGSTOP');
    return next !== undefined;
  });
  const [firing] = await page.fires(() => cutOut(GREY));
  t.is(firing?.model, 'tiny-mean');
  await restart();
  await page.isOver();
});

procedure('MattingNodeFallback', async (page, t) => {
  const folder = await temporaryFolder(t);
  const driver =
    '#!/bin/sh\necho "NVIDIA-SMI has failed: no communication with the driver"; exit 9\n';
  writeFileSync(path.join(folder, 'nvidia-smi'), driver, { mode: 0o755 });
  await restart({ MATTING_EXECUTION_PROVIDER: 'auto', PATH: `${folder}:${process.env.PATH}` });
  const [firing] = await page.fires();
  t.is(firing?.selected, 'cpu');
  const { reason } = await node().line('provider fell back');
  t.is(typeof reason, 'string');
  const info = await (await fetch(`${node().httpUrl}/info`)).text();
  t.regex(info, /"executionProviderRequested": "auto"/);
  t.true(info.includes(JSON.stringify(reason)), info);
  await node().stop();
  node().start({ MATTING_EXECUTION_PROVIDER: 'cuda' });
  t.not(await node().exited, 0);
  t.regex(node().complaint, /cuda does not run here/);
  node().start();
  await page.isOver();
  await service.ready();
});

procedure('MattingProcessStuck', async (page, t) => {
  await service.reopen({
    nodeImports: [IMPATIENT],
    // One of three may be stuck, and the node goes on.
    nodeEnv: { MATTING_ENGINES: '3', TEST_KILL_WAIT_MAX_MS: '2000' },
  });
  const stopped = at(enginePids(), 0);
  process.kill(stopped, 'SIGSTOP');
  // Until one of them comes to the engine that is stopped.
  const image_base64 = await pictureBase64();
  await page.fires(() => service.post({ image_base64 }));
  const { enginePid } = await node().line('engine was killed and does not die');
  t.is(enginePid, stopped);
  const stack = await page.run('cat /proc/<pid>/stack', { pid: String(stopped) });
  t.true(stack.out.length > 0);
  // There is no GPU: the kernel tells of none.
  await page.run('dmesg -T | grep -i xid', {}, { code: 1 });
  await page.run('npm run matting -- nodes drain <id>', { id: node().id });
  await node().stop();
  killStopped(stopped);
  node().start();
  await page.run('npm run matting -- nodes undrain <id>', { id: node().id });
  await page.isOver();
  await cutOut();
});
