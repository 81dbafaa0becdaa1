/** A photo with its reference at a smaller size: judging constants needs no more. */
import sharp from 'sharp';
import type { Photo } from './photos.ts';

/** @param pixelsMax a photo of no more is returned as it is. */
export async function scaleDown(photo: Photo, pixelsMax: number): Promise<Photo> {
  const { rgba, width, height, translucent } = photo.picture;
  const scale = Math.sqrt(pixelsMax / (width * height));
  if (scale >= 1) return photo;
  const size = { width: Math.round(width * scale), height: Math.round(height * scale) };
  const shrink = async (data: Uint8Array, channels: 1 | 3 | 4) => {
    const image = sharp(data, { raw: { width, height, channels } });
    const resized = image.resize({ ...size, fit: 'fill', kernel: 'mitchell' });
    const plane = channels === 1 ? resized.extractChannel(0) : resized;
    return new Uint8Array(await plane.raw().toBuffer());
  };
  const bytes = new Uint8Array(rgba.buffer, rgba.byteOffset, rgba.byteLength);
  const small = await shrink(bytes, 4);
  return {
    name: photo.name,
    picture: { rgba: new Uint32Array(small.buffer), ...size, translucent },
    alpha: await shrink(photo.alpha, 1),
    foreground: photo.foreground && (await shrink(photo.foreground, 3)),
  };
}
