/**
 * Measures a job's cost beside pixels and models: processor time of control plane and of the node's
 * main process, a synchronous submission of 2 MP JPEG in Base64 each, its cut-out stored as PNG and
 * downloaded. Picture workers, engines and this client do not count.
 *
 * node bench/main-processes.ts [--jobs 200] [--callers 4]
 */
import { parseArgs } from 'node:util';
import { at } from '../test/support/at.ts';
import { drawPhotos } from './photos.ts';
import { writeResults } from './results.ts';
import { openService } from './service.ts';

const { values } = parseArgs({
  options: {
    jobs: { type: 'string', default: '200' },
    callers: { type: 'string', default: '4' },
  },
});
const jobs = Number(values.jobs);
const callers = Number(values.callers);
/** Code that runs for the first time is compiled, and compiled anew once it runs often. */
const WARM_UP_JOBS = 40;

const photo = at(await drawPhotos(), 1);
const service = await openService();

/** `callers` at a time. */
async function cost(count: number) {
  const before = service.mainCpuMs();
  const startedMs = performance.now();
  let left = count;
  let resultBytes = 0;
  const each = Array.from({ length: callers }, async () => {
    while (left-- > 0) resultBytes = (await service.cutOut(photo.file)).file.length;
  });
  await Promise.all(each);
  const after = service.mainCpuMs();
  const controlPlaneMs = (after.controlPlane - before.controlPlane) / count;
  const nodeMs = (after.node - before.node) / count;
  const seconds = (performance.now() - startedMs) / 1000;
  const cpuMs = controlPlaneMs + nodeMs;
  return { cpuMs, controlPlaneMs, nodeMs, jobsPerS: count / seconds, resultBytes };
}

try {
  await cost(WARM_UP_JOBS);
  const a = { photo: photo.name, photoBytes: photo.file.length, jobs, callers };
  writeResults('main-processes', { ...a, ...(await cost(jobs)) });
} finally {
  await service.close();
}
