/**
 * How pixels get into a graph and out of it. One made for another device takes the bytes of RGB and
 * gives those of the alpha (models/onnx/passes/bytes-at-both-ends.ts); every other takes and gives
 * floats, which are converted here.
 */
import assert from 'node:assert/strict';
import { ALPHA_OUTPUT, RGB_INPUT, SUM_OUTPUT } from '../../models/prepared-model.ts';
import type { SessionSpec } from '../engine-protocol.ts';
import { createPlaneTables, fillAlpha, fillPlanes } from './pixel-conversion.ts';

/** A tensor, as a graph is given it and gives it. */
export interface GraphValue {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: unknown;
}

export type GraphInput =
  | (GraphValue & { readonly type: 'uint8'; readonly data: Uint8Array })
  | (GraphValue & { readonly type: 'float32'; readonly data: Float32Array });

export interface GraphEnds {
  readonly inputName: string;
  readonly outputNames: readonly string[];
  /** @param rgb HWC bytes of the model's input size. */
  input(rgb: Uint8Array): GraphInput;
  /**
   * One byte a pixel, good until the next run. Throws where the answer has another shape, or has
   * values that are not numbers.
   */
  alpha(outputs: Readonly<Record<string, GraphValue>>): Uint8Array;
}

/** Those that the graph has, by the names of its inputs. */
export function graphEnds(spec: SessionSpec, inputNames: readonly string[]): GraphEnds {
  return inputNames.includes(RGB_INPUT) ? byteEnds(spec) : floatEnds(spec);
}

function byteEnds({ inputWidth, inputHeight }: SessionSpec): GraphEnds {
  return {
    inputName: RGB_INPUT,
    outputNames: [ALPHA_OUTPUT, SUM_OUTPUT],
    input: rgb => ({ type: 'uint8', dims: [1, inputHeight, inputWidth, 3], data: rgb }),
    alpha(outputs) {
      const sum = outputOf(outputs, SUM_OUTPUT, 'float64', []).data as Float64Array;
      requireNumbers(!Number.isNaN(sum[0]));
      const dims = [1, 1, inputHeight, inputWidth];
      return outputOf(outputs, ALPHA_OUTPUT, 'uint8', dims).data as Uint8Array;
    },
  };
}

function floatEnds(spec: SessionSpec): GraphEnds {
  const { inputName, outputName, inputWidth, inputHeight } = spec;
  const { normalisation, colourOrder, activation } = spec;
  const pixels = inputWidth * inputHeight;
  const tables = createPlaneTables(normalisation, colourOrder);
  // Reused by every run: one has ended before the next one fills them.
  const planes = new Float32Array(3 * pixels);
  const dims = [1, 3, inputHeight, inputWidth];
  const alpha = Buffer.alloc(pixels);
  const clamped = new Uint8ClampedArray(alpha.buffer, alpha.byteOffset, pixels);
  return {
    inputName,
    outputNames: [outputName],
    input(rgb) {
      fillPlanes(rgb, planes, tables);
      return { type: 'float32', dims, data: planes };
    },
    alpha(outputs) {
      const { data } = outputOf(outputs, outputName, 'float32', [1, 1, inputHeight, inputWidth]);
      requireNumbers(fillAlpha(data as Float32Array, clamped, activation));
      return alpha;
    },
  };
}

function outputOf(
  outputs: Readonly<Record<string, GraphValue>>,
  name: string,
  type: string,
  dims: readonly number[],
): GraphValue {
  const output = outputs[name];
  assert(output !== undefined, 'the graph has the output: its names were checked');
  const shape = output.dims.join('x');
  const wanted = dims.join('x');
  if (output.type === type && shape === wanted) return output;
  throw new Error(`the graph's output is ${output.type} ${shape}, not ${type} ${wanted}`);
}

function requireNumbers(holds: boolean): void {
  if (!holds) throw new Error('the model answered with values that are not numbers');
}
