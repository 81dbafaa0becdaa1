/** A page to look at: each photo, its plain and its refined cut-out over a colour no photo has. */
import sharp, { type OverlayOptions } from 'sharp';
import type { RgbaPicture } from '../../inference-node/src/picture/rgba-picture.ts';

const CELL_PX = 420;
const GROUND = { r: 255, g: 0, b: 200 };
const PHOTOS_A_ROW = 2;

export class ContactSheet {
  readonly #cells: Buffer[] = [];

  /** @param cutouts RGBA pictures, straight alpha. */
  async add(photo: RgbaPicture, cutouts: readonly RgbaPicture[]): Promise<void> {
    for (const picture of [photo, ...cutouts]) {
      const { rgba, width, height } = picture;
      const bytes = Buffer.from(rgba.buffer, rgba.byteOffset, rgba.byteLength);
      // Over the ground first: shrinking an alpha and its colour apart would mix what is hidden.
      const flat = await sharp(bytes, { raw: { width, height, channels: 4 } })
        .flatten({ background: GROUND })
        .png({ compressionLevel: 1 })
        .toBuffer();
      const fit = { fit: 'contain', background: '#202020' } as const;
      this.#cells.push(await sharp(flat).resize(CELL_PX, CELL_PX, fit).png().toBuffer());
    }
  }

  async write(file: string): Promise<void> {
    const columns = 3 * PHOTOS_A_ROW;
    const rows = Math.ceil(this.#cells.length / columns);
    const overlays: OverlayOptions[] = this.#cells.map((input, index) => ({
      input,
      left: (index % columns) * CELL_PX,
      top: Math.floor(index / columns) * CELL_PX,
    }));
    const size = { width: columns * CELL_PX, height: rows * CELL_PX };
    await sharp({ create: { ...size, channels: 3, background: '#202020' } })
      .composite(overlays)
      .png()
      .toFile(file);
  }
}
