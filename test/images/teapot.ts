/** The cut-out of docs/images/demo.jpg, looked at where it is clear what is what. */
import assert from 'node:assert/strict';
import sharp from 'sharp';

const TEAPOT = [
  [560, 420],
  [560, 620],
  [880, 360],
  [240, 440],
] as const;
/** The wall, a light, the table, the hole of the handle. */
const BACKGROUND = [
  [60, 60],
  [1020, 160],
  [150, 800],
  [310, 440],
] as const;

export async function requireTeapot(png: Uint8Array): Promise<void> {
  const { data, info } = await sharp(png).raw().toBuffer({ resolveWithObject: true });
  assert.deepEqual([info.width, info.height, info.channels], [1200, 900, 4]);
  const alphaAt = ([x, y]: readonly [number, number]) =>
    data.readUInt8((y * info.width + x) * 4 + 3);
  for (const at of TEAPOT) assert.ok(alphaAt(at) > 240, `alpha ${alphaAt(at)} at ${at}`);
  for (const at of BACKGROUND) assert.ok(alphaAt(at) < 15, `alpha ${alphaAt(at)} at ${at}`);
}
