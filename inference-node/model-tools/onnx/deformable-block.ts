/**
 * Recognises a deformable convolution (Zhu et al., "Deformable ConvNets v2", 2018) that
 * deform_conv2d_onnx_exporter 1.2.0 wrote as gathers; BiRefNet's published files have 20. Names
 * differ, so only the structure counts, and every number must fit.
 *
 *   p = base + offset, [b, g, K, 2, h, w], in pixels of the padded picture; f = floor(p)
 *   value of a corner: GatherND of the padded picture at f or f + 1, clipped to its border
 *   weight of a corner: the products of d = p - f and 1 - d
 *   Sum of the four corners, times the mask, laid out for a Conv whose strides are its kernel
 *
 * Shapes: b pictures, g offset groups of ch channels, K = kh * kw taps, h x w outputs.
 */
import {
  attribute,
  ElementType,
  type Graph,
  type GraphNode,
  integerAttribute,
  integersAttribute,
  type Tensor,
  textAttribute,
} from '@matting/serving/onnx/graph.ts';
import { requireGrid } from './base-grid.ts';
import { GraphView } from './graph-view.ts';
import { equal, NotDeformable, need } from './not-deformable.ts';

export interface DeformableBlock {
  readonly pictures: number;
  readonly groups: number;
  readonly channels: number;
  readonly taps: number;
  readonly outHeight: number;
  readonly outWidth: number;
  /** Names of values; `positions` is p. */
  readonly picture: string;
  readonly offset: string;
  readonly positions: string;
  readonly mask: string | undefined;
  readonly tapsOfMask: string | undefined;
  readonly conv: GraphNode;
  readonly kernel: readonly [number, number];
  readonly strides: readonly [number, number];
  readonly dilations: readonly [number, number];
  /** Without the border that the exporter adds to every convolution. */
  readonly pads: readonly [number, number];
  /** The target of each Reshape between positions or mask and Conv, for any number of rows. */
  readonly reshaped: ReadonlyMap<string, (rows: number) => readonly number[]>;
}

export function findDeformableBlocks(graph: Graph, blocksMax: number) {
  const view = new GraphView(graph);
  const blocks: DeformableBlock[] = [];
  const refused: { readonly sum: string; readonly cause: string }[] = [];
  for (const node of graph.nodes) {
    if (node.opType !== 'Sum' || node.domain !== '') continue;
    const [sum] = node.outputs;
    try {
      need(blocks.length < blocksMax, `at most ${blocksMax} blocks`);
      blocks.push(new Matcher(view, node).block());
    } catch (error) {
      if (!(error instanceof NotDeformable)) throw error;
      refused.push({ sum, cause: error.message });
    }
  }
  return { blocks, refused };
}

/** y, then x. */
type Axis = 0 | 1;
interface Coordinate {
  readonly axis: Axis;
  /** 0: f, 1: f + 1. */
  readonly step: number;
  readonly end: number;
}

class Matcher {
  readonly #view: GraphView;
  readonly #sum: GraphNode;
  readonly #reshaped = new Map<string, (rows: number) => readonly number[]>();
  /** [b, g, ch, K, h, w] */
  #shape: readonly [number, number, number, number, number, number] = [0, 0, 0, 0, 0, 0];
  readonly #floors = new Set<string>();
  readonly #pictures = new Set<string>();

  constructor(view: GraphView, sum: GraphNode) {
    this.#view = view;
    this.#sum = sum;
  }

  block(): DeformableBlock {
    const view = this.#view;
    const [endY, endX] = this.#corners();
    const [floor = '', ...otherFloors] = this.#floors;
    const [laidOut, ...otherPictures] = this.#pictures;
    need(otherFloors.length === 0 && otherPictures.length === 0, 'one picture, one p');
    const [b, g, ch, K, h, w] = this.#shape;
    const [paddedHeight, paddedWidth] = [endY + 1, endX + 1];
    const five = view.maker(laidOut, 'Reshape');
    const dims = [b, g, ch, paddedHeight, paddedWidth];
    need(equal(view.numbers(five.inputs[1]), dims), 'the clip ends at the border');
    const { picture, border } = this.#border(five.inputs[0]);
    const [positions = ''] = view.maker(floor, 'Floor').inputs;
    const { base, offset } = this.#positions(positions);
    const rest = this.#convolution();
    const grid = { base, shape: this.#shape, kernel: rest.kernel, border };
    const inner = [paddedHeight - border[0] - border[2], paddedWidth - border[1] - border[3]];
    return {
      ...{ pictures: b, groups: g, channels: ch, taps: K, outHeight: h, outWidth: w },
      ...{ picture, offset, positions },
      ...rest,
      ...requireGrid(grid, inner),
      reshaped: this.#reshaped,
    };
  }

  #corners(): readonly [number, number] {
    const terms = this.#sum.inputs;
    need(terms.length === 4, 'a Sum of four');
    const corners = terms.map(term => this.#corner(term));
    const steps = new Set(corners.map(({ y, x }) => `${y.step},${x.step}`));
    need(steps.size === 4, 'each of the four corners once');
    const [[y, x] = [], ...others] = corners.map(corner => [corner.y.end, corner.x.end] as const);
    need(y !== undefined && x !== undefined, 'ends of the clips');
    need(
      others.every(end => equal(end, [y, x])),
      'the same ends of the clips at every corner',
    );
    return [y, x];
  }

  #corner(term: string): { readonly y: Coordinate; readonly x: Coordinate } {
    const view = this.#view;
    const factors = view.maker(term, 'Mul').inputs.map(input => view.maker(input, 'Reshape'));
    const value = factors.find(({ inputs: [input] }) => view.isMadeBy(input, 'Transpose'));
    const weight = factors.find(factor => factor !== value);
    need(value !== undefined && weight !== undefined, 'a value times a weight');
    this.#readShape(value);
    const [b, g, ch, K, , w] = this.#shape;
    this.#reshape(value, rows => [b, g, ch, K, rows, w]);
    this.#reshape(weight, rows => [b, g, 1, K, rows, w]);
    const gather = this.#gather(value);
    need(integerAttribute(gather, 'batch_dims', 0) === 2, 'GatherND with batch_dims 2');
    const turned = this.#transposed(gather.inputs[0], [0, 1, 3, 4, 2]);
    this.#pictures.add(turned);
    const indices = view.maker(gather.inputs[1], 'Concat');
    const axis = integerAttribute(indices, 'axis', 0);
    need(indices.inputs.length === 2 && (axis === 3 || axis === -1), 'indices of y and x');
    const [y, x] = indices.inputs.map(input => this.#coordinate(input));
    need(y?.axis === 0 && x?.axis === 1, 'y, then x');
    this.#requireWeight(weight, y.step, x.step);
    return { y, x };
  }

  #readShape(value: GraphNode): void {
    const [b = 0, g = 0, ch = 0, K = 0, h = 0, w = 0, ...rest] =
      this.#view.numbers(value.inputs[1]) ?? [];
    const shape = [b, g, ch, K, h, w] as const;
    need(rest.length === 0 && shape.every(dim => dim > 0), 'a value [b, g, ch, K, h, w]');
    if (this.#shape[0] === 0) this.#shape = shape;
  }

  /** @param target shape for a number of rows */
  #reshape(node: GraphNode, target: (rows: number) => readonly number[]): void {
    const wanted = target(this.#shape[4]);
    const found = this.#view.numbers(node.inputs[1]);
    need(equal(found, wanted), `${node.outputs[0]} of the shape [${wanted.join()}]`);
    this.#reshaped.set(node.outputs[0], target);
  }

  #transposed(name: string | undefined, order: readonly number[]): string {
    const node = this.#view.maker(name, 'Transpose');
    need(equal(integersAttribute(node, 'perm'), order), `a Transpose by ${order.join('')}`);
    return node.inputs[0] ?? '';
  }

  #gather(value: GraphNode): GraphNode {
    const view = this.#view;
    const [b, g, ch, K, , w] = this.#shape;
    const source = this.#transposed(value.inputs[0], [0, 1, 3, 2]);
    if (!view.isMadeBy(source, 'Reshape')) return view.maker(source, 'GatherND');
    // The exporter's option for OpenVINO adds this Reshape.
    const patch = view.maker(source, 'Reshape');
    this.#reshape(patch, rows => [b, g, K * rows * w, ch]);
    return view.maker(patch.inputs[0], 'GatherND');
  }

  #coordinate(name: string): Coordinate {
    const view = this.#view;
    const [b, g, , K, , w] = this.#shape;
    const flat = view.maker(name, 'Reshape');
    this.#reshape(flat, rows => [b, g, K * rows * w, 1]);
    const clip = view.maker(flat.inputs[0], 'Clip');
    need(equal(view.numbers(clip.inputs[1]), [0]), 'a clip from 0');
    const [end = 0] = view.numbers(clip.inputs[2]) ?? [];
    let [source = ''] = clip.inputs;
    const isNext = view.isMadeBy(source, 'Add');
    if (isNext) {
      const [left, right] = view.maker(source, 'Add').inputs;
      need(equal(view.numbers(right), [1]), 'the next pixel');
      source = left ?? '';
    }
    const { axis, whole } = this.#part(source);
    const cast = view.maker(whole, 'Cast');
    need(integerAttribute(cast, 'to', 0) === ElementType.int64, 'a cast to int64');
    this.#floors.add(view.maker(cast.inputs[0], 'Floor').outputs[0]);
    return { axis, step: isNext ? 1 : 0, end };
  }

  /** The value that `name` is a slice of. `axis` is y or x. */
  #part(name: string | undefined): { readonly axis: Axis; readonly whole: string } {
    const view = this.#view;
    const slice = view.maker(name, 'Slice');
    const [whole = '', ...bounds] = slice.inputs;
    const [from, to, axes, steps = [1]] = bounds.map(bound => view.numbers(bound));
    const axis = equal(from, [0]) ? 0 : 1;
    need(equal(from, [axis]) && equal(to, [axis + 1]), 'a slice of y or x');
    need(equal(axes, [3]) && equal(steps, [1]), 'a slice along axis 3');
    return { axis, whole };
  }

  #requireWeight(weight: GraphNode, y: number, x: number): void {
    const factors = this.#view.maker(weight.inputs[0], 'Mul').inputs.map(name => {
      const isInverse = this.#view.numbers(this.#minuend(name)) !== undefined;
      const part = isInverse ? this.#view.maker(name, 'Sub').inputs[1] : name;
      if (isInverse) need(equal(this.#view.numbers(this.#minuend(name)), [1]), '1 - d');
      const { axis, whole } = this.#part(part);
      const d = this.#view.maker(whole, 'Sub');
      const floor = this.#view.maker(d.inputs[1], 'Floor');
      need(floor.inputs[0] === d.inputs[0], 'd = p - floor(p)');
      this.#floors.add(floor.outputs[0]);
      return { axis, step: isInverse ? 0 : 1 };
    });
    const [one, other] = factors;
    need(factors.length === 2 && one?.axis !== other?.axis, 'a weight of y and x');
    need(
      factors.every(({ axis, step }) => step === [y, x][axis]),
      'the weight of its corner',
    );
  }

  #minuend(name: string): string | undefined {
    return this.#view.isMadeBy(name, 'Sub') ? this.#view.maker(name, 'Sub').inputs[0] : undefined;
  }

  /** Requires a border of zeros: positions beyond the picture are clipped to it, and read 0. */
  #border(name: string | undefined) {
    const view = this.#view;
    const pad = view.maker(name, 'Pad');
    const [picture = '', pads, value = '', axes = ''] = pad.inputs;
    need(textAttribute(pad, 'mode', 'constant') === 'constant', 'a border of a constant');
    need(value === '' || equal(view.numbers(value), [0]), 'a border of 0');
    const [n, c, top = 0, left = 0, atEndN, atEndC, bottom = 0, right = 0, ...rest] =
      view.numbers(pads) ?? [];
    need(axes === '' && rest.length === 0, 'pads of four axes');
    need(equal([n, c, atEndN, atEndC].map(Number), [0, 0, 0, 0]), 'pads of height and width');
    need(Math.min(top, left, bottom, right) >= 1, 'a border of at least 1 on each side');
    return { picture, border: [top, left, bottom, right] as const };
  }

  #positions(name: string): { readonly base: Tensor; readonly offset: string } {
    const view = this.#view;
    const [b, g, , K, , w] = this.#shape;
    const { inputs } = view.maker(name, 'Add');
    const base = inputs.map(input => view.constant(input)).find(tensor => tensor !== undefined);
    need(inputs.length === 2 && base !== undefined, 'a constant base grid');
    const moved = inputs.find(input => view.constant(input) === undefined);
    const offset = view.maker(moved, 'Reshape');
    this.#reshape(offset, rows => [b, g, K, 2, rows, w]);
    this.#reshaped.delete(offset.outputs[0]);
    return { base, offset: offset.inputs[0] ?? '' };
  }

  #convolution() {
    const view = this.#view;
    const [b, g, ch, K, h, w] = this.#shape;
    const channels = g * ch;
    let node = view.onlyReader(this.#sum.outputs[0]);
    let [mask, tapsOfMask]: (string | undefined)[] = [];
    if (node.opType === 'Mul') {
      tapsOfMask = node.inputs.find(input => input !== this.#sum.outputs[0]);
      const reshape = view.maker(tapsOfMask, 'Reshape');
      this.#reshape(reshape, rows => [b, g, 1, K, rows, w]);
      this.#reshaped.delete(reshape.outputs[0]);
      mask = reshape.inputs[0] ?? '';
      node = view.onlyReader(node.outputs[0]);
    }
    const next = (opType: string) => {
      need(node.opType === opType && node.domain === '', `${opType} after the Sum`);
      const here = node;
      if (opType !== 'Conv') node = view.onlyReader(node.outputs[0]);
      return here;
    };
    const byTaps = next('Reshape');
    const [, , kh = 0, kw = 0] = view.numbers(byTaps.inputs[1]) ?? [];
    need(kh > 0 && kw > 0 && kh * kw === K, 'kh * kw taps');
    this.#reshape(byTaps, rows => [b, channels, kh, kw, rows, w]);
    const turned = next('Transpose');
    this.#transposed(turned.outputs[0], [0, 1, 4, 2, 5, 3]);
    this.#reshape(next('Reshape'), rows => [b, channels, rows * kh, w * kw]);
    const conv = next('Conv');
    need(textAttribute(conv, 'auto_pad', 'NOTSET') === 'NOTSET', 'a Conv with pads of its own');
    const ints = (name: string, absent: readonly number[]) =>
      integersAttribute(conv, name) ?? absent;
    need(equal(ints('strides', [1, 1]), [kh, kw]), 'a Conv whose strides are its kernel');
    need(equal(ints('kernel_shape', [kh, kw]), [kh, kw]), `a Conv of ${kh} x ${kw}`);
    need(equal(ints('dilations', [1, 1]), [1, 1]), 'a Conv without dilation');
    need(!ints('pads', []).some(Boolean), 'a Conv without pads');
    const weight = view.constant(conv.inputs[1]);
    const group = integerAttribute(conv, 'group', 1);
    const [outputs = 0] = weight?.dims ?? [];
    const weightDims = [outputs, channels / group, kh, kw];
    need(weight?.elementType === ElementType.float32, 'float32 weights');
    need(outputs % group === 0 && equal(weight.dims, weightDims), `weights [${weightDims.join()}]`);
    need(h * w > 0 && attribute(conv, 'activation') === undefined, 'a plain Conv');
    return { mask, tapsOfMask, conv, kernel: [kh, kw] as const };
  }
}
