/** TEST_PICTURE_CPU_MS limits decoding and finishing. */
import * as real from '../picture/pool/open-picture-pool.ts';
import type { PicturePool } from '../picture/pool/picture-pool.ts';

const { TEST_PICTURE_CPU_MS: cpuMs } = process.env;

export function openPicturePool(options: real.PicturePoolOptions): Promise<PicturePool> {
  if (cpuMs === undefined) return real.openPicturePool(options);
  const limits = { cpuMs: { base: Number(cpuMs), perMegapixel: 0 } };
  return real.openPicturePool({ ...options, limits });
}
