/** A process of interface.ts: runs in flight on one session, its figures as JSON. */
// Must come before the imports that load ONNX Runtime.
import '../../inference-node/serving/engine/child/runtime-redirect.ts';
import { preparedIo } from '../../inference-node/serving/engine/child/graph-io.ts';
import { openSession } from '../../inference-node/serving/engine/child/loaded-model.ts';
import { OnnxCSession } from '../../inference-node/serving/engine/child/onnx-c-session.ts';
import type { SessionSpec } from '../../inference-node/serving/engine/engine-protocol.ts';
import type { PreparedModel } from '../../inference-node/serving/models/prepared-model.ts';
import { drawCheckPicture } from '../../inference-node/serving/prepared/answer-check.ts';
import { median } from '../service.ts';

export interface InFlight {
  readonly model: PreparedModel;
  readonly cInterface: SessionSpec['cInterface'];
  readonly inFlight: number;
  readonly each: number;
}

const WARM_UP_RUNS = 3;

const { model, cInterface, inFlight, each } = JSON.parse(process.argv.at(-1) ?? '') as InFlight;
const alike = { sharesCores: false, allowCpuNodes: true, intraOpThreads: 1 };
const spec = { ...model, ...alike, cInterface };
const first = await openSession(spec, model.path);
const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);

async function warmed(session: typeof first) {
  const io = preparedIo(
    spec,
    session.inputs.map(({ name }) => name),
  );
  const run = async () =>
    io.answer(await session.run({ [io.inputName]: io.input(rgb) }, io.outputNames));
  for (let count = 0; count < WARM_UP_RUNS; count++) await run();
  return run;
}

const others = Array.from({ length: inFlight - 1 }, () => {
  if (first instanceof OnnxCSession) return first.another();
  throw new Error('the binding runs one at a time');
});
const runs = await Promise.all([first, ...others].map(warmed));
const runMs: number[] = [];
const cpu = process.cpuUsage();
const fromMs = performance.now();
const keepRunning = async (run: (typeof runs)[number]) => {
  while (performance.now() < fromMs + 1000 * each) {
    const startMs = performance.now();
    await run();
    runMs.push(performance.now() - startMs);
  }
};
await Promise.all(runs.map(keepRunning));
const imagesPerS = (1000 * runMs.length) / (performance.now() - fromMs);
const { user, system } = process.cpuUsage(cpu);
const engineCpuMsAnImage = (user + system) / 1000 / runMs.length;
console.log(JSON.stringify({ imagesPerS, p50Ms: median(runMs), engineCpuMsAnImage }));
// The runtime's threads may outlive the program.
process.exit();
