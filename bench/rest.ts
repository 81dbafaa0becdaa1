/**
 * What the service adds to the model: a 512x512 PNG over REST against bare `session.run` of the
 * same prepared model with the same threads, alternating in one run.
 *
 * Latency: medians of single requests. Throughput: as many callers as keep the node full, and the
 * processor time of this client taken out of the clock, since it runs on the same cores.
 */
import { availableParallelism } from 'node:os';
import sharp from 'sharp';
import { openBareModel } from './bare-model.ts';
import { writeResults } from './results.ts';
import { median, openService } from './service.ts';

const ROUNDS = 5;
const RUNS_A_ROUND = 4;
const SATURATED_REQUESTS = 40;
const CALLERS = 6;

const photo = await sharp(new URL('../docs/images/demo.jpg', import.meta.url).pathname)
  .resize(512, 512, { fit: 'cover' })
  .png()
  .toBuffer();
const service = await openService();
const bare = await openBareModel();

try {
  for (let i = 0; i < 3; i++) {
    await service.cutOut(photo);
    await bare.run();
  }
  const bareMs: number[] = [];
  const answerMs: number[] = [];
  const totalMs: number[] = [];
  let timing = '';
  for (let round = 0; round < ROUNDS; round++) {
    for (let i = 0; i < RUNS_A_ROUND; i++) bareMs.push(await bare.run());
    for (let i = 0; i < RUNS_A_ROUND; i++) {
      const answer = await service.cutOut(photo);
      answerMs.push(answer.answerMs);
      totalMs.push(answer.totalMs);
      timing = answer.serverTiming;
    }
  }
  const cores = availableParallelism();
  const throughput: { raw: number; adjusted: number; bare: number }[] = [];
  for (let round = 0; round < 3; round++) {
    const bareStart = performance.now();
    for (let i = 0; i < 12; i++) await bare.run();
    const barePerS = 12_000 / (performance.now() - bareStart);
    const cpu = process.cpuUsage();
    const start = performance.now();
    let left = SATURATED_REQUESTS;
    await Promise.all(
      Array.from({ length: CALLERS }, async () => {
        while (left > 0) {
          left -= 1;
          await service.cutOut(photo);
        }
      }),
    );
    const elapsedMs = performance.now() - start;
    const used = process.cpuUsage(cpu);
    const clientMs = (used.user + used.system) / 1000 / cores;
    throughput.push({
      raw: (1000 * SATURATED_REQUESTS) / elapsedMs,
      adjusted: (1000 * SATURATED_REQUESTS) / (elapsedMs - clientMs),
      bare: barePerS,
    });
  }
  const bareMedian = median(bareMs);
  const results = {
    bareRunMs: bareMedian,
    restAnswerMs: median(answerMs),
    restWithDownloadMs: median(totalMs),
    latencyRatio: median(answerMs) / bareMedian,
    latencyWithDownloadRatio: median(totalMs) / bareMedian,
    throughputRatioRaw: median(throughput.map(t => t.raw / t.bare)),
    throughputRatioClientTakenOut: median(throughput.map(t => t.adjusted / t.bare)),
    lastServerTiming: timing,
  };
  writeResults('rest', results);
} finally {
  await bare.close();
  await service.close();
}
