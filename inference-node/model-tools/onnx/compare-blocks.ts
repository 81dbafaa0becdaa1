/**
 * Makes a graph that runs each replaced convolution and its original form on a picture, and
 * measures their difference. A large original form takes gigabytes, so it runs in strips of rows.
 */
import {
  ElementType,
  float32Tensor,
  type Graph,
  type GraphNode,
  int64Tensor,
  integer,
  makersOf,
  nodeOf,
  type Tensor,
} from '@matting/serving/onnx/graph.ts';
import type { DeformableBlock } from './deformable-block.ts';
import type { Mended } from './mend.ts';
import { removeUnused } from './rewrites.ts';

/**
 * float32 [1, strips of all blocks]. A number is the root mean square of the strip's difference,
 * divided by that of its block's values and by DIFFERENCE_MAX. A strip above 1 differs too much.
 */
export const DIFFERENCES_OUTPUT = 'matting.differences';

/** BiRefNet lite at 1024 differs by at most 1.3e-6, and by 1 if the offsets are left out. */
const DIFFERENCE_MAX = 1e-4;

/** One array of a strip's samples. About ten are in memory at once. */
const STRIP_BYTES_MAX = 16 * 1024 ** 2;
const FLOAT_BYTES = 4;
/** Avoids a division by 0 if a block answers 0 everywhere. */
const NORM_MIN = 1e-30;

export function compareBlocks(stock: Graph, { graph, blocks }: Mended): Graph {
  const building: Building = {
    makers: makersOf(stock.nodes),
    nodes: [...graph.nodes],
    initialisers: new Map([...stock.initialisers, ...graph.initialisers]),
  };
  const differences = blocks.flatMap((block, index) => compareBlock(building, block, index));
  const output = { name: DIFFERENCES_OUTPUT, elementType: ElementType.float32 };
  const { nodes, initialisers } = building;
  nodes.push(nodeOf('Concat', differences, 'matting.strips', [integer('axis', 0)]));
  const dims = [1, differences.length];
  initialisers.set('matting.strips.dims', int64Tensor(dims, [2]));
  nodes.push(nodeOf('Reshape', ['matting.strips', 'matting.strips.dims'], DIFFERENCES_OUTPUT));
  const outputs = [{ ...output, dims }];
  return removeUnused({ ...graph, nodes, initialisers, outputs });
}

interface Building {
  readonly makers: ReadonlyMap<string, GraphNode>;
  readonly nodes: GraphNode[];
  readonly initialisers: Map<string, Tensor>;
}

function compareBlock(building: Building, block: DeformableBlock, index: number): string[] {
  const { outHeight, outWidth, pictures, groups, channels, taps, conv } = block;
  const stem = `matting.block.${index}`;
  const add = (opType: string, inputs: readonly string[], output: string) => {
    building.nodes.push(nodeOf(opType, inputs, output));
    return output;
  };
  const constant = (name: string, tensor: Tensor) => {
    building.initialisers.set(name, tensor);
    return name;
  };
  const slice = (name: string, axis: number, [from, to]: readonly number[], output: string) => {
    const bounds = [from ?? 0, to ?? 0, axis].map((bound, at) =>
      constant(`${output}.${at}`, int64Tensor([bound], [1])),
    );
    return add('Slice', [name, ...bounds], output);
  };
  const [mended] = conv.outputs;
  const whole = norm(building, mended, `${stem}.norm`);
  const before = nodesBefore(building.makers, block);
  const still = new Set(before.still.flatMap(({ outputs }) => outputs));
  const fixed = (name: string) => (still.has(name) ? `${stem}.${name}` : name);
  building.nodes.push(...before.still.map(node => renamed(node, fixed)));
  const rowBytes = FLOAT_BYTES * pictures * groups * channels * taps * outWidth;
  const rows = Math.max(1, Math.floor(STRIP_BYTES_MAX / rowBytes));
  const differences: string[] = [];
  for (let from = 0; from < outHeight; from += rows) {
    const strip = [from, Math.min(outHeight, from + rows)] as const;
    const names = new Map<string, string>();
    const own = `${stem}.${from}`;
    for (const value of [block.positions, block.tapsOfMask]) {
      if (value !== undefined) names.set(value, slice(fixed(value), 4, strip, `${own}.${value}`));
    }
    for (const node of before.moved) {
      for (const output of node.outputs) names.set(output, `${own}.${output}`);
      const target = block.reshaped.get(node.outputs[0])?.(strip[1] - from);
      const copy = renamed(node, name => names.get(name) ?? fixed(name));
      if (target === undefined) building.nodes.push(copy);
      else {
        const shape = constant(`${copy.outputs[0]}.to`, int64Tensor(target, [target.length]));
        building.nodes.push({ ...copy, inputs: copy.inputs.with(1, shape) });
      }
    }
    const stock = names.get(mended) ?? '';
    const difference = add(
      'Sub',
      [slice(mended, 2, strip, `${own}.mended`), stock],
      `${own}.difference`,
    );
    const share = Math.sqrt((strip[1] - from) / outHeight);
    const scale = constant(`${own}.share`, float32Tensor([share * DIFFERENCE_MAX], [1]));
    const wanted = add('Mul', [whole, scale], `${own}.wanted`);
    const found = norm(building, difference, `${own}.found`);
    differences.push(add('Div', [found, wanted], `${own}.relative`));
  }
  return differences;
}

/** The L2 norm, at least NORM_MIN, of shape [1]. NaN if any value is NaN. */
function norm({ nodes, initialisers }: Building, name: string, output: string): string {
  initialisers.set('matting.one-number', int64Tensor([1], [1]));
  initialisers.set('matting.norm-min', float32Tensor([NORM_MIN], [1]));
  nodes.push(nodeOf('ReduceL2', [name], `${output}.all`));
  nodes.push(nodeOf('Reshape', [`${output}.all`, 'matting.one-number'], `${output}.one`));
  nodes.push(nodeOf('Max', [`${output}.one`, 'matting.norm-min'], output));
  return output;
}

/** A block's original nodes. `moved` depend on positions or mask, so each strip has copies. */
function nodesBefore(makers: ReadonlyMap<string, GraphNode>, block: DeformableBlock) {
  const ends = new Set([block.picture, block.offset, block.mask]);
  const seen = new Set<GraphNode>();
  const sorted: GraphNode[] = [];
  const visit = (name: string) => {
    const node = ends.has(name) ? undefined : makers.get(name);
    if (node === undefined || seen.has(node)) return;
    seen.add(node);
    node.inputs.forEach(visit);
    sorted.push(node);
  };
  visit(block.conv.outputs[0]);
  const rows = new Set([block.positions, block.tapsOfMask]);
  const moved = sorted.filter(({ inputs, outputs }) => {
    if (!inputs.some(input => rows.has(input))) return false;
    for (const output of outputs) rows.add(output);
    return true;
  });
  return { moved, still: sorted.filter(node => !moved.includes(node)) };
}

function renamed(node: GraphNode, nameOf: (name: string) => string): GraphNode {
  const [output, ...others] = node.outputs;
  return {
    ...node,
    name: nameOf(output),
    inputs: node.inputs.map(nameOf),
    outputs: [nameOf(output), ...others.map(nameOf)],
  };
}
