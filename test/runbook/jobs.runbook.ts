/** Pages about jobs that do not go as they should: nodes that die under them, replicas that stand still. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import { at } from '../support/at.ts';
import { type InferenceNode, Installation, pictureBase64 } from './installation.ts';
import { type Procedure, proceduresOn } from './procedures.ts';

const test = ava.serial;

const BUSY_LOOP_HOOK = path.join(import.meta.dirname, 'busy-loop-hook.ts');
/** Each takes a node some tenths of a second. */
const JOBS = 40;
/** At a node when it dies; the alert is about more than five that are lost. */
const IMAGES_MIN = 8;
/** Seconds: long enough for a kill in the middle. */
const LARGE_PX = 2500;
/** Longer than the alert's second; the process has the rest of the time, which is little. */
const STOPPED_MS = 1200;
const GOING_MS = 100;
const LOST_ATTEMPTS_MAX = 3;
const WATCHED_MS = 20_000;

const service = new Installation();
const procedure = proceduresOn(service, test);
service.use(test, {
  planes: 2,
  nodes: 2,
  // A replica that stands still answers a scrape in seconds.
  scrapeS: 5,
  // A node takes an image more than it has workers.
  nodeEnv: { MATTING_ENGINES: '2', MATTING_PICTURE_WORKERS: '10' },
});

async function submitMany(count = JOBS, width = 1000): Promise<readonly string[]> {
  const image_base64 = await pictureBase64(width, width, 1);
  return Promise.all(Array.from({ length: count }, () => service.submit({ image_base64 })));
}

async function allSucceed(jobIds: readonly string[]): Promise<void> {
  for (const id of jobIds) assert.equal((await service.final(id)).status, 'succeeded', id);
}

/** A program's page of metrics has this number, or a higher one. */
const shows = (url: string, name: string, min: number) =>
  service.until(`${name} is ${min}`, async () => {
    const text = await (await fetch(`${url}/metrics`)).text();
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]) >= min;
  });

const hasImages = ({ httpUrl }: InferenceNode, min: number) =>
  shows(httpUrl, 'matting_node_images_in_flight', min);

procedure('MattingAttemptsLost', async (page, t) => {
  const [other, node] = [at(service.nodes, 0), at(service.nodes, 1)];
  await other.stop();
  await service.ready(1);
  const jobIds = await submitMany();
  await hasImages(node, IMAGES_MIN);
  await node.kill();
  const [firing] = await page.fires();
  t.is(firing?.outcome, 'lost');
  const lines = service.planes.map(plane => plane.line('attempt', { outcome: 'lost' }));
  const { nodeId, code } = await Promise.race(lines);
  t.deepEqual([nodeId, typeof code], ['node-1', 'string']);
  for (const each of service.nodes) each.start();
  await page.run('npm run matting -- nodes drain <id>', { id: 'node-1' });
  await allSucceed(jobIds);
  await page.isOver();
  await service.matting('nodes undrain node-1');
  await service.ready();
});

procedure('MattingJobsFail', async (page, t) => {
  const [well, sick] = [at(service.nodes, 0), at(service.nodes, 1)];
  await well.stop();
  await service.ready(1);
  const [jobId = ''] = await submitMany(1, LARGE_PX);
  for (let lost = 0; lost < LOST_ATTEMPTS_MAX; lost += 1) {
    await hasImages(sick, 1);
    await sick.kill();
    sick.start();
  }
  const { status, error } = await service.final(jobId);
  t.deepEqual([status, error?.retryable], ['failed', true]);
  await page.fires();
  const { out } = await page.run('npm run matting -- jobs list --state failed --since 1');
  t.true(out.includes(jobId), out);
  const ended = service.planes.map(plane => plane.line('job', { outcome: 'failed' }));
  const { failure } = await Promise.race(ended);
  t.regex(JSON.stringify(failure), /"detail":"Every attempt was lost/);
  well.start();
  await page.run('npm run matting -- nodes drain <id>', { id: 'node-1' });
  await service.ready(1);
  await allSucceed(await submitMany(2));
  await page.isOver();
  await service.matting('nodes undrain node-1');
  await service.ready();
});

procedure('MattingLeasesLost', async page => {
  const [other, stalled] = [at(service.planes, 0), at(service.planes, 1)];
  const jobIds = await submitMany();
  await shows(stalled.metricsUrl, 'matting_control_jobs_running', 1);
  stalled.signal('SIGSTOP');
  await other.line('job taken over');
  stalled.signal('SIGCONT');
  await stalled.line('lease lost');
  await page.fires();
  await allSucceed(jobIds);
  await service.matting('credits check');
  await page.isOver();
});

/** Processor time that the replica takes meanwhile, in cores. */
async function coresWhileSlow(page: Procedure): Promise<number> {
  const [firing] = await page.fires();
  await delay(WATCHED_MS);
  const window = `[${WATCHED_MS / 1000}s]`;
  const [used] = await page.query(
    `rate(process_cpu_seconds_total{instance="${firing?.instance}"}${window})`,
  );
  return Number(used?.value[1]);
}

procedure('MattingEventLoopSlow', async (page, t) => {
  const plane = at(service.planes, 1);
  let isStalled = true;
  const stalling = (async () => {
    while (isStalled) {
      plane.signal('SIGSTOP');
      await delay(STOPPED_MS);
      plane.signal('SIGCONT');
      await delay(GOING_MS);
    }
  })();
  const stalledCores = await coresWhileSlow(page).finally(() => {
    isStalled = false;
  });
  await stalling;
  await page.isOver();
  await plane.restart({ NODE_OPTIONS: `--import=${BUSY_LOOP_HOOK}` });
  await service.ready();
  plane.signal('SIGUSR2');
  const busyCores = await coresWhileSlow(page);
  plane.signal('SIGUSR2');
  t.true(busyCores > 2 * stalledCores, `${busyCores} busy, ${stalledCores} stalled`);
  await plane.restart();
  await service.ready();
  await page.isOver();
});
