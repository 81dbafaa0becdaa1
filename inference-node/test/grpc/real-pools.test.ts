/** The shell over the real pools: real engine and worker processes, a tiny graph, drawn pictures. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { pino } from 'pino';
import sharp from 'sharp';
import { OutputFormat, ResultKind } from '#gen/matting/v1/matte_service.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { writeTinyModel } from '../../../test/support/tiny-model.ts';
import { openEnginePool } from '../../src/engine/pool/open-engine-pool.ts';
import { openPicturePool } from '../../src/picture/pool/open-picture-pool.ts';
import { untilBusy } from '../support/processes.ts';
import { HealthClient } from './health-client.ts';
import { MatteCaller, openShell, untilNothingAdmitted } from './test-node.ts';

const test = ava.serial;

const WIDTH = 64;
const HEIGHT = 48;
/** Of a check that takes a millisecond; also on a machine with much else to do. */
const HEALTH_DEADLINE_MS = 10_000;
const CHECKS_WHILE_BUSY = 10;
const log = pino({ level: 'silent' });
const childEnv = { PATH: process.env.PATH ?? '' };

const directory = await temporaryFolder({ teardown: test.after.always });
let pictures: Awaited<ReturnType<typeof openPicturePool>>;

test.before(async () => {
  pictures = await openPicturePool({ workers: 2, childEnv, log });
});

test.after.always(async () => {
  await pictures.close(0);
});

async function openNode(kind: 'mean' | 'paced', tripsMax?: number) {
  const model = await writeTinyModel(directory, { kind, ...(tripsMax && { tripsMax }) });
  const engines = openEnginePool({ model, engines: 1, threadsPerEngine: 1, childEnv, log });
  await engines.ready();
  const shell = await openShell({ model, engines, role: 'subject' }, pictures);
  return {
    ...shell,
    engines,
    close: async () => {
      await shell.close();
      await engines.close(0);
    },
  };
}

/** Of one brightness, so that the graph's matte is known: the mean of its channels. */
function plainPng(brightness: number): Promise<Buffer> {
  const background = { r: brightness, g: brightness, b: brightness };
  const create = { width: WIDTH, height: HEIGHT, channels: 3, background } as const;
  return sharp({ create }).png().toBuffer();
}

const size = { width: WIDTH, height: HEIGHT };

test('cuts a picture out, in every format and as a mask', async t => {
  const node = await openNode('mean');
  const file = await plainPng(180);
  for (const outputFormat of [
    OutputFormat.OUTPUT_FORMAT_PNG,
    OutputFormat.OUTPUT_FORMAT_WEBP,
    OutputFormat.OUTPUT_FORMAT_AVIF,
  ]) {
    const caller = await new MatteCaller(node).serve(file, { ...size, outputFormat });
    const { header, file: cutout } = caller.result();
    t.is(header?.sizeBytes, cutout.length);
    const { data, info } = await sharp(cutout).raw().toBuffer({ resolveWithObject: true });
    t.deepEqual([info.width, info.height, info.channels], [WIDTH, HEIGHT, 4]);
    const middle = 4 * (WIDTH * (HEIGHT / 2) + WIDTH / 2);
    const [red = 0, , , alpha = 0] = data.subarray(middle);
    t.true(Math.abs(alpha - 180) <= 2, `alpha ${alpha}`);
    t.true(Math.abs(red - 180) <= 4, `red ${red}`);
  }
  const resultKind = ResultKind.RESULT_KIND_MASK;
  const caller = await new MatteCaller(node).serve(file, { ...size, resultKind });
  const mask = await sharp(caller.result().file).metadata();
  t.deepEqual([mask.width, mask.height, mask.channels], [WIDTH, HEIGHT, 1]);
  await node.close();
});

test('tells the faults of an image, and goes on', async t => {
  const node = await openNode('mean');
  const file = await plainPng(100);
  const faults: [Buffer, object, string][] = [
    [Buffer.from('this is text called PNG'), {}, 'UNSUPPORTED_IMAGE_FORMAT'],
    [file.subarray(0, file.length - 30), {}, 'PROCESSING_FAILED'],
    [file, { width: WIDTH, height: HEIGHT - 1 }, 'PROCESSING_FAILED'],
  ];
  for (const [bytes, fields, code] of faults) {
    const caller = await new MatteCaller(node).sendFile(bytes, fields);
    await caller.refused({ code, retryable: false });
  }
  await untilNothingAdmitted(node);
  await new MatteCaller(node).serve(file, size);
  await t.notThrowsAsync(node.close());
});

test('answers every health check in time while its engine is busy', async t => {
  // Some hundred products of matrices a picture: the engine is in native code all the while.
  const node = await openNode('paced', 120);
  const file = await plainPng(255);
  const health = new HealthClient(node.address);
  let checksWhileBusy = 0;
  // As many pictures as it takes: how long one keeps an engine is the machine's affair.
  while (checksWhileBusy < CHECKS_WHILE_BUSY) {
    const caller = await new MatteCaller(node).sendFile(file, size);
    let over = false;
    const ended = caller.ended.finally(() => {
      over = true;
    });
    while (!over) {
      const isBusy = node.engines.snapshot().running > 0;
      t.is(await health.check('', HEALTH_DEADLINE_MS), 'SERVING');
      if (isBusy) checksWhileBusy += 1;
    }
    t.is(await ended, undefined);
  }
  health.close();
  await node.close();
});

test('reports an engine that dies under an image, and takes the next', async t => {
  const node = await openNode('paced', 4000);
  const dying = await new MatteCaller(node).sendFile(await plainPng(255), size);
  while (node.engines.snapshot().running === 0) await new Promise(r => setImmediate(r));
  const pid = node.engines.processes()[0]?.pid;
  assert.ok(pid !== undefined, 'the engine has a process');
  // It has begun: a run that had not is given to the next engine unseen.
  await untilBusy(pid);
  process.kill(pid, 'SIGKILL');
  await dying.refused({ code: 'ENGINE_LOST', retryable: true });
  while (node.status.state !== 'serving') await new Promise(r => setTimeout(r, 10));
  await new MatteCaller(node).serve(await plainPng(100), size);
  await t.notThrowsAsync(node.close());
});
