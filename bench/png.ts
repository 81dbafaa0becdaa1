/**
 * What PNG costs beside libvips' at level 2 with adaptive filters: processor time and bytes of each
 * file named, decoded first; both sides in turn, medians. Arguments: cut-outs.
 */
import sharp from 'sharp';
import { encodePng } from '../inference-node/src/picture/codecs/encode-png.ts';

const ROUNDS = 9;

async function cpuMs(work: () => Promise<Buffer>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

const median = (values: readonly number[]) =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;

const files = process.argv.slice(2);
if (files.length === 0) throw new Error('name files to encode');
for (const file of files) {
  const { data, info } = await sharp(file)
    .ensureAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true });
  const { width, height } = info;
  const libvips = () =>
    sharp(data, { raw: { width, height, channels: 4 } })
      .png({ compressionLevel: 2, adaptiveFiltering: true, palette: false })
      .toBuffer();
  const ours = () => encodePng({ data, width, height, channels: 4 });
  const times: { readonly libvips: number; readonly ours: number }[] = [];
  const [bytes, libvipsBytes] = [(await ours()).length, (await libvips()).length];
  for (let round = 0; round < ROUNDS; round += 1) {
    times.push({ libvips: await cpuMs(libvips), ours: await cpuMs(ours) });
  }
  const [oursMs, libvipsMs] = [
    median(times.map(time => time.ours)),
    median(times.map(time => time.libvips)),
  ];
  console.log(
    `${file}: ${width} x ${height}, ${oursMs.toFixed(1)} ms, ${(oursMs / libvipsMs).toFixed(2)} ` +
      `of libvips' time, ${(bytes / libvipsBytes).toFixed(3)} of its ${libvipsBytes} bytes`,
  );
}
