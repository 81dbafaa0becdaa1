import { ModelError } from '../../model-error.ts';
import type { Graph, GraphPass } from '../graph.ts';
import { removeUnused } from './remove-unused.ts';

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
