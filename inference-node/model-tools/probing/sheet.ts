/** Draws for a person cut-outs by several mattes on a strong colour, side by side. */
import {
  alphaOfSize,
  encodePng,
  fitToInput,
  type RgbaPicture,
  type RoleMatte,
} from '@matting/serving/picture/in-process.ts';

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
  const { rgb } = fitToInput(picture, tile);
  const width = (1 + plans.length) * (tile.width + GAP_PX) - GAP_PX;
  const sheet = new Uint32Array(width * tile.height).fill(WHITE);
  const alphas = plans.map(mattes => alphaOfSize(mattes, tile));
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
  return await encodePng(sheet, { width, height: tile.height });
}
