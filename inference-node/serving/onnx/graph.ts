/**
 * An ONNX graph as the passes see it: plain values, tensors as views of the file they come from. A
 * pass takes a graph and returns another one; it changes neither the graph it is given nor a
 * tensor's bytes, so that 88 MB of weights are copied only by the pass that widens them.
 *
 * Invariants: nodes are in topological order; a name is made by one node, one initialiser or one
 * input only; no node holds a subgraph.
 */
import type { onnx } from 'onnx-proto';
import { ModelError } from '../models/model-error.ts';

/** The values of onnx.TensorProto.DataType that are used here. */
export const ElementType = {
  float32: 1,
  uint8: 2,
  int8: 3,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
  float64: 11,
} as const;

export interface Tensor {
  /** onnx.TensorProto.DataType. */
  readonly elementType: number;
  readonly dims: readonly number[];
  /** Little-endian, row-major. Not to be written to. */
  readonly data: Uint8Array;
}

export interface GraphNode {
  readonly name: string;
  readonly opType: string;
  /** '' is ONNX's own domain. */
  readonly domain: string;
  /** '' is an optional input that is not given; those at the end may be left out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly [string, ...string[]];
  readonly attributes: readonly onnx.IAttributeProto[];
}

/** An input or output of the graph. */
export interface GraphValue {
  readonly name: string;
  readonly elementType: number;
  /** Null where the size is free. */
  readonly dims: readonly (number | null)[];
}

export interface OpsetImport {
  readonly domain: string;
  readonly version: number;
}

export interface Graph {
  readonly irVersion: number;
  readonly opsets: readonly OpsetImport[];
  readonly nodes: readonly GraphNode[];
  readonly initialisers: ReadonlyMap<string, Tensor>;
  readonly inputs: readonly GraphValue[];
  readonly outputs: readonly GraphValue[];
}

/** One step of the preparation. Throws ModelError `prepare` where a graph does not allow it. */
export type GraphPass = (graph: Graph) => Graph;

/** Throws ModelError `prepare` where the graph has none or several. */
export function onlyInput(graph: Graph): GraphValue {
  const [input, ...others] = graph.inputs;
  if (input === undefined || others.length > 0) {
    const names = graph.inputs.map(({ name }) => name).join(', ') || 'none';
    throw new ModelError('prepare', `the graph must have one input, it has ${names}`);
  }
  return input;
}

export function attribute(node: GraphNode, name: string): onnx.IAttributeProto | undefined {
  return node.attributes.find(candidate => candidate.name === name);
}

export function integerAttribute(node: GraphNode, name: string, absent: number): number {
  const value = attribute(node, name)?.i;
  return value === undefined || value === null ? absent : Number(value);
}

export function integersAttribute(node: GraphNode, name: string): readonly number[] | undefined {
  return attribute(node, name)?.ints?.map(Number);
}

export function textAttribute(node: GraphNode, name: string, absent: string): string {
  const value = attribute(node, name)?.s;
  return value === undefined || value === null ? absent : Buffer.from(value).toString('utf8');
}

/** A new node of one output, whose name is its own too. */
export function nodeOf(
  opType: string,
  inputs: readonly string[],
  output: string,
  attributes: GraphNode['attributes'] = [],
): GraphNode {
  return { name: output, opType, domain: '', inputs, outputs: [output], attributes };
}

/** The values of onnx.AttributeProto.AttributeType that are used here. */
const ATTRIBUTE_INT = 2;
const ATTRIBUTE_STRING = 3;
const ATTRIBUTE_INTS = 7;

/** An attribute for a new node. */
export function integer(name: string, value: number): onnx.IAttributeProto {
  return { name, type: ATTRIBUTE_INT, i: value };
}

/** The same of several. */
export function integers(name: string, values: readonly number[]): onnx.IAttributeProto {
  return { name, type: ATTRIBUTE_INTS, ints: [...values] };
}

/** The same of a word. */
export function text(name: string, value: string): onnx.IAttributeProto {
  return { name, type: ATTRIBUTE_STRING, s: Buffer.from(value) };
}

/** The node that makes each value. */
export function makersOf(nodes: readonly GraphNode[]): ReadonlyMap<string, GraphNode> {
  return new Map(nodes.flatMap(node => node.outputs.map(name => [name, node])));
}

/** The nodes that read each value, in their order. */
export function readersOf(nodes: readonly GraphNode[]): ReadonlyMap<string, GraphNode[]> {
  const reads = nodes.flatMap(node => [...new Set(node.inputs)].map(name => ({ name, node })));
  const byName = Map.groupBy(reads, ({ name }) => name);
  return new Map([...byName].map(([name, each]) => [name, each.map(({ node }) => node)]));
}

/**
 * Sorts nodes so that each stands after those it reads from; otherwise they keep their order. Null
 * when they form a circle.
 */
export function sortTopologically(nodes: readonly GraphNode[]): readonly GraphNode[] | null {
  const makers = makersOf(nodes);
  const sorted = new Set<GraphNode>();
  const entered = new Set<GraphNode>();
  for (const start of nodes) {
    // A stack instead of recursion: exported graphs are thousands of nodes deep.
    const stack = [start];
    for (let node = stack.at(-1); node !== undefined; node = stack.at(-1)) {
      if (entered.has(node)) {
        sorted.add(node);
        stack.pop();
        continue;
      }
      entered.add(node);
      for (const input of node.inputs) {
        // '' is no value: an input or an output that is not there.
        const maker = input === '' ? undefined : makers.get(input);
        if (maker === undefined || sorted.has(maker)) continue;
        if (entered.has(maker)) return null;
        stack.push(maker);
      }
    }
  }
  return [...sorted];
}
