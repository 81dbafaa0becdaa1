/** Photos of a load, each of a width of its own. */
import assert from 'node:assert/strict';
import path from 'node:path';
import sharp from 'sharp';
import type { Picture } from '../fleet/steady-load.ts';
import { ROOT } from '../running-service.ts';

/** The smallest picture is so wide, pixels. */
const WIDTH_MIN = 200;
const WIDTHS = 150;

/** The photo at a width of its own: its cut-out's size tells whose it is. */
export async function photoOf(number: number): Promise<Picture> {
  const resized = sharp(path.join(ROOT, 'docs/images/demo.jpg'))
    .resize({ width: WIDTH_MIN + (number % WIDTHS) })
    .jpeg();
  const { data, info } = await resized.toBuffer({ resolveWithObject: true });
  return {
    file: data,
    requireCutOut: async cutOut => {
      const { width, height, hasAlpha } = await sharp(cutOut).metadata();
      assert.deepEqual([width, height, hasAlpha], [info.width, info.height, true]);
    },
  };
}
