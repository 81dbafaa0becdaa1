/** A node's resident memory over 50 photos of 12 megapixels: the sum over all its processes. */
import sharp from 'sharp';
import { at } from '../test/support/at.ts';
import { writeResults } from './results.ts';
import { openService } from './service.ts';

const PHOTOS = 50;
const MEGABYTE = 1e6;

const photo = await sharp(new URL('../docs/images/demo.jpg', import.meta.url).pathname)
  .resize(4000, 3000)
  .jpeg({ quality: 90 })
  .toBuffer();
const service = await openService();
try {
  const rssMb: number[] = [];
  let pssMb = 0;
  for (let i = 1; i <= PHOTOS; i++) {
    await service.cutOut(photo);
    const memory = service.nodeMemory();
    rssMb.push(memory.rss / MEGABYTE);
    pssMb = memory.pss / MEGABYTE;
    if (i % 10 === 0) console.log(`${i}: ${at(rssMb, i - 1).toFixed(0)} MB resident`);
  }
  writeResults('memory', {
    rssMbAfter20: rssMb[19],
    rssMbAfter50: rssMb[49],
    rssMbPeak: Math.max(...rssMb),
    growthRatio20To50: at(rssMb, 49) / at(rssMb, 19),
    pssMbAfter50: pssMb,
  });
} finally {
  await service.close();
}
