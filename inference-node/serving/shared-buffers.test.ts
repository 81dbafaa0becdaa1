import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { at } from '@matting/test-support/at.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import sharp from 'sharp';
import { openEnginePool } from './engine/pool/open-engine-pool.ts';
import { openPicturePool } from './picture/pool/open-picture-pool.ts';
import { type ImageOrder, type ImageResult, Pipeline } from './pipeline.ts';
import { BufferPool } from './process/buffer-pool.ts';

const test = ava.serial;

/** Pixels: large enough for the pool to keep its buffers. */
const SIDE = 256;
const IMAGES = 48;
const CALLERS = 6;
const log = pino({ level: 'silent' });

class CountedBuffers extends BufferPool {
  readonly memories = new Set<ArrayBufferLike>();
  taken = 0;
  given = 0;

  override take(bytes: number): Buffer {
    const buffer = super.take(bytes);
    if (bytes >= SIDE * SIDE) {
      this.taken += 1;
      this.memories.add(buffer.buffer);
    }
    return buffer;
  }

  override giveBack(buffer: Buffer): void {
    this.given += 1;
    // A reader that still uses the buffer fails at once.
    buffer.fill(255);
    super.giveBack(buffer);
  }
}

async function openNode(t: ExecutionContext) {
  const folder = await temporaryFolder(t);
  const buffers = new CountedBuffers();
  const size = { width: SIDE, height: SIDE };
  const model = await writeTinyModel(folder, { kind: 'mean', ...size });
  const pictures = await openPicturePool({ workers: 3, childEnv: STARTED_ENV, log, buffers });
  t.teardown(() => pictures.close(0));
  const pool = { engines: 2, threadsPerEngine: 1, childEnv: STARTED_ENV, log, buffers };
  const engines = openEnginePool({ model, ...pool });
  t.teardown(() => engines.close(0));
  await engines.ready();
  const plan = { name: 'tiny', runs: [{ model, engines, role: 'subject' as const }] };
  return { buffers, pictures, engines, plan, pipeline: new Pipeline(pictures) };
}

type Node = Awaited<ReturnType<typeof openNode>>;

function plainPng(brightness: number): Promise<Buffer> {
  const background = { r: brightness, g: brightness, b: brightness };
  const create = { width: SIDE, height: SIDE, channels: 3, background } as const;
  return sharp({ create }).png().toBuffer();
}

async function maskOf({ pipeline, plan }: Node, image: Buffer, signal: AbortSignal) {
  const order: ImageOrder = {
    plan,
    declared: undefined,
    outputFormat: 'png',
    resultKind: 'mask',
    refinement: false,
    foregroundEstimation: false,
    priority: 'sync',
  };
  const sent: ImageResult[] = [];
  const receive = async () => ({ image });
  const send = async (result: ImageResult) => void sent.push(result);
  await pipeline.process(order, { receive, stageBegan: () => undefined, send }, signal);
  return at(sent, 0).file;
}

test('each matte is of its own picture, despite callers that leave and children that die', async t => {
  const node = await openNode(t);
  const { buffers, engines, pictures } = node;
  let next = 0;
  let cutOut = 0;
  const ends: string[] = [];
  const caller = async () => {
    while (next < IMAGES) {
      const n = next++;
      // Fainter mattes far from any body are cleared as haze.
      const brightness = 40 + 4 * n;
      const image = await plainPng(brightness);
      const gone = new AbortController();
      if (n % 4 === 3) void delay(3 * (n % 16)).then(() => gone.abort(new Error('gone')));
      // The next image must not use a buffer of an interrupted stage.
      if (n % 24 === 10) process.kill(at(engines.processes(), 0).pid, 'SIGKILL');
      if (n % 24 === 20) process.kill(at(pictures.processes(), 0).pid, 'SIGKILL');
      try {
        const mask = await sharp(await maskOf(node, image, gone.signal))
          .raw()
          .toBuffer();
        const wrong = mask.findIndex(level => Math.abs(level - brightness) > 1);
        t.is(wrong, -1, `image ${n} at ${wrong}: ${mask[wrong]}, not ${brightness}`);
        cutOut += 1;
      } catch (error) {
        if (error instanceof assert.AssertionError) throw error;
        ends.push((error as { code?: string }).code ?? (error as Error).message);
      }
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  t.true(cutOut >= IMAGES / 2, `${cutOut} cut out, the others: ${ends.join(', ')}`);
  const lost = ends.filter(end => !/gone|ENGINE_LOST|PICTURE_WORKER_LOST/.test(end));
  t.deepEqual(lost, []);
  // A model input and a matte of each image that ended well.
  t.is(buffers.given, 2 * cutOut);
  t.true(buffers.memories.size < buffers.taken / 2, 'memory was used again');
});
