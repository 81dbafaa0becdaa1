import assert from 'node:assert/strict';
import test from 'ava';
import { TRANSPARENT_FORMATS } from '#contract/formats.ts';
import { Random } from '../../../../test/support/random.ts';
import { createModelInput } from '../../../src/picture/matte/model-input.ts';
import { finishPicture } from '../../../src/picture/worker/finish.ts';
import { type Pixels, paint, readRgba, toPicture } from '../pictures.ts';

const MODEL = { width: 64, height: 64 };

const random = new Random(3);
const noise = () => random.below(256);

const PICTURES: Readonly<Record<string, Pixels>> = {
  'one pixel': paint(1, 1, 3, () => [250, 120, 3]),
  'two by 3000': paint(2, 3000, 3, (x, y) => [x * 200, y & 255, 90]),
  '3000 by two': paint(3000, 2, 3, (x, y) => [x & 255, y * 200, 90]),
  'one colour': paint(300, 200, 3, () => [40, 90, 160]),
  black: paint(90, 70, 3, () => [0, 0, 0]),
  white: paint(90, 70, 3, () => [255, 255, 255]),
  noise: paint(200, 150, 3, () => [noise(), noise(), noise()]),
  'all transparent': paint(80, 60, 4, () => [200, 10, 10, 0]),
};

/** What a model may say of such pictures. */
const MATTES: Readonly<Record<string, Buffer>> = {
  'no subject': Buffer.alloc(64 * 64, 0),
  'all subject': Buffer.alloc(64 * 64, 255),
  unsure: Buffer.from(Array.from({ length: 64 * 64 }, () => noise() >>> 4)),
};

for (const [name, pixels] of Object.entries(PICTURES)) {
  test(`${name}: a model's picture and a whole cut-out, whatever the model says`, async t => {
    const input = createModelInput(await toPicture(pixels), MODEL);
    t.is(input.length, 64 * 64 * 3);
    for (const [said, alpha] of Object.entries(MATTES)) {
      for (const format of TRANSPARENT_FORMATS) {
        const finished = await finishPicture(
          await toPicture(pixels),
          [{ alpha, ...MODEL, role: 'subject' }],
          {
            outputFormat: format,
            resultKind: 'cutout',
            refinement: true,
            foregroundEstimation: true,
          },
        );
        const result = await readRgba(finished.file, format);
        t.deepEqual([result.width, result.height], [pixels.width, pixels.height]);
        requireAlpha(result.data, said, name === 'all transparent', `${said}, ${format}`);
      }
    }
  });
}

/** Alpha is what the model said, not stretched to a range: a matte of doubts stays one. */
function requireAlpha(rgba: Buffer, said: string, isTransparent: boolean, label: string): void {
  const alphas = rgba.filter((_, i) => i % 4 === 3);
  const [least, most] = [Math.min(...alphas), Math.max(...alphas)];
  if (isTransparent || said === 'no subject') assert.deepEqual([least, most], [0, 0], label);
  else if (said === 'all subject') assert.deepEqual([least, most], [255, 255], label);
  else assert.ok(most <= 20, `${label}: ${least} to ${most}`);
}
