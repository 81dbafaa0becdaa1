import {
  ElementType,
  elementCount,
  type Graph,
  type GraphNode,
  makersOf,
  readersOf,
  type Tensor,
  tensorNumbers,
} from '@matting/serving/onnx/graph.ts';
import { need } from './not-deformable.ts';

/** Shapes, pads and bounds have at most eight numbers. */
const SMALL_BYTES_MAX = 64;

export class GraphView {
  readonly #makers: ReadonlyMap<string, GraphNode>;
  readonly #readers: ReadonlyMap<string, readonly GraphNode[]>;
  readonly #graph: Graph;

  constructor(graph: Graph) {
    this.#graph = graph;
    this.#makers = makersOf(graph.nodes);
    this.#readers = readersOf(graph.nodes);
  }

  maker(name: string | undefined, opType: string): GraphNode {
    const node = this.#makers.get(name ?? '');
    need(node?.opType === opType && node.domain === '', `${opType} makes ${name}`);
    return node;
  }

  isMadeBy(name: string | undefined, opType: string): boolean {
    return this.#makers.get(name ?? '')?.opType === opType;
  }

  onlyReader(name: string): GraphNode {
    const [reader, ...others] = this.#readers.get(name) ?? [];
    const leaves = this.#graph.outputs.some(output => output.name === name);
    need(reader !== undefined && others.length === 0 && !leaves, `one reader of ${name}`);
    return reader;
  }

  constant(name: string | undefined): Tensor | undefined {
    let at = name ?? '';
    for (let node = this.#makers.get(at); node?.opType === 'Identity'; node = this.#makers.get(at))
      at = node.inputs[0] ?? '';
    return this.#graph.initialisers.get(at);
  }

  numbers(name: string | undefined): readonly number[] | undefined {
    const tensor = this.constant(name);
    if (tensor === undefined || tensor.data.length > SMALL_BYTES_MAX) return undefined;
    return isWhole(tensor) ? tensorNumbers(tensor) : undefined;
  }
}

/** A file may claim any dims for its data. */
export function isWhole({ elementType, dims, data }: Tensor): boolean {
  const size = elementType === ElementType.int64 ? 8 : 4;
  return dims.every(dim => dim >= 0) && data.length === size * elementCount(dims);
}
