import { ModelError } from '../../../serving/models/model-error.ts';
import type { Graph, GraphNode, GraphPass, Tensor } from '../../../serving/onnx/graph.ts';

/**
 * Drops the nodes and initialisers that no output needs. Inputs stay: they are the graph's
 * interface.
 */
export function removeUnused(graph: Graph): Graph {
  const needed = new Set(graph.outputs.map(output => output.name));
  const nodes: GraphNode[] = [];
  // Against the topological order: readers of a value come before its maker.
  for (const node of graph.nodes.toReversed()) {
    if (!node.outputs.some(output => needed.has(output))) continue;
    for (const input of node.inputs) needed.add(input);
    nodes.push(node);
  }
  const initialisers = new Map<string, Tensor>();
  for (const [name, tensor] of graph.initialisers) {
    if (needed.has(name)) initialisers.set(name, tensor);
  }
  return { ...graph, nodes: nodes.reverse(), initialisers };
}

/**
 * Keeps one of the graph's outputs and what it needs. Other outputs would be computed on every run
 * even when they are not fetched.
 */
export function keepOutput(name: string): GraphPass {
  return (graph: Graph) => {
    const outputs = graph.outputs.filter(output => output.name === name);
    if (outputs.length === 0) {
      const names = graph.outputs.map(output => output.name).join(', ');
      throw new ModelError('prepare', `the graph has no output ${name}, it has ${names}`);
    }
    return removeUnused({ ...graph, outputs });
  };
}
