/** Runs graphs in the test's process, as an engine does. */
import { createPlaneTables, fillAlpha, fillPlanes } from '../engine/child/graph-io.ts';
import { LoadedModel } from '../engine/child/loaded-model.ts';
import { InferenceSession, Tensor } from '../engine/child/onnx-runtime.ts';
import { PROBE_SPEC } from '../engine/choice/gpu-probe-graph.ts';
import type { SessionSpec } from '../engine/engine-protocol.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { drawCheckPicture, summariseAnswer } from '../prepared/answer-check.ts';
import { carriesInt8, detectInstructionSet } from '../prepared/instruction-set.ts';

export { drawCheckPicture };

export interface Feed {
  readonly data: Float32Array | Uint8Array;
  readonly dims: readonly number[];
}

export async function runOnce(
  bytes: Uint8Array,
  feeds: Readonly<Record<string, Feed>>,
  output: string,
  graphOptimizationLevel: 'all' | 'disabled' = 'all',
): Promise<Float32Array> {
  const session = await InferenceSession.create(bytes, {
    ...{ executionProviders: ['cpu'], intraOpNumThreads: 1, logSeverityLevel: 3 },
    graphOptimizationLevel,
  });
  const inputs = Object.entries(feeds).map(([name, { data, dims }]) => [
    name,
    data instanceof Uint8Array
      ? new Tensor('uint8', data, dims)
      : new Tensor('float32', data, dims),
  ]);
  const results = await session.run(Object.fromEntries(inputs), [output]);
  const values = Float32Array.from(results[output]?.data as Float32Array);
  await session.release();
  return values;
}

export async function loadModel(
  spec: Partial<SessionSpec>,
  graph?: Uint8Array,
): Promise<LoadedModel> {
  const onCpu = { provider: 'cpu', allowCpuNodes: true } as const;
  const { model } = await LoadedModel.load({ ...PROBE_SPEC, ...spec, ...onCpu }, graph);
  return model;
}

/** Means of blocks of the check picture's answer, as ranges keep them. */
export async function answerBlocks(
  spec: Partial<SessionSpec>,
  graph: Uint8Array,
  side: number,
): Promise<number[]> {
  const { alpha, size } = await (await loadModel(spec, graph)).run(drawCheckPicture(side, side));
  return summariseAnswer({ alpha, ...size });
}

export function planesOf(
  rgb: Uint8Array,
  { normalisation, colourOrder }: Pick<PreparedModel, 'normalisation' | 'colourOrder'>,
): Float32Array {
  const planes = new Float32Array(rgb.length);
  fillPlanes(rgb, planes, createPlaneTables(normalisation, colourOrder));
  return planes;
}

export function alphaOf(
  values: readonly number[],
  activation: PreparedModel['activation'],
): Uint8Array | undefined {
  const alpha = new Uint8ClampedArray(values.length);
  return fillAlpha(Float32Array.from(values), alpha, activation)
    ? new Uint8Array(alpha)
    : undefined;
}

/** Sums of products saturate on such CPUs, so nodes run fp32 there. */
export async function lacksInt8(): Promise<boolean> {
  return !carriesInt8(await detectInstructionSet());
}
