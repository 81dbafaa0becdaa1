/**
 * Lets a graph take the bytes of a picture and answer with those of its matte: a third and a
 * quarter of what floats are to copy to a GPU and back, and nothing for the thread beside it to
 * convert. Every number is the one that serving/engine/child/graph-ends.ts has: the graph computes in
 * float64 between the bytes and the floats, as JavaScript does.
 */

import type { Size } from '#contract/finishing.ts';
import {
  ALPHA_OUTPUT,
  type Normalisation,
  type PreparedModel,
  RGB_INPUT,
  SUM_OUTPUT,
} from '../../../serving/models/prepared-model.ts';
import {
  ElementType,
  type Graph,
  type GraphNode,
  type GraphPass,
  integer,
  integers,
  nodeOf,
  onlyInput,
  type Tensor,
} from '../../../serving/onnx/graph.ts';
import { float32Tensor, float64Tensor, int64Tensor } from '../../../serving/onnx/tensor.ts';

const CHANNELS = 3;
const TO_PLANES = [0, 3, 1, 2];
/** Red and blue change places. */
const BGR = [2, 1, 0];
const ALPHA_MAX = 255;

export interface PixelFormat {
  readonly normalisation: Normalisation;
  readonly colourOrder: PreparedModel['colourOrder'];
  readonly activation: PreparedModel['activation'];
}

/** Of a graph with float32 at both ends: [1, 3, height, width] and [1, 1, height, width]. */
export function bytesAtBothEnds(format: PixelFormat, { width, height }: Size): GraphPass {
  return graph => {
    const ends = new Ends();
    ends.before(onlyInput(graph).name, format);
    const [matte] = graph.outputs;
    if (matte === undefined) throw new Error('a prepared graph has one output');
    ends.after(matte.name, format.activation);
    return {
      ...graph,
      nodes: [...ends.first, ...graph.nodes, ...ends.last],
      initialisers: new Map([...graph.initialisers, ...ends.constants]),
      inputs: [
        { name: RGB_INPUT, elementType: ElementType.uint8, dims: [1, height, width, CHANNELS] },
      ],
      outputs: [
        { name: ALPHA_OUTPUT, elementType: ElementType.uint8, dims: [1, 1, height, width] },
        { name: SUM_OUTPUT, elementType: ElementType.float64, dims: [] },
      ],
    } satisfies Graph;
  };
}

class Ends {
  readonly first: GraphNode[] = [];
  readonly last: GraphNode[] = [];
  readonly constants = new Map<string, Tensor>();

  before(input: string, { normalisation, colourOrder }: PixelFormat): void {
    const { first } = this;
    let bytes = add(first, 'Transpose', [RGB_INPUT], [integers('perm', TO_PLANES)]);
    const inOrder = (values: Normalisation['mean']) =>
      colourOrder === 'rgb' ? values : BGR.map(channel => values[channel] ?? Number.NaN);
    if (colourOrder === 'bgr') {
      const order = this.#constant('matting.order', int64Tensor(BGR, [CHANNELS]));
      bytes = add(first, 'Gather', [bytes, order], [integer('axis', 1)]);
    }
    const perPlane = (values: readonly number[]) => float64Tensor(values, [1, CHANNELS, 1, 1]);
    const mean = this.#constant('matting.mean', perPlane(inOrder(normalisation.mean)));
    const std = this.#constant('matting.std', perPlane(inOrder(normalisation.std)));
    const doubles = add(first, 'Cast', [bytes], [integer('to', ElementType.float64)]);
    const normalised = add(first, 'Div', [add(first, 'Sub', [doubles, mean]), std]);
    add(first, 'Cast', [normalised], [integer('to', ElementType.float32)], input);
  }

  after(matte: string, activation: PixelFormat['activation']): void {
    const { last } = this;
    const toDouble = [integer('to', ElementType.float64)];
    const doubles = add(last, 'Cast', [matte], toDouble);
    const values = activation === 'sigmoid' ? add(last, 'Sigmoid', [doubles]) : doubles;
    add(last, 'ReduceSum', [values], [integer('keepdims', 0)], SUM_OUTPUT);
    const scaled = add(last, 'Mul', [
      activation === 'sigmoid' ? values : add(last, 'Cast', [this.#clipped(matte)], toDouble),
      this.#constant('matting.scale', float64Tensor([ALPHA_MAX], [])),
    ]);
    // To the even one of two that are as near, as the clamped bytes of JavaScript.
    const rounded = add(last, 'Round', [scaled]);
    add(last, 'Cast', [rounded], [integer('to', ElementType.uint8)], ALPHA_OUTPUT);
  }

  /** Before the widening: Min and Max of float64 came later than the models' operator sets. */
  #clipped(matte: string): string {
    const zero = this.#constant('matting.zero', float32Tensor([0], []));
    const one = this.#constant('matting.one', float32Tensor([1], []));
    return add(this.last, 'Min', [add(this.last, 'Max', [matte, zero]), one]);
  }

  #constant(name: string, tensor: Tensor): string {
    this.constants.set(name, tensor);
    return name;
  }
}

/** Returns the name of the node's output. */
function add(
  nodes: GraphNode[],
  opType: string,
  inputs: readonly string[],
  attributes: GraphNode['attributes'] = [],
  output = `matting.${opType}.${inputs.join('.')}`,
): string {
  nodes.push(nodeOf(opType, inputs, output, attributes));
  return output;
}
