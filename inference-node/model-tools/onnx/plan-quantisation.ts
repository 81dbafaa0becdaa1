/**
 * Chooses which values become bytes: inputs of convolutions, which cost most, and all between two
 * of them. The last part stays float, since logits of 256 steps would show as terraces in the
 * matte.
 */
import {
  ElementType,
  type Graph,
  type GraphNode,
  makersOf,
  onlyInput,
  readersOf,
} from '@matting/serving/onnx/graph.ts';
import { inferValues } from './infer.ts';

interface QuantisationPlan {
  readonly measured: readonly string[];
  /** Values that take another's scale, because they contain only its numbers. */
  readonly sharing: ReadonlyMap<string, string>;
  readonly convolutions: ReadonlySet<string>;
}

interface QuantisationPlanOptions {
  /** True if one scale fits all channels, so that the picture's bytes can be the input. */
  readonly inputIsExact: boolean;
  /**
   * Convolutions that stay float32. Their values are hundreds in a few places and small elsewhere,
   * which 256 steps do not fit.
   */
  readonly float32?: ReadonlySet<string>;
}

/** Operators that select or interpolate: no output lies outside of the input's range. */
const SHARING_OPERATORS: ReadonlySet<string> = new Set(['MaxPool', 'Resize']);
/** Operators that have kernels on bytes, or lose nothing if their result becomes bytes. */
const JOINING_OPERATORS: ReadonlySet<string> = new Set(['Concat', 'Add']);
/** The runtime fuses them into the convolution before. */
const ACTIVATIONS: ReadonlySet<string> = new Set(['Relu', 'Clip']);

/** A convolution with at most this many input channels reads logits and makes the matte. */
const LOGIT_CHANNELS_MAX = 8;

export function planQuantisation(graph: Graph, options: QuantisationPlanOptions): QuantisationPlan {
  const readers = readersOf(graph.nodes);
  const tail = floatTail(graph);
  const wide = readByFloat32(graph, readers, options.float32 ?? new Set());
  const measured: string[] = [];
  const sharing = new Map<string, string>();
  const convolutions = new Set<string>();
  const bytes = new Set<string>();
  const { name: input, dims } = onlyInput(graph);
  // Shape arithmetic uses these operators, too, on numbers that are not pixels.
  const known = inferValues(graph, dims.map(Number));
  const isFloat = (name: string) =>
    (known.get(name)?.elementType ?? ElementType.float32) === ElementType.float32;
  if (options.inputIsExact) bytes.add(input);
  for (const node of graph.nodes) {
    const [output] = node.outputs;
    const [source = ''] = node.inputs;
    if (isConvolution(node, graph) && !tail.has(output)) {
      const stays = options.float32?.has(output) || (source === input && !bytes.has(input));
      if (!stays) convolutions.add(output);
    }
    if (tail.has(output) || wide.has(output) || !isFloat(output)) continue;
    const readBy = readers.get(output) ?? [];
    if (isFused(readBy)) continue;
    if (SHARING_OPERATORS.has(node.opType) && bytes.has(source)) {
      sharing.set(output, source);
      bytes.add(output);
    } else if (becomesBytes(node, graph) || readBy.some(reader => isConvolution(reader, graph))) {
      measured.push(output);
      bytes.add(output);
    }
  }
  return { measured, sharing, convolutions };
}

function becomesBytes(node: GraphNode, graph: Graph): boolean {
  if (node.domain !== '') return false;
  if (JOINING_OPERATORS.has(node.opType)) {
    return node.inputs.every(name => !graph.initialisers.has(name));
  }
  return ACTIVATIONS.has(node.opType) || isConvolution(node, graph);
}

/** True if an activation is the only reader: its result becomes bytes, not the node's. */
function isFused(readBy: readonly GraphNode[]): boolean {
  const [reader, ...others] = readBy;
  return reader !== undefined && others.length === 0 && ACTIVATIONS.has(reader.opType);
}

function isConvolution(node: GraphNode, graph: Graph): boolean {
  const [, weights = ''] = node.inputs;
  return node.opType === 'Conv' && node.domain === '' && graph.initialisers.has(weights);
}

/** Values that only convolutions of `float32` read, also through nodes that pass values on. */
function readByFloat32(
  graph: Graph,
  readers: ReadonlyMap<string, readonly GraphNode[]>,
  float32: ReadonlySet<string>,
): ReadonlySet<string> {
  const found = new Set<string>();
  const passesOn = ({ opType }: GraphNode) =>
    SHARING_OPERATORS.has(opType) || JOINING_OPERATORS.has(opType);
  for (const node of graph.nodes.toReversed()) {
    const [output] = node.outputs;
    const readBy = readers.get(output) ?? [];
    const isWide = (reader: GraphNode) =>
      float32.has(reader.outputs[0]) || (passesOn(reader) && found.has(reader.outputs[0]));
    if (readBy.length > 0 && readBy.every(isWide)) found.add(output);
  }
  return found;
}

/** Values from the outputs of the last feature convolutions to the matte: logits and the matte. */
function floatTail(graph: Graph): ReadonlySet<string> {
  const makers = makersOf(graph.nodes);
  const tail = new Set<string>();
  const open = graph.outputs.map(({ name }) => name);
  for (let name = open.pop(); name !== undefined; name = open.pop()) {
    const maker = makers.get(name);
    // After an activation a value is a feature, not a logit.
    if (maker === undefined || tail.has(name) || ACTIVATIONS.has(maker.opType)) continue;
    tail.add(name);
    const channels = graph.initialisers.get(maker.inputs[1] ?? '')?.dims[1] ?? 0;
    const ends = maker.opType === 'Conv' && channels > LOGIT_CHANNELS_MAX;
    if (!ends) open.push(...maker.inputs);
  }
  return tail;
}
