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
const GAP = 16;
const EDGE = 1;
const SQUARE_PX = 12;

const CROP = { crop: true } as const;
const SQUARE = { ...CROP, scale: '85%', aspect_ratio: '1:1' } as const;
/** Ends of strokes, in pixels of the demo picture. */
const [SHADOW, SPOUT] = ['760,600 1000,575', '905,300 790,470'].map(line =>
  line.split(' ').map(point => point.split(',').map(Number) as [number, number]),
) as [[number, number][], [number, number][]];
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
  hints: [
    {},
    { subject_box: '350 200 960 720' },
    { keep: [{ line: SHADOW, radius: 14 }] },
    { erase: [{ line: SPOUT, radius: 36 }] },
  ],
};

const service = await openService();
const matting = new MattingClient({ baseUrl: service.baseUrl, apiKey: service.apiKey });
const image = await readImage(path.join(import.meta.dirname, 'demo.jpg'));

/** A frame with a thin edge, at the height of all. */
async function panelOf(fields: MattingFields): Promise<{ data: Buffer; width: number }> {
  const { bytes } = await matting.cutOut({ image, ...fields }, { idempotencyKey: randomUUID() });
  const { data: cutOut, info } = await sharp(bytes)
    .resize({ height: HEIGHT })
    .png()
    .toBuffer({ resolveWithObject: true });
  const data = await sharp(chequers(info.width, HEIGHT), {
    raw: { width: info.width, height: HEIGHT, channels: 3 },
  })
    .composite([{ input: cutOut }, ...shapesOf(fields, info.width)])
    .extend({ top: EDGE, bottom: EDGE, left: EDGE, right: EDGE, background: '#888' })
    .png()
    .toBuffer();
  return { data, width: info.width + 2 * EDGE };
}

/** The box and the strokes of hints, at the width of the panel. */
function shapesOf({ subject_box: box = '', keep, erase }: MattingFields, width: number) {
  const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = box.split(' ').map(Number);
  const drawn = [
    `<path d="M${x1} ${y1}H${x2}V${y2}H${x1}Z" stroke="#3a4fd0" stroke-width="8"/>`,
    ...[...(keep ?? [])].map(shape => strokeOf(shape, '#0a8a4e')),
    ...[...(erase ?? [])].map(shape => strokeOf(shape, '#c42a34')),
  ];
  if (box === '') drawn.shift();
  if (drawn.length === 0) return [];
  const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${HEIGHT}"`;
  const svg = `${head} viewBox="0 0 1200 900" fill="none">${drawn.join('')}</svg>`;
  return [{ input: Buffer.from(svg) }];
}

function strokeOf(shape: HintShape, colour: string): string {
  if (!('line' in shape)) throw new Error('these pictures have lines alone');
  const points = shape.line.map(([x, y]) => `${x},${y}`).join(' ');
  const width = 2 * shape.radius;
  return `<polyline points="${points}" stroke="${colour}" stroke-width="${width}" stroke-opacity="0.55" stroke-linecap="round"/>`;
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

async function draw(name: string, values: readonly MattingFields[]): Promise<void> {
  const panels = await Promise.all(values.map(panelOf));
  const width = panels.reduce((sum, panel) => sum + panel.width, GAP * (panels.length - 1));
  let left = 0;
  const composite = panels.map(panel => {
    const at = { input: panel.data, left, top: 0 };
    left += panel.width + GAP;
    return at;
  });
  await sharp({ create: { width, height: HEIGHT + 2 * EDGE, channels: 3, background: 'white' } })
    .composite(composite)
    .webp({ quality: 82, effort: 6 })
    .toFile(path.join(import.meta.dirname, `finishing-${name}.webp`));
}

try {
  for (const [name, values] of Object.entries(PICTURES)) await draw(name, values);
} finally {
  await service.close();
}
