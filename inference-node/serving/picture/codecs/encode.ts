/**
 * Encodes pixels as the contract's "Output" says, 100 megapixels well within a minute. Figures:
 * processor time, 2 cores of an AMD EPYC, a cut-out with soft edges; memory above an idle worker's.
 *
 *              0.25 MP          2 MP             12 MP            100 MP
 *   png        13 ms 205 KB     81 ms 1.3 MB     0.5 s  6.2 MB    4.7 s, peak 0.6 GB
 *   webp       64 ms  26 KB    252 ms 144 KB     0.9 s  1.1 MB   12   s, peak 2.4 GB
 *   avif       90 ms  28 KB    200 ms 209 KB     1.6 s  0.8 MB   13.5 s, peak 1.4 GB
 *   jxl        34 ms  22 KB    199 ms 114 KB     1.4 s  0.7 MB   23   s, peak 6.9 GB (cjxl)
 *   jpeg                                        0.1 s  0.7 MB    1.6 s, peak 1.7 GB
 *   zip                                         0.6 s  1.1 MB    4.3 s, peak 1.8 GB
 *
 * PNG's times are libvips': ours takes 0.3 to 0.5 of them, with fewer bytes. AVIF at effort 1 takes
 * two to three times as long as at 0 for files 10 to 25 % smaller, at 2 four times for no more.
 */

import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { RawPixels } from '../rgba-picture.ts';
import { encodeJxl } from './codec-jxl.ts';
import { encodeAvif, encodeAvifPlane } from './encode-avif.ts';
import { encodeJpeg } from './encode-jpeg.ts';
import { encodePng } from './encode-png.ts';
import { encodeWebp } from './encode-webp.ts';
import { encodeZip } from './encode-zip.ts';

/** @param quality of JPEG, WebP and AVIF with colours; undefined: the format's own */
export async function encodePixels(
  pixels: RawPixels,
  format: OutputFormat,
  quality?: number,
): Promise<Buffer> {
  switch (format) {
    case 'png':
      return await encodePng(pixels);
    case 'webp':
      return await encodeWebp(pixels, quality);
    case 'avif':
      return await (pixels.channels === 1 ? encodeAvifPlane(pixels) : encodeAvif(pixels, quality));
    case 'jxl':
      return await encodeJxl(pixels);
    case 'jpeg':
      return await encodeJpeg(pixels, quality);
    case 'zip':
      return await encodeZip(pixels);
  }
}
