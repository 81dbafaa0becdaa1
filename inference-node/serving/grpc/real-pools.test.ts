/** Real engine and worker processes, a tiny graph, drawn pictures. */

import { OutputFormat, ResultKind } from '@matting/proto/gen/matting/v1/matte_service.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTinyModel } from '@matting/test-support/tiny-model.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import sharp, { type Sharp } from 'sharp';
import { openEnginePool } from '../engine/pool/open-engine-pool.ts';
import { openPicturePool } from '../picture/pool/open-picture-pool.ts';
import { type ImageResult, Pipeline, type PlanRun } from '../pipeline.ts';
import { HealthClient } from '../test/health-client.ts';
import { stop } from '../test/processes.ts';
import { MatteCaller, openShell } from '../test/test-node.ts';

const test = ava.serial;

const WIDTH = 64;
const HEIGHT = 48;
const size = { width: WIDTH, height: HEIGHT };
/** The graph's matte is a picture's brightness. */
const BRIGHTNESS = 120;
const log = pino({ level: 'silent' });
const OPTIONS = { engines: 1, threadsPerEngine: 1, childEnv: STARTED_ENV, log };

const RED_MARK = await sharp({ create: { width: 20, height: 20, channels: 3, background: '#f00' } })
  .png()
  .toBuffer();

const directory = await temporaryFolder({ teardown: test.after.always });
let engines: ReturnType<typeof openEnginePool>;
let pictures: Awaited<ReturnType<typeof openPicturePool>>;
let node: Awaited<ReturnType<typeof openShell>>;
let file: Buffer;

test.before(async () => {
  const model = await writeTinyModel(directory, { kind: 'mean' });
  engines = openEnginePool({ ...OPTIONS, model });
  pictures = await openPicturePool({ workers: 1, childEnv: STARTED_ENV, log });
  await engines.ready();
  node = await openShell({ model, engines, role: 'subject' }, pictures);
  const background = { r: BRIGHTNESS, g: BRIGHTNESS, b: BRIGHTNESS };
  file = await sharp({ create: { ...size, channels: 3, background } })
    .png()
    .toBuffer();
});

test.after.always(async () => {
  await node?.close();
  for (const pool of [engines, pictures]) await pool?.close(0);
});

async function openEngines(t: ExecutionContext, model: PlanRun['model']) {
  const own = openEnginePool({ ...OPTIONS, model });
  t.teardown(() => own.close(0));
  await own.ready();
  return own;
}

async function openNode(t: ExecutionContext, model: PlanRun['model']) {
  const shell = await openShell(
    { model, engines: await openEngines(t, model), role: 'subject' },
    pictures,
  );
  t.teardown(() => shell.close());
  return shell;
}

test('cuts a picture out, in every format and as a mask', async t => {
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
    t.true(Math.abs(alpha - BRIGHTNESS) <= 2, `alpha ${alpha}`);
    t.true(Math.abs(red - BRIGHTNESS) <= 4, `red ${red}`);
  }
  const caller = await new MatteCaller(node).serve(file, {
    ...size,
    resultKind: ResultKind.RESULT_KIND_MASK,
  });
  const mask = await sharp(caller.result().file).metadata();
  t.deepEqual([mask.width, mask.height, mask.channels], [WIDTH, HEIGHT, 1]);
});

test('the log line of an image says how its file was mended', async t => {
  const lines: { msg: string; mended?: string }[] = [];
  const own = pino({}, { write: line => void lines.push(JSON.parse(line)) });
  const plan = { model: await writeTinyModel(directory, { kind: 'mean' }), engines };
  const shell = await openShell({ ...plan, role: 'subject' }, pictures, { log: own });
  t.teardown(() => shell.close());
  const image = await sharp(file).webp({ lossless: true }).toBuffer();
  const chunk = Buffer.from('XTRA\x01\0\0\0x\0', 'latin1');
  const whole = Buffer.concat([image, chunk]);
  whole.writeUInt32LE(whole.length - 8, 4);
  for (const sent of [whole, whole.subarray(0, whole.length - 1)]) {
    await new MatteCaller(shell).serve(sent, size);
  }
  const done = lines.filter(({ msg }) => msg === 'image done');
  t.deepEqual(
    done.map(({ mended }) => mended),
    [undefined, 'pad_byte'],
  );
});

test('a mark stays in its corner of portraits and landscapes, however they fit the model', async t => {
  const sides = { multipleOf: 8, max: 96 };
  for (const fit of ['letterbox', 'top-left', 'short-side'] as const) {
    const form = { inputType: 'float32', layout: 'nchw', fit, inverted: false } as const;
    const bySide = fit === 'short-side' ? { sides } : {};
    const folder = await temporaryFolder(t);
    const model = await writeTinyModel(folder, { kind: 'red', form: { ...form, ...bySide } });
    const shell = await openNode(t, model);
    for (const [width, height] of [
      [60, 120],
      [120, 60],
    ] as const) {
      const [left, top] = [0, height - 20];
      const picture = await sharp({ create: { width, height, channels: 3, background: '#000' } })
        .composite([{ input: RED_MARK, left, top }])
        .png()
        .toBuffer();
      const resultKind = ResultKind.RESULT_KIND_MASK;
      const caller = await new MatteCaller(shell).serve(picture, { width, height, resultKind });
      const mask = await sharp(caller.result().file).extractChannel(0).raw().toBuffer();
      const shown = (x: number, y: number) => (mask[y * width + x] ?? -1) > 127;
      const corners = [shown(10, 10), shown(width - 10, 10), shown(width - 10, height - 10)];
      t.deepEqual([shown(10, height - 10), ...corners], [true, false, false, false], fit);
      const count = mask.reduce((sum, alpha) => sum + Number(alpha > 127), 0);
      t.true(Math.abs(count - 20 * 20) < 100, `${fit} ${width}x${height}: ${count} pixels`);
    }
  }
});

test('a thumbnail › comes with the last message where the header asks for it, of a cut-out and of a mask', async t => {
  for (const resultKind of [ResultKind.RESULT_KIND_CUTOUT, ResultKind.RESULT_KIND_MASK]) {
    const fields = { ...size, resultKind, thumbnail: true };
    const caller = await new MatteCaller(node).serve(file, fields);
    const { thumbnail } = await caller.until('done');
    const { format, width, height, hasAlpha } = await sharp(thumbnail).metadata();
    const isCutOut = resultKind === ResultKind.RESULT_KIND_CUTOUT;
    t.deepEqual([format, width, height, hasAlpha], ['webp', WIDTH, HEIGHT, isCutOut]);
  }
  const { thumbnail } = await (await new MatteCaller(node).serve(file, size)).until('done');
  t.is(thumbnail.length, 0, 'none was fields for');
});

test('a model that refines decides in the unsure band, and nowhere else', async t => {
  const form = { inputType: 'float32', layout: 'nchw', fit: 'stretch', inverted: false } as const;
  const model = await writeTinyModel(directory, {
    ...{ kind: 'refined', form: { ...form, trimap: true }, width: 64, height: 64 },
  });
  const refining = await openEngines(t, model);
  // Black, a ramp of half a red, white.
  const pixels = Buffer.alloc(3 * WIDTH * HEIGHT, 255);
  for (let i = 0; i < WIDTH * HEIGHT; i++) {
    if (i % WIDTH < 36) pixels.fill(i % WIDTH < 28 ? 0 : 120, 3 * i, 3 * i + 3);
  }
  const image = await sharp(pixels, { raw: { ...size, channels: 3 } })
    .png()
    .toBuffer();
  const subject = { model: await writeTinyModel(directory, { kind: 'mean' }), engines };
  const maskOf = async (...others: PlanRun[]) => {
    const sent: ImageResult[] = [];
    const runs = [{ ...subject, role: 'subject' as const }, ...others];
    const exchange = {
      receive: async () => ({ image }),
      stageBegan: () => undefined,
      send: async (result: ImageResult) => void sent.push(result),
    };
    const order = {
      ...({ plan: { name: 'plan', runs }, declared: undefined, priority: 'sync' } as const),
      ...({ outputFormat: 'png', resultKind: 'mask' } as const),
      ...{ refinement: false, foregroundEstimation: false },
    };
    await new Pipeline(pictures).process(order, exchange, new AbortController().signal);
    const mask = await sharp(sent[0]?.file).extractChannel(0).raw().toBuffer();
    return mask.subarray((WIDTH * HEIGHT) / 2, (WIDTH * HEIGHT) / 2 + WIDTH);
  };
  const own = await maskOf();
  const refined = await maskOf({ model, engines: refining, role: 'refine' });
  for (const x of [0, 12, 20, 44, 52, 63]) t.is(refined[x], own[x], `${x}`);
  for (const x of [31, 32]) t.true(Math.abs((refined[x] ?? 0) - 124) <= 2, `${refined.join()}`);
  t.true(Math.abs((refined[36] ?? 0) - (own[36] ?? 0)) > 8, `${own.join()} ${refined.join()}`);
});

test('answers health checks while its engine is in a run', async t => {
  const health = new HealthClient(node.address);
  const [{ pid = 0 } = {}] = engines.processes();
  await stop(pid);
  const caller = await new MatteCaller(node).sendFile(file, size);
  await until('an engine that runs', () => engines.snapshot().running > 0);
  for (let check = 0; check < 3; check += 1) t.is(await health.check(''), 'SERVING');
  process.kill(pid, 'SIGCONT');
  t.is(await caller.ended, undefined);
  health.close();
});

const LARGE = { width: 640, height: 480 };
const AROUND = { left: 280, top: 190, width: 80, height: 80 };
/** Arms as thin as a pixel of the model. */
const CROSS = '<path d="M305 215h12v-12h6v12h12v6h-12v12h-6v-12h-12z"/>';

const drawn = (shapes: string) => {
  const { width, height } = LARGE;
  const size = `width="${width}" height="${height}"`;
  const ground = `<rect ${size} fill="black"/>`;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${size} fill="white">${ground}${shapes}</svg>`;
  return sharp(Buffer.from(svg)).removeAlpha();
};

/** The matte is the brightness, in 128x128 pixels. */
async function openBrightness(t: ExecutionContext) {
  const model = await writeTinyModel(directory, { kind: 'mean', width: 128, height: 128 });
  const shell = await openNode(t, model);
  return async (picture: Sharp) => {
    const resultKind = ResultKind.RESULT_KIND_MASK;
    const caller = await new MatteCaller(shell).serve(await picture.png().toBuffer(), {
      ...{ ...LARGE, resultKind },
    });
    const { header, file: mask } = caller.result();
    t.deepEqual(
      header?.modelRuns.map(({ role }) => role),
      ['subject'],
    );
    return (box: typeof AROUND) => sharp(mask).extractChannel(0).extract(box).raw().toBuffer();
  };
}

test('a small subject comes out better than the model sees it in the whole picture', async t => {
  const matteOf = await openBrightness(t);
  const truth = await drawn(CROSS).extractChannel(0).extract(AROUND).raw().toBuffer();
  const errorOf = async (shapes: string) => {
    const alpha = await (await matteOf(drawn(shapes)))(AROUND);
    return alpha.reduce((sum, value, i) => sum + Math.abs(value - (truth[i] ?? 0)), 0);
  };
  const corner = (x: number, y: number) => `<rect x="${x}" y="${y}" width="50" height="50"/>`;
  const closer = await errorOf(CROSS);
  const beside = await errorOf(`${CROSS}${corner(20, 20)}`);
  // More than three get no look each.
  const whole = await errorOf(
    `${CROSS}${corner(20, 20)}${corner(570, 20)}${corner(20, 410)}${corner(570, 410)}`,
  );
  t.true(2 * closer < whole, `${closer} and ${whole}`);
  t.true(2 * beside < whole, `${beside} and ${whole}`);
});

test('a closer look that is wrong about where the subject is changes nothing', async t => {
  const matteOf = await openBrightness(t);
  // From afar the lines are a faint veil, and the square is a subject.
  const lines = Array.from(
    { length: 160 },
    (_none, i) => `<rect x="${4 * i}" width="1" height="480"/>`,
  );
  const square = '<rect x="300" y="220" width="24" height="24"/>';
  const matte = await matteOf(drawn(`${lines.join('')}${square}`));
  for (const [left, top] of [
    [40, 40],
    [500, 400],
  ] as const) {
    const far = await matte({ left, top, width: 80, height: 40 });
    const mean = far.reduce((sum, value) => sum + value, 0) / far.length;
    t.true(mean > 30, `the veil has ${mean}`);
  }
});
