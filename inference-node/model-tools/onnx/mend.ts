/**
 * Puts one operator where a deformable convolution is written as gathers (deformable-block.ts):
 * BiRefNet lite at 1024 then takes half of the processor time and a quarter of the memory.
 */
import {
  float32Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  integers,
  nodeOf,
  type Tensor,
  text,
} from '@matting/serving/onnx/graph.ts';
import { type DeformableBlock, findDeformableBlocks } from './deformable-block.ts';
import { OPSET_OF_DEFORM_CONV, raiseOpset, removeUnused } from './rewrites.ts';

/**
 * `deform-conv`: DeformConv of opset 19. `grid-sample-taps`: for providers without it, GridSample
 * (opset 16) of some taps after the other, each group with a convolution of 1 x 1.
 */
export type DeformableForm = 'deform-conv' | 'grid-sample-taps';

/** BiRefNet has 20. Bounds what a file can make the search compare. */
const BLOCKS_MAX = 64;

export interface Mended {
  /** The source itself where no block was found. */
  readonly graph: Graph;
  readonly blocks: readonly DeformableBlock[];
  /** Sums that are in no deformable convolution, each with its cause. */
  readonly refused: readonly { readonly sum: string; readonly cause: string }[];
}

/** The graph's constants have to be initialisers. @throws ModelError `prepare`: its opset. */
export function mendDeformableConvolutions(graph: Graph, form: DeformableForm): Mended {
  const { blocks, refused } = findDeformableBlocks(graph, BLOCKS_MAX);
  if (blocks.length === 0) return { graph, blocks, refused };
  const native = form === 'deform-conv';
  const mend = native ? deformConv : gridSampleTaps(opsetOf(graph));
  // First: it does not know the operator. Other nodes than those it changes stay the same objects.
  const raised = native ? raiseOpset(graph, OPSET_OF_DEFORM_CONV) : graph;
  const initialisers = new Map<string, Tensor>(raised.initialisers);
  const byConv = new Map(blocks.map(block => [block.conv, block]));
  const nodes = raised.nodes.flatMap(node => {
    const block = byConv.get(node);
    return block === undefined ? [node] : mend(block, initialisers);
  });
  return { graph: removeUnused({ ...raised, nodes, initialisers }), blocks, refused };
}

function opsetOf({ opsets }: Graph): number {
  return opsets.find(({ domain }) => domain === '')?.version ?? 0;
}

type Mend = (block: DeformableBlock, initialisers: Map<string, Tensor>) => readonly GraphNode[];

const deformConv: Mend = ({ conv, ...block }) => {
  const [, weight = '', bias = ''] = conv.inputs;
  const [top, left] = block.pads;
  const inputs = [block.picture, weight, block.offset, bias, block.mask ?? ''];
  // One that is not given may not be the last.
  while (inputs.at(-1) === '') inputs.pop();
  const attributes = [
    integers('kernel_shape', block.kernel),
    integers('strides', block.strides),
    integers('dilations', block.dilations),
    integers('pads', [top, left, top, left]),
    integer('offset_group', block.groups),
    ...conv.attributes.filter(({ name }) => name === 'group'),
  ];
  return [nodeOf('DeformConv', inputs, conv.outputs[0], attributes)];
};

/** Samples of 7 taps are in memory at once in place of 49: 1.5 GB in place of 2.6 at 1024. */
const TAP_GROUPS_MAX = 7;
/** Its mode `bilinear` is called `linear` from here on. */
const OPSET_OF_LINEAR = 20;

function gridSampleTaps(opset: number): Mend {
  const mode = text('mode', opset < OPSET_OF_LINEAR ? 'bilinear' : 'linear');
  const sampling = [mode, text('padding_mode', 'zeros'), integer('align_corners', 1)];
  return (block, initialisers) => new Taps(block, sampling, initialisers).nodes();
}

class Taps {
  readonly #block: DeformableBlock;
  readonly #sampling: GraphNode['attributes'];
  readonly #initialisers: Map<string, Tensor>;
  readonly #nodes: GraphNode[] = [];
  #count = 0;

  constructor(
    block: DeformableBlock,
    sampling: GraphNode['attributes'],
    initialisers: Map<string, Tensor>,
  ) {
    this.#block = block;
    this.#sampling = sampling;
    this.#initialisers = initialisers;
  }

  nodes(): readonly GraphNode[] {
    const { conv, pictures, groups, channels, taps, outHeight, outWidth } = this.#block;
    const { paddedHeight, paddedWidth, padded, mask, weightDims } = this.#block;
    const [outputs = 0, channelsOfGroup = 0] = weightDims;
    const [, weight = '', bias = ''] = conv.inputs;
    const planes = pictures * groups;
    const pixels = outHeight * outWidth;
    const values = this.#reshape(padded, [planes, channels, paddedHeight, paddedWidth]);
    const grid = this.#grid();
    const masks = mask && this.#reshape(mask, [planes, 1, taps, pixels]);
    const weights = this.#reshape(weight, [outputs, channelsOfGroup, taps]);
    let total = '';
    const each = Math.ceil(taps / Math.min(TAP_GROUPS_MAX, taps));
    for (let from = 0; from < taps; from += each) {
      const to = Math.min(taps, from + each);
      const count = to - from;
      const at = this.#reshape(this.#slice(grid, 1, from, to), [
        planes,
        count * outHeight,
        outWidth,
        2,
      ]);
      let sampled = this.#add('GridSample', [values, at], this.#sampling);
      if (masks !== undefined) {
        const flat = this.#reshape(sampled, [planes, channels, count, pixels]);
        sampled = this.#add('Mul', [flat, this.#slice(masks, 2, from, to)]);
      }
      const laidOut = [pictures, groups * channels * count, outHeight, outWidth];
      const weightsHere = this.#reshape(this.#slice(weights, 2, from, to), [
        ...[outputs, channelsOfGroup * count, 1, 1],
      ]);
      const inputs = [this.#reshape(sampled, laidOut), weightsHere];
      if (bias !== '' && from === 0) inputs.push(bias);
      const group = conv.attributes.filter(({ name }) => name === 'group');
      const part = this.#add('Conv', inputs, [integers('kernel_shape', [1, 1]), ...group]);
      // One after the other: fewer are in memory, and WebGPU has no kernel of Sum.
      total = from === 0 ? part : this.#add('Add', [total, part]);
    }
    return this.#nodes.map(node =>
      node.outputs[0] === total ? { ...node, outputs: conv.outputs } : node,
    );
  }

  /** [planes, taps, h * w, 2]: x and y from -1 to 1 between the middles of the outer pixels. */
  #grid(): string {
    const { positions, pictures, groups, taps, outHeight, outWidth } = this.#block;
    const { paddedHeight, paddedWidth } = this.#block;
    const planes = pictures * groups;
    const apart = this.#reshape(positions, [planes, taps, 2, outHeight * outWidth]);
    const last = this.#add('Transpose', [apart], [integers('perm', [0, 1, 3, 2])]);
    const order = this.#constant(int64Tensor([1, 0], [2]));
    const xThenY = this.#add('Gather', [last, order], [integer('axis', 3)]);
    const scales = [2 / (paddedWidth - 1), 2 / (paddedHeight - 1)];
    const scaled = this.#add('Mul', [xThenY, this.#constant(float32Tensor(scales, [2]))]);
    return this.#add('Sub', [scaled, this.#constant(float32Tensor([1], []))]);
  }

  #slice(name: string, axis: number, from: number, to: number): string {
    const bounds = [from, to, axis].map(bound => this.#constant(int64Tensor([bound], [1])));
    return this.#add('Slice', [name, ...bounds]);
  }

  #reshape(name: string, dims: readonly number[]): string {
    return this.#add('Reshape', [name, this.#constant(int64Tensor(dims, [dims.length]))]);
  }

  #add(
    opType: string,
    inputs: readonly string[],
    attributes: GraphNode['attributes'] = [],
  ): string {
    const output = this.#name();
    this.#nodes.push(nodeOf(opType, inputs, output, attributes));
    return output;
  }

  #constant(tensor: Tensor): string {
    const name = this.#name();
    this.#initialisers.set(name, tensor);
    return name;
  }

  #name(): string {
    this.#count += 1;
    return `matting.mend.${this.#block.conv.outputs[0]}.${this.#count}`;
  }
}
