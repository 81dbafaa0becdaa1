/** The ranges of a model as the pass takes them, and as their file is written. */
import type { ModelManifest } from '../../serving/models/manifest.ts';
import { ModelError } from '../../serving/models/model-error.ts';
import type { Graph } from '../../serving/onnx/graph.ts';
import {
  ALPHA_MAX,
  QUANTILE_PARTS,
  type Ranges,
  type RangesFile,
} from '../../serving/prepared/ranges.ts';
import type { Quantisation, Scale } from '../onnx/passes/quantise.ts';
import { planQuantisation } from '../onnx/quantisation-plan.ts';

/**
 * The pass's input for this graph. Throws ModelError `manifest` where the graph has values without a
 * range, or the file has ranges for values that the graph does not have.
 * @param graph float32, at the ranges' input size.
 */
export function fitRanges(
  { name: file, ranges }: RangesFile,
  manifest: ModelManifest,
  graph: Graph,
): Quantisation {
  const float32 = new Set(ranges.float32);
  const input = exactInputScale(manifest);
  const plan = planQuantisation(graph, { inputIsExact: input !== undefined, float32 });
  const misfit = (what: string): never => {
    throw new ModelError('manifest', `${file} does not fit the graph of ${manifest.name}: ${what}`);
  };
  const measured = new Set(plan.measured);
  for (const value of measured) if (!ranges.ranges.has(value)) misfit(`it has no ${value}`);
  for (const value of ranges.ranges.keys()) {
    if (!measured.has(value)) misfit(`the graph has no ${value} to be made bytes`);
  }
  const made = new Set(graph.nodes.flatMap(node => node.outputs));
  for (const value of float32) if (!made.has(value)) misfit(`the graph makes no ${value}`);
  return { ranges: ranges.ranges, float32, input };
}

/**
 * The scale at which the picture's own bytes are the input's bytes. It exists where all channels
 * have the same normalisation and its mean is a whole number.
 */
export function exactInputScale({ normalisation }: ModelManifest): Scale | undefined {
  const { mean, std } = normalisation;
  const alike = mean.every(value => value === mean[0]) && std.every(value => value === std[0]);
  if (!alike || !Number.isInteger(mean[0]) || mean[0] < 0 || mean[0] > ALPHA_MAX) return undefined;
  return { scale: 1 / std[0], zeroPoint: mean[0] };
}

/** The text of the file. */
export function formatRanges(ranges: Ranges): string {
  const { quantile, ranges: measured, float32, checkAnswer, photos, ...head } = ranges;
  const lines = [
    ...Object.entries({
      ...head,
      quantilePerMillion: Math.round(quantile * QUANTILE_PARTS),
    }).map(([field, value]) => `  ${JSON.stringify(field)}: ${JSON.stringify(value)}`),
    `  "photos": [\n${photos.map(photo => `    ${JSON.stringify(photo)}`).join(',\n')}\n  ]`,
    ...(float32.length > 0 ? [`  "float32": ${JSON.stringify(float32)}`] : []),
    `  "checkAnswer": ${JSON.stringify(checkAnswer)}`,
    `  "ranges": {\n${[...measured]
      .map(([name, range]) => `    ${JSON.stringify(name)}: ${JSON.stringify(range)}`)
      .join(',\n')}\n  }`,
  ];
  return `{\n${lines.join(',\n')}\n}\n`;
}
