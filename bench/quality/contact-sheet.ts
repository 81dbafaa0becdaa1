/**
 * A page to look at: each photo, its plain and its refined cut-out, each over three colours. Holes
 * show over the first, which no photo has, fringes of a bright ground over the dark one, of a dark
 * one over the bright.
 */
import sharp, { type OverlayOptions } from 'sharp';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';

const CELL_PX = 320;
const GROUNDS = ['#ff00c8', '#101418', '#f4f4f0'] as const;

export class ContactSheet {
  readonly #rows: Buffer[][] = [];

  /** @param cutouts RGBA pictures, straight alpha. */
  async add(photo: RgbaPicture, cutouts: readonly RgbaPicture[]): Promise<void> {
    const row = [await cellOf(photo, GROUNDS[0])];
    for (const cutout of cutouts) {
      for (const ground of GROUNDS) row.push(await cellOf(cutout, ground));
    }
    this.#rows.push(row);
  }

  async write(file: string): Promise<void> {
    const overlays: OverlayOptions[] = this.#rows.flatMap((cells, row) =>
      cells.map((input, column) => ({ input, left: column * CELL_PX, top: row * CELL_PX })),
    );
    const width = CELL_PX * Math.max(...this.#rows.map(cells => cells.length));
    const size = { width, height: CELL_PX * this.#rows.length };
    await sharp({ create: { ...size, channels: 3, background: '#202020' } })
      .composite(overlays)
      .png()
      .toFile(file);
  }
}

/** Over the ground first: shrinking an alpha and its colour apart would mix what is hidden. */
async function cellOf(picture: RgbaPicture, background: string): Promise<Buffer> {
  const { rgba, width, height } = picture;
  const bytes = Buffer.from(rgba.buffer, rgba.byteOffset, rgba.byteLength);
  const flat = await sharp(bytes, { raw: { width, height, channels: 4 } })
    .flatten({ background })
    .png({ compressionLevel: 1 })
    .toBuffer();
  const fit = { fit: 'contain', background: '#202020' } as const;
  return await sharp(flat).resize(CELL_PX, CELL_PX, fit).png().toBuffer();
}
