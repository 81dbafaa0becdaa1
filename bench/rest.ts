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
const SATURATED_ROUNDS = 5;
const SATURATED_BARE_RUNS = 6;
const SATURATED_REQUESTS = 20;
const CALLERS = 6;

const photo = await sharp(new URL('../docs/images/demo.jpg', import.meta.url).pathname)
  .resize(512, 512, { fit: 'cover' })
  .png()
  .toBuffer();
const service = await openService();
const bare = await openBareModel();

async function barePerS(): Promise<number> {
  const startedMs = performance.now();
  for (let i = 0; i < SATURATED_BARE_RUNS; i++) await bare.run();
  return (1000 * SATURATED_BARE_RUNS) / (performance.now() - startedMs);
}

async function servicePerS(): Promise<{ raw: number; adjusted: number }> {
  const cpu = process.cpuUsage();
  const startedMs = performance.now();
  let left = SATURATED_REQUESTS;
  const caller = async () => {
    while (left-- > 0) await service.cutOut(photo);
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  const elapsedMs = performance.now() - startedMs;
  const used = process.cpuUsage(cpu);
  const clientMs = (used.user + used.system) / 1000 / availableParallelism();
  const perS = (ms: number) => (1000 * SATURATED_REQUESTS) / ms;
  return { raw: perS(elapsedMs), adjusted: perS(elapsedMs - clientMs) };
}

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
  const throughput = [];
  let bareBefore = await barePerS();
  for (let round = 0; round < SATURATED_ROUNDS; round++) {
    const { raw, adjusted } = await servicePerS();
    const bareAfter = await barePerS();
    // A machine that grows slower meanwhile does so for both.
    const perS = (bareBefore + bareAfter) / 2;
    throughput.push({ raw: raw / perS, adjusted: adjusted / perS });
    bareBefore = bareAfter;
  }
  const bareMedian = median(bareMs);
  const results = {
    bareRunMs: bareMedian,
    restAnswerMs: median(answerMs),
    restWithDownloadMs: median(totalMs),
    latencyRatio: median(answerMs) / bareMedian,
    latencyWithDownloadRatio: median(totalMs) / bareMedian,
    throughputRatioRaw: median(throughput.map(({ raw }) => raw)),
    throughputRatioClientTakenOut: median(throughput.map(({ adjusted }) => adjusted)),
    lastServerTiming: timing,
  };
  writeResults('rest', results);
} finally {
  await bare.close();
  await service.close();
}
