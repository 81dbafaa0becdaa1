/**
 * Preloaded into engines, which then run on the CPU. Lines of the file TEST_GPU_FAULTS make GPUs
 * fail, each with a kind, the GPU and CUDA's message: `load` fails loads, `run` runs, `picture`
 * runs after a warm-up, `model` loads of models but not of the small graph. The file TEST_GPU_LOADS
 * gets `loading` and `ended` for each load.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import { InferenceSession } from '../engine/child/onnx-runtime.ts';

const device = process.env.CUDA_VISIBLE_DEVICES ?? '';
const { TEST_GPU_FAULTS: faults, TEST_GPU_LOADS: loads } = process.env;

function faultOf(kind: 'load' | 'model' | 'run' | 'picture'): string | undefined {
  if (faults === undefined) return undefined;
  const lines = readFileSync(faults, 'utf8').split('\n');
  return lines
    .find(line => line.startsWith(`${kind} ${device} `))
    ?.slice(`${kind} ${device} `.length);
}

function note(what: string): void {
  if (loads !== undefined) appendFileSync(loads, `${what} ${device}\n`);
}

const { create } = InferenceSession;
InferenceSession.create = async (...[source, options]: unknown[]) => {
  note('loading');
  // Time for another engine to begin, if nothing prevents it.
  await new Promise(resolve => setTimeout(resolve, 50));
  const fault = faultOf('load') ?? (typeof source === 'string' ? faultOf('model') : undefined);
  note('ended');
  if (fault !== undefined) throw new Error(fault);
  const onCpu = { ...(options as object), executionProviders: ['cpu'], extra: {} };
  const createOnCpu = create as (...all: unknown[]) => Promise<InferenceSession>;
  const session = await createOnCpu(source, onCpu);
  const run = session.run.bind(session) as (...all: unknown[]) => ReturnType<typeof session.run>;
  let runs = 0;
  session.run = (async (...all: unknown[]) => {
    const broken = faultOf('run') ?? (runs++ > 0 ? faultOf('picture') : undefined);
    if (broken !== undefined) throw new Error(broken);
    return await run(...all);
  }) as typeof session.run;
  return session;
};
