/**
 * Measures what a picture costs a worker, by the format of its result: processor time, elapsed time
 * and the greatest memory, the programs it starts included.
 *
 *   sh bin/node24 bench/formats.ts [megapixels ...] [--photo=FILE] [--formats=png,webp]
 *     [--frame=WIDTHxHEIGHT] [--background=white|FILE]
 *
 * With a frame or a background the cut-out is cropped and finished; one of them is needed for JPEG
 * and ZIP.
 *
 * Without a photo the picture is made up. As JPEG XL it is also decoded.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { pino } from 'pino';
import sharp from 'sharp';
import { openPicturePool } from '../inference-node/serving/picture/pool/open-picture-pool.ts';
import type { FinishRequest } from '../inference-node/serving/picture/pool/picture-pool.ts';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';
import type { Finishing } from '../proto/contract/finishing.ts';
import { OUTPUT_FORMATS, type OutputFormat } from '../proto/contract/formats.ts';
import { at } from '../test/support/at.ts';
import { memoryOf } from './processes.ts';

const NEVER = new AbortController().signal;
const MODEL_SIDE = 1024;
const SAMPLE_INTERVAL_MS = 20;
const MS_PER_TICK = 10;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    photo: { type: 'string' },
    formats: { type: 'string' },
    frame: { type: 'string' },
    background: { type: 'string' },
  },
});

const NO_MARGIN = { top: { px: 0 }, right: { px: 0 }, bottom: { px: 0 }, left: { px: 0 } };
const finishing = readFinishing();
const background =
  finishing?.background?.kind === 'picture' ? readFileSync(values.background ?? '') : undefined;

function readFinishing(): Finishing | undefined {
  const { frame, background: given } = values;
  if (frame === undefined && given === undefined) return undefined;
  const [outputWidth = 0, outputHeight = 0] = (frame ?? '').split('x').map(Number);
  const white = { kind: 'colour', rgba: 0xffffffff } as const;
  return {
    crop: NO_MARGIN,
    ...(frame === undefined ? {} : { outputWidth, outputHeight }),
    ...(given === undefined
      ? {}
      : { background: given === 'white' ? white : { kind: 'picture' as const } }),
  };
}

async function makePhoto(width: number, height: number): Promise<Buffer> {
  const source =
    values.photo === undefined
      ? sharp(drawCheckPicture(512, 512), SCENE)
      : sharp(values.photo).rotate();
  const enlarged = await source
    .resize(width, height, { fit: 'fill' })
    .removeAlpha()
    .raw()
    .toBuffer();
  let state = 1;
  for (let i = 0; i < enlarged.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    enlarged[i] = Math.max(0, Math.min(255, at(enlarged, i) + (state >>> 29) - 3));
  }
  return await sharp(enlarged, { raw: { width, height, channels: 3 } })
    .jpeg({ quality: 90 })
    .toBuffer();
}

const SCENE = { raw: { width: 512, height: 512, channels: 3 } } as const;

/** Makes a matte that is opaque in the middle, nothing outside, soft between. */
function makeMatte(): Buffer {
  const alpha = Buffer.alloc(MODEL_SIDE ** 2);
  for (let i = 0; i < alpha.length; i++) {
    const far = Math.hypot((i % MODEL_SIDE) - 512, Math.floor(i / MODEL_SIDE) - 512);
    alpha[i] = Math.max(0, Math.min(255, (360 - far) * 8 + 128));
  }
  return alpha;
}

/** Processor time of a process and of its children that have ended. */
function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * MS_PER_TICK;
}

async function timed<Value>(pid: number, work: () => Promise<Value>) {
  const [cpuBefore, startedMs] = [cpuMs(pid), performance.now()];
  const value = await work();
  return [value, { cpu: cpuMs(pid) - cpuBefore, wall: performance.now() - startedMs }] as const;
}

async function measure(file: Buffer, outputFormat: OutputFormat) {
  const pool = await openPicturePool({ workers: 1, childEnv: {}, log: pino({ level: 'silent' }) });
  const { pid } = at(pool.processes(), 0);
  const base = memoryOf(pid).rss;
  let peak = 0;
  const sampler = setInterval(() => {
    peak = Math.max(peak, memoryOf(pid).rss);
  }, SAMPLE_INTERVAL_MS);
  const size = { width: MODEL_SIDE, height: MODEL_SIDE };
  try {
    const lease = await pool.acquire('sync', NEVER);
    const behind = background && { file: background, declared: undefined };
    const request = { file, declared: undefined, modelInputs: [size], background: behind };
    const [, decode] = await timed(pid, () => lease.decode(request, NEVER));
    const decodePeak = peak;
    const finish = {
      mattes: [{ alpha: makeMatte(), size, role: 'subject' }],
      outputFormat,
      resultKind: 'cutout',
      refinement: true,
      foregroundEstimation: true,
      finishing,
    } satisfies FinishRequest;
    const [finished, encode] = await timed(pid, () => lease.finish(finish, NEVER));
    lease.release();
    return { decode, encode, finished, decodePeak: decodePeak - base, peak: peak - base };
  } finally {
    clearInterval(sampler);
    await pool.close(0);
  }
}

function row(label: string, megapixels: number, result: Awaited<ReturnType<typeof measure>>): void {
  const { decode, encode, finished, decodePeak, peak } = result;
  const seconds = (ms: number) => `${(ms / 1000).toFixed(2)} s`;
  const perPixel = (bytes: number) => `${(bytes / megapixels / 1e6).toFixed(1)} B/px`;
  console.log(
    [
      label.padEnd(12),
      `decode ${seconds(decode.cpu)} cpu ${seconds(decode.wall)} wall ${perPixel(decodePeak)}`,
      `finish ${seconds(encode.cpu)} cpu ${seconds(encode.wall)} wall`,
      `(refine ${seconds(finished.refineMs)}, finish ${seconds(finished.finishMs)}, ` +
        `encode ${seconds(finished.encodeMs)})`,
      `peak ${perPixel(peak)} = ${(peak / 1e9).toFixed(2)} GB`,
      `${(finished.file.length / 1e6).toFixed(1)} MB`,
    ].join(' | '),
  );
}

const formats = OUTPUT_FORMATS.filter(
  format => values.formats === undefined || values.formats.split(',').includes(format),
);
for (const megapixels of positionals.length > 0 ? positionals.map(Number) : [12, 100]) {
  const width = Math.round(Math.sqrt((megapixels * 4e6) / 3));
  const side = Math.min(10_000, width);
  const photo = await makePhoto(side, Math.round((megapixels * 1e6) / side));
  console.log(`${megapixels} megapixels, a JPEG of ${(photo.length / 1e6).toFixed(1)} MB`);
  for (const format of formats) {
    const result = await measure(photo, format);
    row(format, megapixels, result);
    if (format !== 'jxl') continue;
    row('jxl from jxl', megapixels, await measure(result.finished.file, 'png'));
  }
}
