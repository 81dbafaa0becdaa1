import type { Size } from '#contract/finishing.ts';
import { ModelError } from '../../../serving/models/model-error.ts';
import { type Graph, type GraphNode, onlyInput, type Tensor } from '../../../serving/onnx/graph.ts';
import { inferValues, type KnownValues } from '../../../serving/onnx/infer.ts';
import { int64Tensor } from '../../../serving/onnx/tensor.ts';
import { removeUnused } from './remove-unused.ts';

/** Where Resize has its target sizes, since opset 11. */
const RESIZE_SIZES_INPUT = 3;

/**
 * Fixes the graph to one input size: each Resize gets its target as a constant, scaled from what it
 * is at the size the graph was exported for, and the nodes that computed shapes at run time fall
 * away. Exporters write targets either as numbers of the exported size or as arithmetic on other
 * tensors' shapes; at the exported size both are known numbers, so one rule serves both.
 * @param exported the size the graph was exported for.
 */
export function setInputSize(graph: Graph, exported: Size, wanted: Size): Graph {
  const input = onlyInput(graph);
  const atExported = inferValues(graph, imageDims(exported));
  const initialisers = new Map<string, Tensor>(graph.initialisers);
  const nodes = graph.nodes.map(node => {
    const sizes = node.opType === 'Resize' ? node.inputs[RESIZE_SIZES_INPUT] : undefined;
    if (!sizes) return node;
    const target = scaledTarget(node, atExported, exported, wanted);
    if (target === undefined) {
      if (wanted.width === exported.width && wanted.height === exported.height) return node;
      throw new ModelError(
        'prepare',
        `the input size cannot be changed: what ${describe(node)} resizes to is not known`,
      );
    }
    const name = `${node.outputs[0]}.sizes`;
    initialisers.set(name, int64Tensor(target, [target.length]));
    return { ...node, inputs: node.inputs.with(RESIZE_SIZES_INPUT, name) };
  });
  const sized = removeUnused({
    ...graph,
    nodes,
    initialisers,
    inputs: [{ ...input, dims: imageDims(wanted) }],
  });
  return withOutputDims(sized, wanted);
}

/** The Resize's output dims [N, C, h, w]; undefined where they are not known. */
function scaledTarget(
  node: GraphNode,
  atExported: KnownValues,
  exported: Size,
  wanted: Size,
): readonly number[] | undefined {
  const target = atExported.get(node.inputs[RESIZE_SIZES_INPUT] ?? '')?.numbers ?? [];
  const [batch, channels, exportedHeight, exportedWidth, ...others] = target;
  if (batch === undefined || channels === undefined) return undefined;
  if (exportedHeight === undefined || exportedWidth === undefined || others.length > 0) {
    return undefined;
  }
  const height = (exportedHeight * wanted.height) / exported.height;
  const width = (exportedWidth * wanted.width) / exported.width;
  if (!Number.isInteger(height) || !Number.isInteger(width)) {
    throw new ModelError(
      'prepare',
      `the graph cannot take ${wanted.width}x${wanted.height}: ${describe(node)} would resize to ` +
        `${width}x${height} pixels`,
    );
  }
  return [batch, channels, height, width];
}

/**
 * The matte has the input's size. Where inference can tell and tells otherwise, the graph is wrong.
 */
function withOutputDims(graph: Graph, wanted: Size): Graph {
  const values = inferValues(graph, imageDims(wanted));
  const dims = [1, 1, wanted.height, wanted.width];
  const outputs = graph.outputs.map(output => {
    const found = values.get(output.name)?.dims ?? dims;
    if (found.join() !== dims.join()) {
      throw new ModelError(
        'prepare',
        `output ${output.name} would have the shape [${found.join()}], not [${dims.join()}]`,
      );
    }
    return { ...output, dims };
  });
  return { ...graph, outputs };
}

/** [1, 3, height, width]. */
export function imageDims(size: Size): readonly number[] {
  return [1, 3, size.height, size.width];
}

function describe(node: GraphNode): string {
  return node.name === '' ? `the Resize that makes ${node.outputs[0]}` : node.name;
}
