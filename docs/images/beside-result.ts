/** Draws a picture beside its cut-out over a checkerboard, as one PNG of few colours. */
import sharp from 'sharp';

const SQUARE_PX = 15;

/** @param width of each half, as `height` */
export async function besideResult(
  picture: string | Buffer,
  cutout: string | Buffer,
  to: string,
  { width, height } = { width: 320, height: 240 },
): Promise<void> {
  const board = Buffer.alloc(width * height * 3);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const dark = (Math.floor(x / SQUARE_PX) + Math.floor(y / SQUARE_PX)) % 2 === 1;
      board.fill(dark ? 204 : 245, (y * width + x) * 3, (y * width + x) * 3 + 3);
    }
  }
  const half = (file: string | Buffer) => sharp(file).resize(width, height).png().toBuffer();
  const right = await sharp(board, { raw: { width, height, channels: 3 } })
    .composite([{ input: await half(cutout) }])
    .png()
    .toBuffer();
  await sharp({ create: { width: 2 * width, height, channels: 3, background: 'white' } })
    .composite([
      { input: await half(picture), left: 0, top: 0 },
      { input: right, left: width, top: 0 },
    ])
    .png({ palette: true, quality: 100, effort: 10 })
    .toFile(to);
}
