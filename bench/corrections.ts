/**
 * Measures corrections through the service beside the job that they correct, in turns: one whose
 * hint the matte follows, and one whose hint a model must look for. Processor time of the engines
 * and of everything else, medians in ms.
 *
 *   sh bin/node24 bench/corrections.ts [rounds]
 */
import { MattingClient } from 'matting-client/src/client.ts';
import sharp from 'sharp';
import { writeResults } from './results.ts';
import { median, openService } from './service.ts';

const ROUNDS = Number(process.argv[2] ?? 15);
const WARM_UP_ROUNDS = 2;
const NONE = { engines: 0, rest: 0 };

const service = await openService();
const client = new MattingClient(service);

async function spent(job: () => Promise<unknown>) {
  const before = service.times();
  await job();
  const sums = { ...NONE };
  for (const [pid, { role, cpuMs }] of service.times()) {
    sums[role === 'engines' ? role : 'rest'] += cpuMs - (before.get(pid)?.cpuMs ?? 0);
  }
  return sums;
}

async function measure(width: number) {
  const demo = sharp(new URL('../docs/images/demo.jpg', import.meta.url).pathname);
  const image = await demo.resize(width).jpeg({ quality: 90 }).toBuffer();
  const at = (x: number, y: number) => [x * width, y * width] as const;
  const followed = [{ line: [at(0.35, 0.35), at(0.5, 0.45)], radius: width / 50 }];
  const whole = { box: [0.25 * width, 0.12 * width, 0.85 * width, 0.65 * width] as const };
  let [first, without] = ['', ''];
  const kinds = {
    plain: () => client.run({ image }),
    correctable: async () => {
      first = (await client.run({ image, correctable: true })).job_id;
    },
    erasedByBox: async () => {
      without = (await client.correct(first, { erase: [whole] })).job_id;
    },
    followed: () => client.correct(first, { keep: followed }),
    lookedFor: () => client.correct(without, { keep: [whole] }),
  };
  const all = Object.entries(kinds).map(([kind, run]) => ({ kind, run, taken: [NONE] }));
  for (let round = -WARM_UP_ROUNDS; round < ROUNDS; round += 1) {
    for (const { run, taken } of all) {
      const sums = await spent(run);
      if (round >= 0) taken.push(sums);
    }
  }
  const results = all.map(({ kind, taken }) => {
    const of = (role: keyof typeof NONE) => median(taken.slice(1).map(sums => sums[role]));
    return [kind, { engines: of('engines'), rest: of('rest') }] as const;
  });
  return Object.fromEntries(results);
}

try {
  for (const [name, width] of [
    ['512-px', 512],
    ['2-MP', 1640],
    ['12-MP', 4000],
  ] as const) {
    writeResults(`corrections-${name}`, await measure(width));
  }
} finally {
  await service.close();
}
