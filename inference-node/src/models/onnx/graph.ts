/**
 * An ONNX graph as the passes of this room see it: plain values, tensors as views of the file they
 * came from. A pass takes a graph and returns another one; it changes neither the graph it was
 * given nor a tensor's bytes, so that 88 MB of weights are copied only by the pass that widens
 * them.
 *
 * Invariants: nodes are in topological order; a name is made by one node, one initialiser or one
 * input only; no node holds a subgraph.
 */
import type { onnx } from 'onnx-proto';

/** onnx.TensorProto.DataType, those that are used here. */
export const ElementType = {
  float32: 1,
  uint8: 2,
  int8: 3,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
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
  /** '' is ONNX's own. */
  readonly domain: string;
  /** '' is an optional input that is not given. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
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

/**
 * Sorts nodes so that each stands after those it reads from; otherwise they keep their order. Null
 * when they form a circle.
 */
export function sortTopologically(nodes: readonly GraphNode[]): readonly GraphNode[] | null {
  const producers = new Map<string, number>();
  for (const [index, node] of nodes.entries()) {
    for (const output of node.outputs) if (output !== '') producers.set(output, index);
  }
  const sorted: GraphNode[] = [];
  const states = new Uint8Array(nodes.length);
  const [fresh, open, done] = [0, 1, 2];
  for (const start of nodes.keys()) {
    // A stack of our own: exported graphs are thousands of nodes deep.
    const stack = [start];
    while (stack.length > 0) {
      const index = stack[stack.length - 1];
      if (states[index] !== fresh) {
        stack.pop();
        if (states[index] === open) {
          states[index] = done;
          sorted.push(nodes[index]);
        }
        continue;
      }
      states[index] = open;
      for (const input of nodes[index].inputs) {
        const producer = producers.get(input);
        if (producer === undefined || states[producer] === done) continue;
        if (states[producer] === open) return null;
        stack.push(producer);
      }
    }
  }
  return sorted;
}
