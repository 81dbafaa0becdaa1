/** Shape rules of windows over pixels (Conv, pools) and of Slice. */
import { type GraphNode, integerAttribute, integersAttribute, textAttribute } from './graph.ts';
import type { KnownValue } from './infer.ts';

/**
 * Conv and pools over [N, C, H, W].
 * @param channels of the output.
 * @param weightsKernel where the node does not give kernel_shape.
 */
export function inferPool(
  node: GraphNode,
  input: KnownValue | undefined,
  channels: number | undefined,
  weightsKernel?: readonly number[],
): KnownValue | undefined {
  const kernel = integersAttribute(node, 'kernel_shape') ?? weightsKernel;
  if (input === undefined || channels === undefined || kernel === undefined) return undefined;
  if (textAttribute(node, 'auto_pad', 'NOTSET') !== 'NOTSET') return undefined;
  const strides = integersAttribute(node, 'strides');
  const dilations = integersAttribute(node, 'dilations');
  const pads = integersAttribute(node, 'pads');
  const round = integerAttribute(node, 'ceil_mode', 0) === 1 ? Math.ceil : Math.floor;
  const spatial = kernel.map((taps, axis) => {
    const reach = (taps - 1) * (dilations?.[axis] ?? 1) + 1;
    const padding = (pads?.[axis] ?? 0) + (pads?.[axis + kernel.length] ?? 0);
    return round((input.dims[axis + 2] + padding - reach) / (strides?.[axis] ?? 1)) + 1;
  });
  return { elementType: input.elementType, dims: [input.dims[0], channels, ...spatial] };
}

/** Since opset 10 (starts, ends, axes, steps as inputs), of a list and forwards only. */
export function inferSlice(
  _: GraphNode,
  [data, starts, ends, axes, steps]: readonly (KnownValue | undefined)[],
): KnownValue | undefined {
  if (data?.numbers === undefined || data.dims.length !== 1) return undefined;
  if (starts?.numbers?.length !== 1 || ends?.numbers?.length !== 1) return undefined;
  if ((axes?.numbers?.[0] ?? 0) !== 0 || (steps?.numbers?.[0] ?? 1) !== 1) return undefined;
  const numbers = data.numbers.slice(starts.numbers[0], ends.numbers[0]);
  return { elementType: data.elementType, dims: [numbers.length], numbers };
}
