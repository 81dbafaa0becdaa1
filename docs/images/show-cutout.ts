/**
 * Draws docs/images/demo-cutout.png, the demo picture beside its cut-out over a checkerboard, and
 * the cut-out that the account area shows strangers, as WebP with its transparency.
 * Usage: make demo OUT=cutout.png && sh bin/node24 docs/images/show-cutout.ts cutout.png
 */
import path from 'node:path';
import sharp from 'sharp';

const WIDTH = 600;
const HEIGHT = 450;
const SQUARE_PX = 15;

const cutout = process.argv[2];
if (cutout === undefined) throw new Error('usage: show-cutout.ts <cutout.png>');

await sharp(cutout)
  .resize(900, 675)
  .webp({ quality: 82, alphaQuality: 90, effort: 6 })
  .toFile(path.join(import.meta.dirname, '../../control-plane/portal/assets/demo-cutout.webp'));

const board = Buffer.alloc(WIDTH * HEIGHT * 3);
for (let y = 0; y < HEIGHT; y++) {
  for (let x = 0; x < WIDTH; x++) {
    const dark = (Math.floor(x / SQUARE_PX) + Math.floor(y / SQUARE_PX)) % 2 === 1;
    board.fill(dark ? 204 : 245, (y * WIDTH + x) * 3, (y * WIDTH + x) * 3 + 3);
  }
}
const half = (file: string) => sharp(file).resize(WIDTH, HEIGHT).png().toBuffer();
const right = await sharp(board, { raw: { width: WIDTH, height: HEIGHT, channels: 3 } })
  .composite([{ input: await half(cutout) }])
  .png()
  .toBuffer();
await sharp({ create: { width: 2 * WIDTH, height: HEIGHT, channels: 3, background: 'white' } })
  .composite([
    { input: await half(path.join(import.meta.dirname, 'demo.jpg')), left: 0, top: 0 },
    { input: right, left: WIDTH, top: 0 },
  ])
  .png({ palette: true, quality: 90, effort: 10 })
  .toFile(path.join(import.meta.dirname, 'demo-cutout.png'));
