/** Samples the cut-out of docs/images/demo.jpg where subject and background are clear. */
import assert from 'node:assert/strict';
import sharp from 'sharp';

type Points = readonly (readonly [x: number, y: number])[];

const TEAPOT: Points = [
  [560, 420],
  [560, 620],
  [880, 360],
  [240, 440],
];
/** The wall, a light, the table, the hole of the handle. */
const BACKGROUND: Points = [
  [60, 60],
  [1020, 160],
  [150, 800],
  [310, 440],
];

/** @param more points that only some models get right */
export async function requireTeapot(
  png: Uint8Array,
  more: { readonly teapot: Points; readonly background: Points } = { teapot: [], background: [] },
): Promise<void> {
  const { data, info } = await sharp(png).raw().toBuffer({ resolveWithObject: true });
  assert.deepEqual([info.width, info.height, info.channels], [1200, 900, 4]);
  const alphaAt = ([x, y]: readonly [number, number]) =>
    data.readUInt8((y * info.width + x) * 4 + 3);
  for (const at of [...TEAPOT, ...more.teapot])
    assert.ok(alphaAt(at) > 240, `alpha ${alphaAt(at)} at ${at}`);
  for (const at of [...BACKGROUND, ...more.background])
    assert.ok(alphaAt(at) < 15, `alpha ${alphaAt(at)} at ${at}`);
}
