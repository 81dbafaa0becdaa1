/** Photos of given sizes, drawn by arithmetic: the same on every machine. */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import sharp from 'sharp';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';

export interface BenchPhoto {
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly file: Buffer;
}

export const PHOTO_SIZES = [
  { name: '0.25 MP', width: 512, height: 512, type: 'png' },
  { name: '2 MP', width: 1920, height: 1080, type: 'jpeg' },
  { name: '12 MP', width: 4000, height: 3000, type: 'jpeg' },
] as const;

const JPEG_QUALITY = 90;

export async function drawPhotos(): Promise<BenchPhoto[]> {
  const photos: BenchPhoto[] = [];
  for (const { name, width, height, type } of PHOTO_SIZES) {
    const raw = { width, height, channels: 3 } as const;
    const picture = sharp(drawCheckPicture(width, height), { raw });
    const encoded = type === 'png' ? picture.png() : picture.jpeg({ quality: JPEG_QUALITY });
    photos.push({ name: `${name} ${type}`, width, height, file: await encoded.toBuffer() });
  }
  return photos;
}

/** Photos in a shape, and the format of their cut-outs. */
export const KINDS = [
  { name: '512 px PNG to PNG', width: 512, height: 512, type: 'png', format: 'png' },
  { name: '2 MP JPEG to PNG', width: 1920, height: 1080, type: 'jpeg', format: 'png' },
  { name: '2 MP JPEG to WebP', width: 1920, height: 1080, type: 'jpeg', format: 'webp' },
  { name: '12 MP JPEG to PNG', width: 4000, height: 3000, type: 'jpeg', format: 'png' },
] as const;
export type Kind = (typeof KINDS)[number];

/** The same photos in every kind, cut to its shape; without a folder the drawn one. */
export async function photosOf(kind: Kind, folder: string | undefined): Promise<Buffer[]> {
  const { width, height, type } = kind;
  if (folder === undefined) {
    const drawn = await drawPhotos();
    return drawn.filter(photo => photo.width === width).map(({ file }) => file);
  }
  const names = readdirSync(folder).filter(name => name.endsWith('.jpg'));
  return await Promise.all(
    names.map(async name => {
      const photo = sharp(path.join(folder, name)).rotate().removeAlpha();
      const sized = photo.resize(width, height, { fit: 'cover' });
      const encoded = type === 'png' ? sized.png() : sized.jpeg({ quality: JPEG_QUALITY });
      return await encoded.toBuffer();
    }),
  );
}
