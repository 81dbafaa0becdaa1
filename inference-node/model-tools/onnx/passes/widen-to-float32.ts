import {
  ElementType,
  type Graph,
  type GraphNode,
  integerAttribute,
  type Tensor,
} from '../../../serving/onnx/graph.ts';
import { inferValues } from '../../../serving/onnx/infer.ts';
import { widenHalf } from '../../../serving/onnx/tensor.ts';

/**
 * Converts float16 weights to float32, exactly, and removes the Cast nodes between the two: a CPU
 * has no half-precision arithmetic, and converts every tensor back and forth where a graph asks for
 * it. A Cast from anything else (an integer, a type that is not known) stays and gives float32.
 * @param inputDims of the graph's input.
 */
export function widenToFloat32(graph: Graph, inputDims: readonly number[]): Graph {
  const known = inferValues(graph, inputDims);
  const initialisers = new Map<string, Tensor>();
  for (const [name, tensor] of graph.initialisers) {
    initialisers.set(name, tensor.elementType === ElementType.float16 ? widenHalf(tensor) : tensor);
  }
  /** From the output of a removed Cast to what it read. */
  const aliases = new Map<string, string>();
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes) {
    const [input = ''] = node.inputs;
    if (!isCastToFloat(node)) {
      nodes.push(node);
    } else if (isFloat(known.get(input)?.elementType)) {
      aliases.set(node.outputs[0], aliases.get(input) ?? input);
    } else {
      nodes.push(castToFloat32(node));
    }
  }
  return {
    ...graph,
    nodes: rename(nodes, graph, aliases),
    initialisers,
    inputs: graph.inputs.map(widenValue),
    outputs: graph.outputs.map(widenValue),
  };
}

/**
 * Readers of a removed Cast read its source. Where the Cast made an output of the graph, the
 * source's maker takes the output's name, and its other readers follow; a source that is an input
 * of the graph keeps its name, and an Identity makes the output.
 */
function rename(
  nodes: readonly GraphNode[],
  graph: Graph,
  aliases: ReadonlyMap<string, string>,
): readonly GraphNode[] {
  const outputNames = new Map<string, string>();
  const copies: GraphNode[] = [];
  const made = new Set(nodes.flatMap(node => node.outputs));
  for (const { name } of graph.outputs) {
    const source = aliases.get(name);
    if (source === undefined) continue;
    const taken = outputNames.has(source) || graph.outputs.some(other => other.name === source);
    if (made.has(source) && !taken) outputNames.set(source, name);
    else copies.push(identity(source, name));
  }
  const renamed = (name: string) => outputNames.get(name) ?? name;
  return [...nodes, ...copies].map(node => {
    const [output, ...others] = node.outputs;
    const outputs: GraphNode['outputs'] = [renamed(output), ...others.map(renamed)];
    const inputs = node.inputs.map(name => renamed(aliases.get(name) ?? name));
    return { ...node, inputs, outputs };
  });
}

function identity(input: string, output: string): GraphNode {
  return {
    name: `copy to ${output}`,
    opType: 'Identity',
    domain: '',
    inputs: [input],
    outputs: [output],
    attributes: [],
  };
}

function isCastToFloat(node: GraphNode): boolean {
  return node.opType === 'Cast' && isFloat(integerAttribute(node, 'to', 0));
}

function castToFloat32(node: GraphNode): GraphNode {
  const attributes = node.attributes.map(attribute =>
    attribute.name === 'to' ? { ...attribute, i: ElementType.float32 } : attribute,
  );
  return { ...node, attributes };
}

function isFloat(elementType: number | undefined): boolean {
  return elementType === ElementType.float32 || elementType === ElementType.float16;
}

function widenValue<Value extends { readonly elementType: number }>(value: Value): Value {
  return value.elementType === ElementType.float16
    ? { ...value, elementType: ElementType.float32 }
    : value;
}
