/** As `matting up` starts it, with a small model. */
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, rmSync, statSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { MattingClient } from '../../client/src/client.ts';
import type { HintShape, Job, Model, SucceededJob } from '../../client/src/types.ts';
import {
  encode,
  hasHeifEnc,
  irot,
  writeHeic,
} from '../../inference-node/serving/test/picture/codecs/heic-files.ts';
import { TESTED_DECODERS } from '../../inference-node/serving/test/picture/heif-decoders.ts';
import {
  asSharp,
  type Colour as ColourAt,
  type Pixels,
  paint,
  readRgba,
} from '../../inference-node/serving/test/pictures.ts';
import { shortCurl } from '../../proto/contract/curl-sample.ts';
import { ROOT, type RunningService, requireNothingLeft, startService } from '../running-service.ts';
import { at } from '../support/at.ts';
import { descendantsOf, until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';

const test = ava.serial;

const run = promisify(execFile);
const [WIDTH, HEIGHT] = [480, 360];
const DEMO = path.join(ROOT, 'docs/images/demo.jpg');
const PHOTO = await sharp(DEMO).resize(WIDTH, HEIGHT).jpeg({ quality: 92 }).toBuffer();
const NEAR = 12;

type Subject = Readonly<Record<'left' | 'top' | 'width' | 'height' | 'share', number>>;
type Colour = readonly [red: number, green: number, blue: number];

let service: RunningService;
let engines: number[];

function fillLogs(dataDir: string): void {
  mkdirSync(path.join(dataDir, 'logs'));
  for (const name of ['control-plane.log', 'inference-node.log']) {
    symlinkSync('/dev/full', path.join(dataDir, 'logs', name));
  }
}

const enginePids = () =>
  descendantsOf(service.process.pid)
    .filter(({ command }) => command.includes('engine-child'))
    .map(({ pid }) => pid);

test.before(async () => {
  // One engine and worker: a picture meets what the last one left.
  const few = { MATTING_ENGINES: '1', MATTING_PICTURE_WORKERS: '1' };
  service = await startService({ MATTING_MODELS_OFFERED: 'u2netp,standard', ...few }, fillLogs);
  engines = enginePids();
  assert.ok(engines.length > 0);
});
test.after.always(async () => {
  if (service?.process.running) await service.close();
});

test('a first start, whose logs cannot be written, and its pasted curl line', async t => {
  const { baseUrl, apiKey } = service;
  const photo = 'docs/images/demo.jpg';
  const curl = shortCurl({ baseUrl, apiKey, photo });
  const [, belowReady = ''] = service.output().split('Ready: ');
  t.true(belowReady.includes(curl), 'it is the one of the account area');
  t.regex(belowReady, /^API key with/m);
  t.regex(belowReady, /credits grant/);
  t.is(service.output().split('API key with').length, 2);
  mkdirSync(path.join(service.dataDir, path.dirname(photo)), { recursive: true });
  copyFileSync(path.join(ROOT, photo), path.join(service.dataDir, photo));
  await run('sh', ['-c', curl], { cwd: service.dataDir });
  const file = path.join(service.dataDir, 'cutout.png');
  const { width, height, hasAlpha } = await sharp(file).metadata();
  t.deepEqual({ width, height, hasAlpha }, { width: 1200, height: 900, hasAlpha: true });
  t.is(statSync(path.join(service.dataDir, 'node-token')).mode & 0o777, 0o600);
});

/** RGB, and which pixels are far from `background`. */
async function pixelsOf(file: Buffer, background: Colour) {
  const { data, info } = await sharp(file)
    .removeAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  const { width, height } = info;
  const isBackground = (x: number, y: number) => {
    const at = (y * width + x) * 3;
    return background.every(
      (value, channel) => Math.abs(data.readUInt8(at + channel) - value) < NEAR,
    );
  };
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (isBackground(x, y)) continue;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
      top = Math.min(top, y);
      bottom = Math.max(bottom, y + 1);
    }
  }
  const corners = [isBackground(0, 0), isBackground(width - 1, height - 1)];
  return { width, height, corners, box: { left, top, width: right - left, height: bottom - top } };
}

async function made(fields: object) {
  const { status, body: job } = await service.post({ ...base64(PHOTO), ...fields });
  assert.equal(status, 200, JSON.stringify(job));
  const file = Buffer.from(await (await fetch(job.result?.url ?? '')).arrayBuffer());
  return { job, file };
}

test('white, square, the subject 85 % of the frame, as JPEG: in one call', async t => {
  const { job, file } = await made({
    crop: true,
    scale: '85%',
    output_width: 500,
    output_height: 500,
    background: 'white',
    output_format: 'jpg',
  });
  t.deepEqual([job.result?.contentType, job.credits.charged], ['image/jpeg', 1]);
  const { format, hasAlpha, chromaSubsampling } = await sharp(file).metadata();
  t.deepEqual([format, hasAlpha, chromaSubsampling], ['jpeg', false, '4:4:4']);
  const { width, height, corners, box } = await pixelsOf(file, [255, 255, 255]);
  t.deepEqual([width, height, corners], [500, 500, [true, true]]);
  const side = Math.max(box.width, box.height);
  t.true(Math.abs(side - 0.85 * 500) <= 8, `the subject is ${side} of 500 pixels`);
  t.true(
    Math.abs(box.left + box.width / 2 - 250) <= 8,
    `${JSON.stringify(box)} is not in the middle`,
  );
  const { subject } = job.result as { subject?: Subject };
  assert.ok(subject);
  t.true(subject.left + subject.width <= WIDTH && subject.top + subject.height <= HEIGHT);
  t.true(subject.share > 0.05 && subject.share < 0.9, `a share of ${subject.share}`);
  const ratio = subject.width / subject.height;
  t.true(Math.abs(ratio - box.width / box.height) < 0.05, 'its proportions are kept');
});

test('the matte alone, the same as the alpha of the cut-out', async t => {
  const [matte, cutOut] = [await made({ channels: 'alpha' }), await made({})];
  const { hasAlpha, width, height } = await sharp(matte.file).metadata();
  t.deepEqual([width, height, hasAlpha], [WIDTH, HEIGHT, false]);
  const grey = await sharp(matte.file).extractChannel(0).raw().toBuffer();
  t.true(grey.equals(await sharp(cutOut.file).extractChannel(3).raw().toBuffer()));
});

const noHeic =
  isNotTested(!hasHeifEnc && 'HEIC: heif-enc (libheif-examples) is not installed') ||
  TESTED_DECODERS.some(({ kind, untested }) => kind === 'system' && untested);

test.skipIf(noHeic)('a HEIC as a phone writes it is cut out upright', async t => {
  const data = await sharp(PHOTO).raw().toBuffer();
  const tiles = await encode([{ data, width: WIDTH, height: HEIGHT, channels: 3 }]);
  const size = { width: WIDTH, height: HEIGHT };
  const { file: heic } = writeHeic({ ...size, tiles, transforms: [irot(3)], exif: 6 });
  const upright = await sharp(PHOTO).rotate(90).png().toBuffer();
  const alphas: Buffer[] = [];
  for (const picture of [heic, upright]) {
    const { file } = await made({ ...base64(picture), channels: 'alpha' });
    const { width, height } = await sharp(file).metadata();
    t.deepEqual([width, height], [HEIGHT, WIDTH]);
    alphas.push(await sharp(file).extractChannel(0).raw().toBuffer());
  }
  const [ofHeic, ofPng] = [at(alphas, 0), at(alphas, 1)];
  const off = ofHeic.reduce((sum, value, i) => sum + Math.abs(value - at(ofPng, i)), 0);
  t.true(off / ofHeic.length < 4, `off by ${off / ofHeic.length} in the mean`);
  const { status, body } = await service.post(base64(heic.subarray(0, heic.length >> 2)));
  t.deepEqual([status, body.code], [422, 'PROCESSING_FAILED']);
});

async function ask(headers: Readonly<Record<string, string>>, body: Buffer | FormData, query = '') {
  const answer = await fetch(`${service.baseUrl}/v1/matting${query}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'idempotency-key': 'once', ...headers },
    body,
  });
  const picture = Buffer.from(await answer.arrayBuffer());
  assert.equal(answer.status, 200, picture.toString('latin1').slice(0, 500));
  return { picture, header: (name: string) => String(answer.headers.get(name)) };
}

test('a file in, the picture out: in a form, as the body itself, behind its link, for one credit', async t => {
  const { available } = await service.credits();
  const form = new FormData();
  form.set('output_format', 'avif');
  form.set('image_file', new Blob([PHOTO], { type: 'image/jpeg' }), 'photo.jpg');
  const first = await ask({ accept: 'image/*' }, form);
  t.deepEqual(['content-type', 'x-credits-charged'].map(first.header), ['image/avif', '1']);
  t.regex(first.header('server-timing'), /\binfer;dur=/);
  const { width, height, channels } = await sharp(first.picture).metadata();
  t.deepEqual([width, height, channels], [WIDTH, HEIGHT, 4]);
  const raw = { accept: 'image/avif', 'content-type': 'image/jpeg' };
  const again = await ask(raw, PHOTO, '?output_format=avif');
  t.is(again.header('idempotent-replayed'), 'true');
  const link = await fetch(first.header('content-location'));
  for (const picture of [again.picture, Buffer.from(await link.arrayBuffer())]) {
    t.true(picture.equals(first.picture));
  }
  t.is((await service.credits()).available, available - 1);
});

test('a file of hints is stretched over the picture: black is gone, white stays, grey is as without', async t => {
  // 40 x 30: the right half is black, a corner of the left white.
  const luma = (x: number, y: number) => (x >= 20 ? 0 : x < 8 && y < 6 ? 255 : 128);
  const grey = Buffer.from(Array.from({ length: 40 * 30 }, (_, i) => luma(i % 40, (i / 40) | 0)));
  const raw = { raw: { width: 40, height: 30, channels: 1 } } as const;
  const form = new FormData();
  form.set('channels', 'alpha');
  form.set('image_file', new Blob([PHOTO]), 'photo.jpg');
  const alphaOf = async (picture: Buffer) =>
    await sharp(picture).extractChannel(0).raw().toBuffer();
  const key = { 'idempotency-key': 'without hints', accept: 'image/png' };
  const without = await alphaOf((await ask(key, form)).picture);
  form.set('hints_file', new Blob([await sharp(grey, raw).png().toBuffer()]), 'hints.png');
  const hinted = await alphaOf((await ask({ ...key, 'idempotency-key': 'hints' }, form)).picture);
  const alphaAt = (of: Buffer, x: number, y: number) => of.readUInt8(y * WIDTH + x);
  t.deepEqual([alphaAt(without, 20, 20), alphaAt(hinted, 20, 20)], [0, 255]);
  const [left, right] = [200, 260];
  for (const x of [left, right]) t.true(alphaAt(without, x, 200) > 250, `nothing at ${x}`);
  t.true(alphaAt(hinted, left, 200) > 250);
  t.is(alphaAt(hinted, right, 200), 0);
  const coloured = await sharp(grey, raw).ensureAlpha().png().toBuffer();
  form.set('hints_file', new Blob([coloured]), 'hints.png');
  const refused = await fetch(`${service.baseUrl}/v1/matting`, {
    method: 'POST',
    headers: { authorization: `Bearer ${service.apiKey}`, 'idempotency-key': 'alpha in hints' },
    body: form,
  });
  const { code, detail } = (await refused.json()) as { code: string; detail: string };
  t.deepEqual([refused.status, code], [400, 'INVALID_PARAMETER'], detail);
  t.regex(detail, /hints_file/);
});

const base64 = (bytes: Uint8Array) => ({ image_base64: Buffer.from(bytes).toString('base64') });

let state = 5;
function noise(): number {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state >>> 24;
}

const [WIDE, HIGH] = [160, 120];
const paintRgb = (colour: ColourAt): Pixels => paint(WIDE, HIGH, 3, colour);

/** Own size; black where transparent, as PNG would keep it. */
async function cutOut(t: ExecutionContext, pixels: Pixels) {
  const { status, body } = await service.post(base64(await asSharp(pixels).png().toBuffer()));
  t.is(status, 200, JSON.stringify(body));
  const { width, height } = pixels;
  const result = body.result ?? assert.fail('no result');
  t.deepEqual([result.format, result.width, result.height], ['png', width, height]);
  const file = Buffer.from(await (await fetch(result.url)).arrayBuffer());
  t.is(file.length, result.sizeBytes);
  const { data, ...read } = await readRgba(file, 'png');
  t.deepEqual([read.width, read.height, data.length], [width, height, width * height * 4]);
  const hidden = data.filter((_, i) => data[i | 3] === 0);
  t.true(hidden.every(value => value === 0));
  return data.filter((_, i) => i % 4 === 3);
}

test('a picture without a subject comes out transparent or nearly so', async t => {
  // Levels of 255 that a small model leaves, at its worst on pictures without a subject.
  const without: readonly [string, ColourAt, faintMax: number][] = [
    ['a gradient', (x, y) => [40 + (170 * x) / WIDE, 40 + (170 * y) / HIGH, 90], 40],
    ['one colour', () => [40, 90, 160], 40],
    ['all black', () => [0, 0, 0], 40],
    ['all white', () => [255, 255, 255], 40],
    ['noise', () => [noise(), noise(), noise()], 140],
  ];
  for (const [name, colour, faintMax] of without) {
    const most = Math.max(...(await cutOut(t, paintRgb(colour))));
    t.true(most <= faintMax, `${name}: alpha up to ${most}`);
  }
});

test('a subject on one colour is whole, and the background is gone', async t => {
  const isOnDisc = (x: number, y: number) => Math.hypot(x - WIDE / 2, y - HIGH / 2) < 38;
  const picture = paintRgb((x, y) => (isOnDisc(x, y) ? [200, 60, 40] : [230, 230, 230]));
  const alphas = await cutOut(t, picture);
  t.true(at(alphas, WIDE * (HIGH / 2) + WIDE / 2) > 240, 'the middle of the disc');
  const inside = alphas.filter((_, i) => isOnDisc(i % WIDE, Math.floor(i / WIDE)));
  const outside = alphas.filter((_, i) => !isOnDisc(i % WIDE, Math.floor(i / WIDE)));
  const mean = (values: Uint8Array) => values.reduce((sum, v) => sum + v, 0) / values.length;
  t.true(mean(inside) > 230, `the disc has ${mean(inside)}`);
  t.true(mean(outside) < 10, `the background has ${mean(outside)}`);
});

const modelsListed = async () => {
  const headers = { authorization: `Bearer ${service.apiKey}`, 'idempotency-key': 'list' };
  const answer = await fetch(`${service.baseUrl}/v1/models`, { headers });
  return ((await answer.json()) as { models: Model[] }).models;
};
const isLoaded = async (wanted = true) => (await modelsListed()).at(-1)?.loaded === wanted;

test('the start fetches and prepares offered models, each for a node of its own; no picture changes the next one', async t => {
  await until(isLoaded, { timeoutMs: 60_000, what: 'the second node is known' });
  const shown = ({ name, kind, default: isDefault, loaded }: Model) => [
    name,
    kind,
    isDefault,
    loaded,
  ];
  t.deepEqual((await modelsListed()).map(shown), [
    ['u2netp', 'model', true, true],
    ['standard', 'plan', false, true],
  ]);
  const unnamed = (await made({})).job as object as SucceededJob;
  t.deepEqual(unnamed.models, [{ name: 'u2netp', role: 'subject' }]);
  const wrong = await service.post({ ...base64(PHOTO), model: 'fast' });
  t.deepEqual([wrong.status, wrong.body.code], [400, 'INVALID_PARAMETER']);
  t.regex(wrong.body.detail ?? '', /model must be one of u2netp, standard/);
  const sharpThing = await sharp(DEMO).resize(600, 450).png().toBuffer();
  // The first model is uncertain about a fifth of its subject.
  const soft = await sharp(DEMO).resize(600, 450).blur(4).png().toBuffer();
  const looksAt = async (picture: Buffer) => {
    const { job, file } = await made({ ...base64(picture), channels: 'alpha', model: 'standard' });
    const { models } = job as object as SucceededJob;
    return { models: models?.map(({ name, role }) => `${name} ${role}`), file };
  };
  // The uncertain one comes first: the second model's engine still loads.
  const first = await looksAt(soft);
  const one = await looksAt(sharpThing);
  t.deepEqual(one.models, ['isnet subject']);
  t.deepEqual(first.models, ['isnet subject', 'modnet opinion', 'isnet second_look']);
  t.deepEqual(await looksAt(sharpThing), one, 'sharp after soft, and after itself');
  t.deepEqual(await looksAt(soft), first, 'soft as the first, and after sharp');
});

test('a request for a model whose node is gone waits until the node is back', async t => {
  const nodes = descendantsOf(service.process.pid)
    .filter(({ command }) => command.includes('inference-node/main.ts'))
    .map(({ pid }) => pid);
  t.is(nodes.length, 2);
  process.kill(Math.max(...nodes), 'SIGKILL');
  await until(() => isLoaded(false), { timeoutMs: 10_000, what: 'the list says that it is gone' });
  const { job } = await made({ model: 'standard' });
  t.is((job as object as SucceededJob).models?.[0]?.name, 'isnet');
  t.true(await isLoaded());
  t.regex(service.output(), /the inference node of standard ended \(SIGKILL\); restarting it/);
});

test('a box erases one of two things, and a stroke and a box bring it back by a look of the model', async t => {
  const client = new MattingClient({ baseUrl: service.baseUrl, apiKey: service.apiKey });
  const pair = sharp({
    create: { width: 2 * WIDTH, height: HEIGHT, channels: 3, background: '#fff' },
  }).composite([
    { input: PHOTO, left: 0, top: 0 },
    { input: PHOTO, left: WIDTH, top: 0 },
  ]);
  const alphaOf = async (job: Job) => {
    const file = await fetch((job as SucceededJob).result.url);
    const { data } = await sharp(Buffer.from(await file.arrayBuffer()))
      .extractChannel(0)
      .raw()
      .toBuffer({ resolveWithObject: true });
    const sumOf = (left: number) => {
      let sum = 0;
      for (let y = 0; y < HEIGHT; y++) {
        for (let x = left; x < left + WIDTH; x++) sum += data.readUInt8(y * 2 * WIDTH + x);
      }
      return sum / 255;
    };
    return { left: sumOf(0), right: sumOf(WIDTH) };
  };
  const image = await pair.jpeg({ quality: 92 }).toBuffer();
  const asked = { model: 'standard', channels: 'alpha', correctable: true } as const;
  const job = await client.run({ image, ...asked });
  const first = await alphaOf(job);
  t.true(first.right > 10_000, JSON.stringify(first));
  const half = [WIDTH, 0, 2 * WIDTH, HEIGHT] as const;
  const erased = await client.correct(job.job_id, { erase: [{ box: [...half] }] });
  const without = await alphaOf(erased);
  t.true(without.right < 0.005 * first.right, JSON.stringify(without));
  t.true(Math.abs(without.left - first.left) < 0.005 * first.left);
  const line: [number, number][] = [
    [WIDTH + 200, 180],
    [WIDTH + 300, 200],
  ];
  for (const shape of [
    { box: [WIDTH + 110, 70, WIDTH + 400, 300] as const },
    { line, radius: 6 },
  ]) {
    const corrected = await client.correct(erased.job_id, { keep: [shape as HintShape] });
    const back = await alphaOf(corrected);
    t.true(Math.abs(back.right - first.right) < 0.1 * first.right, JSON.stringify(back));
    t.true(Math.abs(back.left - first.left) < 0.005 * first.left);
    t.deepEqual(corrected.credits, { reserved: 0, charged: 0 });
  }
  const { MATTING_NODE_PORT: port, MATTING_NODE_HTTP_PORT: httpPort } = service.env;
  const ofSecond = Math.max(Number(port), Number(httpPort)) + 2;
  const metrics = await (await fetch(`http://127.0.0.1:${ofSecond}/metrics`)).text();
  t.regex(metrics, /stage_duration_seconds_count\{[^}]*stage="crop_run"[^}]*\} [2-9]/);
});

test('two signals at once are one, which ends everything; the next start goes on, and ends with its make', async t => {
  const { body } = await service.post(base64(PHOTO));
  const before = descendantsOf(service.process.pid);
  t.true(before.length >= 4, JSON.stringify(before));
  // make and a terminal send the signal twice like this.
  for (let signals = 0; signals < 2; signals += 1) service.process.signal('SIGINT');
  await until(() => !service.process.running, { timeoutMs: 120_000, what: 'it ends' });
  t.is(await service.process.exited, 0, service.output());
  await requireNothingLeft(service.dataDir);
  for (const { pid } of before) t.true(!existsSync(`/proc/${pid}`), `${pid} is left over`);

  const env: Record<string, string> = {
    ...service.env,
    MATTING_COMMERCIAL_USE: 'weights',
    MATTING_QUALITY: 'permissive',
    MATTING_MODEL: '',
    MATTING_MODELS_OFFERED: '',
  };
  const args = ['-c', '"$0" bin/matting.ts up --end-with-parent & wait', process.execPath];
  const make = spawn('sh', args, { cwd: ROOT, env, stdio: 'pipe' });
  let output = '';
  for (const stream of [make.stdout, make.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      output += text;
    });
  }
  const isReady = () => /^New API key: /m.test(output) || make.exitCode !== null;
  await until(isReady, { timeoutMs: 240_000, what: 'it is ready', detail: () => output });
  t.false(output.includes('API key with'), output);
  const [, printed = ''] = /^New API key: (.*)$/m.exec(output) ?? [];
  const elsewhere = { PATH: `${path.dirname(process.execPath)}:${process.env.PATH}` };
  const { stdout } = await run('sh', ['-c', printed], { cwd: ROOT, env: elsewhere });
  const authorization = `Bearer ${/mk_\w{12}_\S+|mk_\S{30,}/.exec(stdout)?.[0]}`;
  const account = await fetch(`${service.baseUrl}/v1/account`, { headers: { authorization } });
  t.is(account.status, 200, `${printed}: ${stdout}`);
  t.regex(output, /Idempotency-Key with reads/);
  const [said] = /^Models: plan permissive, commercial use: .*$/m.exec(output) ?? [];
  t.regex(said ?? '', /u2netp weights yes, training data unclear/, output);
  t.notRegex(said ?? '', /isnet/);
  const page = await fetch(`http://127.0.0.1:${env.MATTING_NODE_HTTP_PORT}/info`);
  const info = (await page.json()) as { commercialUseRequired: string; plans: string[] };
  t.deepEqual([info.commercialUseRequired, info.plans], ['weights', ['permissive']]);
  // The first start's key and job survive.
  t.is((await service.get(body.status_url)).body.status, 'succeeded');
  make.kill('SIGKILL');
  await requireNothingLeft(service.dataDir);
  rmSync(service.dataDir, { recursive: true, force: true });
});
