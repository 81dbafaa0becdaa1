/**
 * Preloaded into engines on the CPU: the GPUs that the file named by TEST_GPU_FAULTS lists, one a
 * line with what CUDA says, fail loads; a line of `run` before it fails runs instead. A line of
 * `loading` is appended to the file named by TEST_GPU_LOADS as a load begins and `ended` as it ends.
 */
import { appendFileSync, readFileSync } from 'node:fs';
import ort from 'onnxruntime-node';

const device = process.env.CUDA_VISIBLE_DEVICES ?? '';
const { TEST_GPU_FAULTS: faults, TEST_GPU_LOADS: loads } = process.env;

function faultOf(kind: 'load' | 'run'): string | undefined {
  if (faults === undefined) return undefined;
  const lines = readFileSync(faults, 'utf8').split('\n');
  return lines
    .find(line => line.startsWith(`${kind} ${device} `))
    ?.slice(`${kind} ${device} `.length);
}

function note(what: string): void {
  if (loads !== undefined) appendFileSync(loads, `${what} ${device}\n`);
}

const { create } = ort.InferenceSession;
ort.InferenceSession.create = async (...args: unknown[]) => {
  note('loading');
  // Room for another engine to begin in, if nothing holds it back.
  await new Promise(resolve => setTimeout(resolve, 50));
  const fault = faultOf('load');
  note('ended');
  if (fault !== undefined) throw new Error(fault);
  const session = await (create as (...all: unknown[]) => Promise<ort.InferenceSession>)(...args);
  const run = session.run.bind(session) as (...all: unknown[]) => ReturnType<typeof session.run>;
  session.run = (async (...all: unknown[]) => {
    const broken = faultOf('run');
    if (broken !== undefined) throw new Error(broken);
    return await run(...all);
  }) as typeof session.run;
  return session;
};
