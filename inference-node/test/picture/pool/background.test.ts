/** A background's file in a worker: its faults are told apart from the image's. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import pino from 'pino';
import sharp from 'sharp';
import type { Finishing } from '#contract/finishing.ts';
import { openPicturePool } from '../../../src/picture/pool/open-picture-pool.ts';
import type { BackgroundFile, WorkerPicturePool } from '../../../src/picture/pool/picture-pool.ts';
import { asSharp, claimPngSize, paint, paintSlope } from '../pictures.ts';

const NEVER = new AbortController().signal;
const MODEL_SIZE = { width: 16, height: 16 };
const photo = await asSharp(paintSlope(40, 30)).png().toBuffer();
const blue = paint(20, 30, 3, () => [0, 0, 255]);
const jpeg = await asSharp(blue).jpeg({ quality: 100 }).toBuffer();

let pool: WorkerPicturePool;

before(async () => {
  pool = await openPicturePool({ workers: 1, childEnv: {}, log: pino({ level: 'silent' }) });
});

after(async () => {
  await pool.close(0);
});

async function cutOut(file: Buffer, background: BackgroundFile, finishing: Finishing) {
  const lease = await pool.acquire('sync', NEVER);
  try {
    const request = { file, declared: undefined, modelInputs: [MODEL_SIZE], background };
    await lease.decode(request, NEVER);
    const alpha = Buffer.alloc(256);
    for (let i = 0; i < 256; i++) alpha[i] = i % 16 < 8 ? 255 : 0;
    const choices = { refinement: false, foregroundEstimation: false, finishing } as const;
    const mattes = [{ alpha, size: MODEL_SIZE, role: 'subject' }] as const;
    const result = { outputFormat: 'png', resultKind: 'cutout' } as const;
    return await lease.finish({ mattes, ...result, ...choices }, NEVER);
  } finally {
    lease.release();
  }
}

const asked: Finishing = { background: { kind: 'picture' }, outputWidth: 80 };

describe('a background picture', () => {
  it('lies behind the subject, oriented', async () => {
    // Blue above and red below once it is turned; stored on its side.
    const stored = paint(30, 20, 3, x => (x < 15 ? [0, 0, 255] : [255, 0, 0]));
    const turned = await asSharp(stored).withMetadata({ orientation: 6 }).jpeg().toBuffer();
    const background = { file: turned, declared: undefined };
    const finished = await cutOut(photo, background, asked);
    const { file, width, height, input, finishMs } = finished;
    assert.deepEqual([width, height, input], [80, 60, { width: 40, height: 30 }]);
    assert.ok(finishMs > 0);
    const { data } = await sharp(file).raw().toBuffer({ resolveWithObject: true });
    const [red = 0, , blueAbove = 0, alpha] = data.subarray(4 * (5 * 80 + 70));
    assert.ok(red < 60 && blueAbove > 200 && alpha === 255, `${red} ${blueAbove} ${alpha}`);
    const [redBelow = 0] = data.subarray(4 * (55 * 80 + 70));
    assert.ok(redBelow > 200, `${redBelow}`);
    assert.deepEqual(finished.subject?.inputBox.left, 0);
  });

  const bad: [string, BackgroundFile, string, RegExp][] = [
    ['of text', { file: Buffer.from('text'), declared: undefined }, 'INVALID_PARAMETER', /none of/],
    [
      'that is cut off',
      { file: jpeg.subarray(0, jpeg.length / 2), declared: undefined },
      'INVALID_PARAMETER',
      /damaged/,
    ],
    [
      'larger than declared',
      { file: jpeg, declared: { width: 10, height: 10 } },
      'INVALID_PARAMETER',
      /declared/,
    ],
    [
      'that claims 26 megapixels',
      { file: claimPngSize(photo, 6_500, 4_000), declared: undefined },
      'IMAGE_RESOLUTION_TOO_LARGE',
      /25000000/,
    ],
  ];
  for (const [name, background, code, message] of bad) {
    it(`${name} is ${code}, by its name, and the worker lives on`, async () => {
      const [before] = pool.processes();
      await assert.rejects(cutOut(photo, background, asked), error => {
        const fault = error as Error & { code: string };
        assert.deepEqual(fault.code, code);
        assert.match(fault.message, /^background: /);
        assert.match(fault.message, message);
        return true;
      });
      assert.equal((await cutOut(photo, { file: jpeg, declared: undefined }, asked)).width, 80);
      assert.equal(pool.processes()[0]?.pid, before?.pid);
    });
  }

  it('is not blamed for the image', async () => {
    const text = Buffer.from('no image');
    await assert.rejects(cutOut(text, { file: jpeg, declared: undefined }, asked), {
      code: 'UNSUPPORTED_IMAGE_FORMAT',
      message: /^the file/,
    });
  });

  it('that takes too much is blamed, not the image', async () => {
    // Each megapixel takes from what is allowed: nothing is left once the background is opened. An
    // AVIF of that size is decoded for a second, so that the watch looks meanwhile.
    const strict = await openPicturePool({
      workers: 1,
      childEnv: {},
      log: pino({ level: 'silent' }),
      limits: { residentBytes: { base: 20 * 2 ** 30, perMegapixel: -(2 ** 30) } },
    });
    try {
      const large = await sharp({
        create: { width: 5_000, height: 5_000, channels: 3, background: '#123' },
      })
        .avif({ effort: 0 })
        .toBuffer();
      const lease = await strict.acquire('sync', NEVER);
      const background = { file: large, declared: undefined };
      const request = { file: photo, declared: undefined, modelInputs: [], background };
      await assert.rejects(lease.decode(request, NEVER), {
        code: 'INVALID_PARAMETER',
        message: 'background: the picture takes too much memory to process',
      });
    } finally {
      await strict.close(0);
    }
  });
});
