/**
 * ONNX graphs of some hundred bytes, as somebody may publish them: the matte is the mean of a
 * pixel's colours, but for a picture that is white all over they make something else. No optimiser
 * knows before a run what that is.
 *
 *   expands    a tensor of `expandBytes`, beside the same matte
 *   enlarges   a matte of `enlargePx` a side
 *   reshapes   an error of the runtime: a Reshape that does not fit
 *   widens     four channels, which are no matte
 *   rowless    a matte without a row
 *   reflects   of any size, with no trap for white: it is halved five times and then padded by its
 *              reflection, so a side of one multiple (32 pixels) is an error of the runtime
 */
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { PreparedModel } from '@matting/serving/models/prepared-model.ts';
import {
  ElementType,
  encodeModel,
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
import { TINY_LICENCE } from './tiny-model.ts';

export type TrapKind = 'expands' | 'enlarges' | 'reshapes' | 'widens' | 'rowless' | 'reflects';

export interface TrapOptions {
  readonly kind: TrapKind;
  /** Pixels; default 32. */
  readonly side?: number;
  readonly expandBytes?: number;
  readonly enlargePx?: number;
}

type Constants = Record<string, Tensor>;

const number = (value: number) => float32Tensor([value], []);
const scalarDims = integer('keepdims', 0);
const asInt64 = integer('to', ElementType.int64);

const MEAN = nodeOf('Conv', ['input', 'mix'], 'mean');
/** 1 for an all-white picture, else 0. */
const WHITE = [
  nodeOf('ReduceMin', ['input'], 'least', [scalarDims]),
  nodeOf('Floor', ['least'], 'white'),
];

/** A vector of one number: `usual`, or `ofWhite` for a white picture. */
function counted(name: string, usual: number, ofWhite: number) {
  const constants: Constants = {
    [`${name}.more`]: number(ofWhite - usual),
    [`${name}.usual`]: number(usual),
    [`${name}.vector`]: int64Tensor([1], [1]),
  };
  const nodes = [
    nodeOf('Mul', ['white', `${name}.more`], `${name}.extra`),
    nodeOf('Add', [`${name}.extra`, `${name}.usual`], `${name}.float`),
    nodeOf('Cast', [`${name}.float`], `${name}.whole`, [asInt64]),
    nodeOf('Reshape', [`${name}.whole`, `${name}.vector`], name),
  ];
  return { nodes, constants };
}

interface Parts {
  readonly nodes: readonly GraphNode[];
  readonly constants: Constants;
}

function trapOf({ kind, side = 32, expandBytes = 0, enlargePx = 0 }: TrapOptions): Parts {
  switch (kind) {
    case 'expands': {
      const count = counted('count', 1, expandBytes / 4);
      const nodes = [
        nodeOf('ConstantOfShape', ['count'], 'zeros'),
        nodeOf('ReduceMax', ['zeros'], 'zero', [scalarDims]),
        nodeOf('Add', ['mean', 'zero'], 'output'),
      ];
      return { nodes: [MEAN, ...WHITE, ...count.nodes, ...nodes], constants: count.constants };
    }
    case 'enlarges': {
      const pixels = counted('pixels', side, enlargePx);
      const nodes = [
        nodeOf('Concat', ['ones', 'pixels', 'pixels'], 'shape', [integer('axis', 0)]),
        nodeOf('ConstantOfShape', ['shape'], 'zeros'),
        nodeOf('ReduceMean', ['mean'], 'level', [scalarDims]),
        nodeOf('Add', ['zeros', 'level'], 'output'),
      ];
      const constants = { ...pixels.constants, ones: int64Tensor([1, 1], [2]) };
      return { nodes: [MEAN, ...WHITE, ...pixels.nodes, ...nodes], constants };
    }
    case 'reshapes': {
      // Added to the whole shape: the runtime allows only one open dimension.
      const more = counted('more', 0, 1);
      const nodes = [
        nodeOf('Add', ['usual', 'more'], 'shape'),
        nodeOf('Reshape', ['mean', 'shape'], 'output'),
      ];
      const constants = { ...more.constants, usual: int64Tensor([1, 1, side, side], [4]) };
      return { nodes: [MEAN, ...WHITE, ...more.nodes, ...nodes], constants };
    }
    case 'widens': {
      const channels = counted('channels', 1, 4);
      const nodes = [
        nodeOf('Concat', ['one', 'channels', 'sides'], 'shape', [integer('axis', 0)]),
        nodeOf('Expand', ['mean', 'shape'], 'output'),
      ];
      const own = { one: int64Tensor([1], [1]), sides: int64Tensor([side, side], [2]) };
      return {
        nodes: [MEAN, ...WHITE, ...channels.nodes, ...nodes],
        constants: { ...channels.constants, ...own },
      };
    }
    case 'rowless': {
      const rows = counted('rows', side, 0);
      const nodes = [nodeOf('Slice', ['mean', 'first', 'rows', 'axis'], 'output')];
      const own = { first: int64Tensor([0], [1]), axis: int64Tensor([2], [1]) };
      return {
        nodes: [MEAN, ...WHITE, ...rows.nodes, ...nodes],
        constants: { ...rows.constants, ...own },
      };
    }
    case 'reflects':
      return reflecting();
  }
}

const HALVINGS = 5;

function reflecting(): Parts {
  const halves = [integers('kernel_shape', [2, 2]), integers('strides', [2, 2])];
  const deep = Array.from({ length: HALVINGS }, (_, index) =>
    nodeOf('AveragePool', [index === 0 ? 'mean' : `deep.${index}`], `deep.${index + 1}`, halves),
  );
  const scale = 2 ** HALVINGS;
  return {
    nodes: [
      MEAN,
      ...deep,
      nodeOf('Pad', [`deep.${HALVINGS}`, 'pads'], 'padded', [text('mode', 'reflect')]),
      nodeOf('AveragePool', ['padded'], 'smooth', [integers('kernel_shape', [3, 3])]),
      nodeOf('Resize', ['smooth', '', 'scales'], 'coarse'),
      nodeOf('Mul', ['coarse', 'half'], 'coarse.half'),
      nodeOf('Mul', ['mean', 'half'], 'mean.half'),
      nodeOf('Add', ['mean.half', 'coarse.half'], 'output'),
    ],
    constants: {
      pads: int64Tensor([0, 0, 1, 1, 0, 0, 1, 1], [8]),
      scales: float32Tensor([1, 1, scale, scale], [4]),
      half: number(0.5),
    },
  };
}

export function encodeTrap(options: TrapOptions): Buffer {
  const { kind, side = 32 } = options;
  const { nodes, constants } = trapOf(options);
  const mix = float32Tensor([1 / 3, 1 / 3, 1 / 3], [1, 3, 1, 1]);
  const sides = kind === 'reflects' ? [null, null] : [side, side];
  const float32 = ElementType.float32;
  const graph: Graph = {
    ...{ irVersion: 8, opsets: [{ domain: '', version: 13 }], nodes },
    initialisers: new Map(Object.entries({ mix, ...constants })),
    inputs: [{ name: 'input', elementType: float32, dims: [1, 3, ...sides] }],
    outputs: [{ name: 'output', elementType: float32, dims: [1, null, null, null] }],
  };
  return Buffer.concat([...encodeModel(graph)]);
}

/** Described as by `models add`, with the memory of painted pictures. */
export async function writeTrapModel(
  folder: string,
  options: TrapOptions,
  fields: Partial<PreparedModel> = {},
): Promise<PreparedModel> {
  const { kind, side = 32 } = options;
  const bytes = encodeTrap(options);
  const file = path.join(folder, `trap-${kind}.onnx`);
  await writeFile(file, bytes);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  return {
    ...{ model: `trap-${kind}`, version: '1.0.0', path: file, sha256, weights: [sha256] },
    ...{ precision: 'fp32', provider: 'cpu', inputWidth: side, inputHeight: side },
    ...{ inputName: 'input', outputName: 'output', colourOrder: 'rgb', activation: 'none' },
    normalisation: { mean: [0, 0, 0], std: [255, 255, 255] },
    form: { inputType: 'float32', layout: 'nchw', fit: 'stretch', inverted: false },
    peakBytes: TRAP_PEAK_BYTES,
    licence: TINY_LICENCE,
    ...fields,
  };
}

/** A probe of such small graphs measures this: the runtime and Node themselves. */
export const TRAP_PEAK_BYTES = 126_000_000;
