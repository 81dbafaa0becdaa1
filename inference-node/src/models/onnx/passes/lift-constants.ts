import type { Graph, GraphNode, Tensor } from '../graph.ts';
import { attribute } from '../graph.ts';
import { readTensor } from '../model-file.ts';

/**
 * Constant nodes become initialisers, so that other passes meet constants in one form only.
 * Constants given as single numbers (value_int and the like) stay as they are.
 */
export function liftConstants(graph: Graph): Graph {
  const initialisers = new Map<string, Tensor>(graph.initialisers);
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes) {
    const value = node.opType === 'Constant' ? attribute(node, 'value')?.t : undefined;
    if (value) initialisers.set(node.outputs[0], readTensor(value, `constant ${node.outputs[0]}`));
    else nodes.push(node);
  }
  return { ...graph, nodes, initialisers };
}
