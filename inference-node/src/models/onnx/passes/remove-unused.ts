import type { Graph, GraphNode, Tensor } from '../graph.ts';

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
