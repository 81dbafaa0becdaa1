/**
 * The processor time of a picture by ONNX Runtime and by what `models fetch` chooses: the whole
 * service as a caller sees it, both side by side, in turns. One engine of one thread each.
 *
 * Usage: runtimes.ts [--plans standard,fast] [--rounds 3] FOLDER with NAME.jpg
 */
import { globSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import sharp from 'sharp';
import { writeResults } from './results.ts';
import { openService } from './service.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plans: { type: 'string', default: 'standard,fast' },
    rounds: { type: 'string', default: '3' },
  },
});
const PHOTOS_MAX = 4;
/** Width, height. */
const SIZES = [
  [512, 512],
  [1920, 1080],
] as const;
const RUNTIMES = ['onnxruntime', 'auto'] as const;

const files = positionals.flatMap(folder => globSync(path.join(folder, '*.jpg'))).sort();
if (files.length === 0) throw new Error('name a folder with photos, NAME.jpg');

for (const plan of values.plans.split(',')) {
  const common = { MATTING_QUALITY: plan, MATTING_ENGINES: '1', MATTING_ENGINE_THREADS: '1' };
  const sides = [];
  for (const runtime of RUNTIMES) {
    sides.push(await openService({ ...common, MATTING_CPU_RUNTIME: runtime }));
  }
  const results: Record<string, unknown> = {};
  for (const [width, height] of SIZES) {
    const photos = await Promise.all(
      files.slice(0, PHOTOS_MAX).map(file => sharp(file).resize(width, height).png().toBuffer()),
    );
    const cpuMs = sides.map(() => 0);
    for (let round = 0; round <= Number(values.rounds); round++) {
      for (const photo of photos) {
        for (const [index, side] of sides.entries()) {
          const before = side.allCpuMs();
          await side.cutOut(photo);
          // The first round warms up.
          if (round > 0) cpuMs[index] = (cpuMs[index] ?? 0) + side.allCpuMs() - before;
        }
      }
    }
    const pictures = photos.length * Number(values.rounds);
    const [plain = 0, chosen = 0] = cpuMs.map(sum => Math.round(sum / pictures));
    results[`${width}x${height}`] = { onnxruntimeMs: plain, autoMs: chosen, ratio: chosen / plain };
  }
  for (const side of sides) await side.close();
  writeResults(`runtimes of ${plan}`, results);
}
