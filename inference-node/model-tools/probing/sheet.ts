/** Draws for a person cut-outs by several mattes on a strong colour, side by side. */
import { encodePixels } from '@matting/serving/picture/codecs/encode.ts';
import type { RoleMatte } from '@matting/serving/picture/matte/merge-mattes.ts';
import { createModelInput } from '@matting/serving/picture/matte/model-input.ts';
import { stretchMatte } from '@matting/serving/picture/matte/refine.ts';
import { type RgbaPicture, viewAsBytes } from '@matting/serving/picture/rgba-picture.ts';
import { finishPicture } from '@matting/serving/picture/worker/finish.ts';

export interface Matte {
  readonly alpha: Uint8Array;
  readonly width: number;
  readonly height: number;
}

const TILE_PX = 320;
const GAP_PX = 8;
/** No subject has this colour, and few backgrounds have it. */
const BEHIND = [0, 200, 60] as const;
const WHITE = 0xffffffff;

/** The picture, then a cut-out by the mattes of each plan. @returns PNG */
export async function createSheet(
  picture: RgbaPicture,
  plans: readonly (readonly RoleMatte[])[],
): Promise<Buffer> {
  const scale = TILE_PX / Math.max(picture.width, picture.height);
  const side = (pixels: number) => Math.max(1, Math.round(pixels * scale));
  const tile = { width: side(picture.width), height: side(picture.height) };
  const rgb = createModelInput(picture, tile);
  const width = (1 + plans.length) * (tile.width + GAP_PX) - GAP_PX;
  const sheet = new Uint32Array(width * tile.height).fill(WHITE);
  const small = { ...tile, rgba: new Uint32Array(tile.width * tile.height), translucent: false };
  const alphas = plans.map(mattes => stretchMatte(mattes, small));
  for (const [index, alpha] of [undefined, ...alphas].entries()) {
    const left = index * (tile.width + GAP_PX);
    for (let i = 0; i < tile.width * tile.height; i++) {
      const opacity = (alpha?.[i] ?? 255) / 255;
      const channel = (of: 0 | 1 | 2) =>
        Math.round((rgb[3 * i + of] ?? 0) * opacity + BEHIND[of] * (1 - opacity));
      const at = Math.floor(i / tile.width) * width + left + (i % tile.width);
      sheet[at] = channel(0) | (channel(1) << 8) | (channel(2) << 16) | 0xff000000;
    }
  }
  const data = viewAsBytes(sheet);
  return await encodePixels({ data, width, height: tile.height, channels: 4 }, 'png');
}

/** Cuts the picture out as a node does. @returns PNG */
export async function createCutout(
  picture: RgbaPicture,
  mattes: readonly RoleMatte[],
): Promise<Buffer> {
  const copy = { ...picture, rgba: picture.rgba.slice() };
  const { file } = await finishPicture(copy, mattes, {
    ...{ refinement: true, foregroundEstimation: true },
    ...{ outputFormat: 'png', resultKind: 'cutout' },
  });
  return file;
}
