/** Photos of given sizes, drawn by arithmetic: the same on every machine. */
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
