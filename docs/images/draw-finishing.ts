/**
 * Draws docs/images/finishing-*.webp: what fields make of the demo picture, each beside the other
 * values, over a checkerboard, with the shapes of hints on it. It starts a service of its own.
 * Run: `sh bin/node24 docs/images/draw-finishing.ts`, after `matting models fetch`.
 */
import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { MattingClient } from 'matting-client/src/client.ts';
import { readImage } from 'matting-client/src/files.ts';
import type { HintShape, MattingFields } from 'matting-client/src/types.ts';
import sharp from 'sharp';
import { openService } from '../../bench/service.ts';

const HEIGHT = 240;
const PAIR_HEIGHT = 120;
const GAP = 16;
const EDGE = 1;
const SQUARE_PX = 12;

const CROP = { crop: true } as const;
const SQUARE = { ...CROP, scale: '85%', aspect_ratio: '1:1' } as const;
/** Strokes in the pair of pictures. */
const SPOUT: [number, number][] = [
  [452, 150],
  [395, 235],
];
const MIDDLE: [number, number][] = [
  [860, 200],
  [1000, 260],
];
/** The values from left to right, by the name of the file. */
const PICTURES: Readonly<Record<string, readonly MattingFields[]>> = {
  margin: [CROP, { ...CROP, crop_margin: '10%' }, { ...CROP, crop_margin: '5% 40%' }],
  scale: [
    { ...SQUARE, scale: '40%' },
    { ...SQUARE, scale: '70%' },
    { ...SQUARE, scale: '100%' },
  ],
  position: ['0% 0%', 'center', '50% 100%'].map(position => ({
    ...SQUARE,
    scale: '60%',
    position,
  })),
  aspect: [CROP, { ...CROP, aspect_ratio: '1:1' }, { ...CROP, aspect_ratio: '2:1' }],
  shadow: [
    { ...SQUARE, background: 'white' },
    { ...SQUARE, background: 'white', shadow: 'drop' },
    {
      ...SQUARE,
      scale: '75%',
      shadow: 'drop',
      shadow_opacity: 70,
      shadow_blur: 10,
      shadow_offset: '5 6',
    },
  ],
  original: [
    { background: 'original' },
    { ...SQUARE, background: 'original' },
    { ...SQUARE, scale: '45%', background: 'original' },
  ],
};
/** Of the demo picture twice, side by side. */
const HINTS: readonly MattingFields[] = [
  {},
  { erase: [{ box: [690, 70, 1100, 390] }] },
  { erase: [{ line: MIDDLE, radius: 14 }] },
  { erase: [{ line: SPOUT, radius: 18 }] },
];

const service = await openService();
const matting = new MattingClient({ baseUrl: service.baseUrl, apiKey: service.apiKey });
const image = await readImage(path.join(import.meta.dirname, 'demo.jpg'));
const half = await sharp(image).resize(600, 450).toBuffer();
const pair = await sharp({ create: { width: 1200, height: 450, channels: 3, background: '#fff' } })
  .composite([
    { input: half, left: 0, top: 0 },
    { input: half, left: 600, top: 0 },
  ])
  .jpeg({ quality: 92 })
  .toBuffer();

/** A frame with a thin edge, at the height of all. */
async function panelOf(image: Uint8Array, height: number, fields: MattingFields) {
  const { bytes } = await matting.cutOut({ image, ...fields }, { idempotencyKey: randomUUID() });
  const { data: cutOut, info } = await sharp(bytes)
    .resize({ height })
    .png()
    .toBuffer({ resolveWithObject: true });
  const data = await sharp(chequers(info.width, height), {
    raw: { width: info.width, height, channels: 3 },
  })
    .composite([{ input: cutOut }, ...shapesOf(fields, info)])
    .extend({ top: EDGE, bottom: EDGE, left: EDGE, right: EDGE, background: '#888' })
    .png()
    .toBuffer();
  return { data, width: info.width + 2 * EDGE };
}

/** The boxes and strokes of hints. */
function shapesOf({ erase }: MattingFields, { width, height }: sharp.OutputInfo) {
  if (erase === undefined) return [];
  const drawn = [...erase].map(shape => drawingOf(shape)).join('');
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"`;
  const svg = `${head} viewBox="0 0 1200 450" fill="none" stroke="#c42a34">${drawn}</svg>`;
  return [{ input: Buffer.from(svg) }];
}

function drawingOf(shape: HintShape): string {
  if ('box' in shape) {
    const [left, top, right, bottom] = shape.box;
    return `<path d="M${left} ${top}H${right}V${bottom}H${left}Z" stroke-width="6"/>`;
  }
  const points = shape.line.map(([x, y]) => `${x},${y}`).join(' ');
  const look = `stroke-width="${2 * shape.radius}" stroke-opacity="0.55" stroke-linecap="round"`;
  return `<polyline points="${points}" ${look}/>`;
}

function chequers(width: number, height: number): Buffer {
  const board = Buffer.alloc(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const isDark = (Math.floor(x / SQUARE_PX) + Math.floor(y / SQUARE_PX)) % 2 === 1;
      board.fill(isDark ? 214 : 240, (y * width + x) * 3, (y * width + x) * 3 + 3);
    }
  }
  return board;
}

async function draw(
  name: string,
  values: readonly MattingFields[],
  of = image,
  height = HEIGHT,
): Promise<void> {
  const panels = await Promise.all(values.map(fields => panelOf(of, height, fields)));
  const width = panels.reduce((sum, panel) => sum + panel.width, GAP * (panels.length - 1));
  let left = 0;
  const composite = panels.map(panel => {
    const at = { input: panel.data, left, top: 0 };
    left += panel.width + GAP;
    return at;
  });
  await sharp({ create: { width, height: height + 2 * EDGE, channels: 3, background: 'white' } })
    .composite(composite)
    .webp({ quality: 82, effort: 6 })
    .toFile(path.join(import.meta.dirname, `finishing-${name}.webp`));
}

try {
  for (const [name, values] of Object.entries(PICTURES)) await draw(name, values);
  await draw('hints', HINTS, pair, PAIR_HEIGHT);
} finally {
  await service.close();
}
