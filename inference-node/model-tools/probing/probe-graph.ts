/** A stranger may have made the file, so only a bounded child loads it. */
import path from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { type FormSpec, formIo } from '@matting/serving/engine/child/form-io.ts';
import {
  type GraphRun,
  type LoadedGraph,
  ProbeProcess,
  RunFailed,
} from '@matting/serving/engine/probe/probe-process.ts';
import { ModelError, printable } from '@matting/serving/models/model-error.ts';
import type { GraphForm } from '@matting/serving/models/prepared-model.ts';
import {
  cutOut,
  fitToInput,
  fitWithTrimap,
  type RoleMatte,
} from '@matting/serving/picture/in-process.ts';
import { drawPicture } from './drawn-picture.ts';
import { describeTensor, matteOutputs, type PictureInput, pictureInput } from './find-tensors.ts';
import { openMendedCopy } from './mended-copy.ts';
import { requireOnnx } from './not-onnx.ts';
import {
  type Facts,
  longestSide,
  NO_NORMALISATION,
  type OpenFact,
  OpenFacts,
  type Probe,
  type ProbeLimits,
} from './probe-types.ts';

/**
 * @throws ModelError `prepare` for a bad file, `settings` for facts that do not fit it; OpenFacts
 */
export async function probeGraph(
  file: string,
  facts: Facts = {},
  limits: ProbeLimits = {},
): Promise<Probe> {
  const whole = path.resolve(file);
  await requireOnnx(whole, 'prepare');
  if (limits.asItIs) return await probeFile(whole, facts, limits);
  await using copy = await openMendedCopy(whole);
  try {
    const found = await probeFile(copy.path, facts, limits);
    return copy.isMended ? { ...found, mended: true } : found;
  } catch (error) {
    limits.signal?.throwIfAborted();
    const isOwn = !copy.isMended || !(error instanceof ModelError) || error.kind !== 'prepare';
    if (isOwn) throw error;
    return await probeFile(whole, facts, limits);
  }
}

async function probeFile(file: string, facts: Facts, limits: ProbeLimits): Promise<Probe> {
  await using child = new ProbeProcess(limits);
  const loaded = await child.load(file);
  const picture = pictureInput(loaded.inputs);
  const known = knownFacts(picture, loaded, facts);
  const { inputs, outputs } = loaded;
  const open = openFacts(picture, known);
  if (open.length > 0) {
    const words = (tensors: LoadedGraph['inputs']) => tensors.map(describeTensor).map(printable);
    throw new OpenFacts(open, { inputs: words(inputs), outputs: words(outputs), facts: known });
  }
  const spec = specOf(picture, known as KnownFacts);
  return await measure({ child, loaded, picture, spec, multipleOf: known.multipleOf });
}

function knownFacts(picture: PictureInput, { outputs }: LoadedGraph, facts: Facts): Facts {
  const { type, channels, width, height } = picture;
  const refuse = (why: string) =>
    new ModelError('settings', `${describeTensor(picture.input)}: ${why}`);
  if (type === 'uint8' && facts.normalisation !== undefined) {
    throw refuse('the graph normalises by itself; leave out --mean and --std');
  }
  if (channels === 3 && facts.trimap) throw refuse('the graph takes no trimap');
  const stated = facts.size;
  const size = { width: width ?? stated?.width, height: height ?? stated?.height };
  if (stated && (stated.width !== size.width || stated.height !== size.height)) {
    throw refuse(`the graph does not take pictures of ${sizeText(stated)}`);
  }
  const [first, ...others] = matteOutputs(outputs, facts.output);
  const isSure = others.length === 0 || facts.firstOutput;
  return {
    ...facts,
    ...(size.width && size.height && { size: size as Size }),
    ...(isSure && { output: first.name }),
    trimap: channels === 4 || facts.trimap === true,
  };
}

function openFacts({ type }: PictureInput, known: Facts): readonly OpenFact[] {
  const needed: Readonly<Record<OpenFact, boolean>> = {
    normalisation: type !== 'uint8',
    size: true,
    multipleOf: known.fit === 'short-side',
    activation: true,
    output: true,
  };
  const facts = Object.keys(needed) as OpenFact[];
  return facts.filter(fact => needed[fact] && known[fact] === undefined);
}

type KnownFacts = Facts & Required<Pick<Facts, 'size' | 'activation' | 'output'>>;

function specOf({ input, type, layout, ...sides }: PictureInput, known: KnownFacts): FormSpec {
  const { normalisation = NO_NORMALISATION, activation, colourOrder = 'rgb' } = known;
  const { size, output, fit = 'stretch', multipleOf = 1 } = known;
  const { width, height } = size;
  const refuse = (why: string) => new ModelError('settings', `${sizeText(size)}: ${why}`);
  const isOpen = sides.width === null || sides.height === null;
  if (isOpen && [width, height].some(side => side % multipleOf > 0)) {
    throw refuse(`the sides must be multiples of ${multipleOf}`);
  }
  if (fit === 'short-side' && (sides.width !== null || sides.height !== null || width !== height)) {
    throw refuse('a fit by the short side takes a graph of any size, and one side');
  }
  const form: GraphForm = {
    ...{ inputType: type, layout, fit, inverted: known.inverted === true },
    ...(known.trimap && { trimap: true }),
    ...(fit === 'short-side' && { sides: { multipleOf, max: longestSide(width, multipleOf) } }),
  };
  const ends = {
    inputName: input.name,
    outputName: output,
    inputWidth: width,
    inputHeight: height,
  };
  return { ...ends, form, normalisation, activation, colourOrder };
}

interface OpenGraph {
  readonly child: ProbeProcess;
  readonly loaded: LoadedGraph;
  readonly picture: PictureInput;
  readonly spec: FormSpec;
  readonly multipleOf: number | undefined;
}

const { picture: SHOWN, matte: alpha } = drawPicture();
const SUBJECT: RoleMatte = { alpha, width: SHOWN.width, height: SHOWN.height, role: 'subject' };

interface Run extends GraphRun {
  readonly rgb: Buffer;
  readonly size: Size;
}

async function runPicture({ child, spec }: OpenGraph): Promise<Run> {
  const { inputWidth: width, inputHeight: height, form } = spec;
  const terms = { width, height, ...form };
  const fitted = form.trimap ? fitWithTrimap(SHOWN, [SUBJECT], terms) : fitToInput(SHOWN, terms);
  if (fitted === undefined) throw new Error('the drawn matte has no edge to refine');
  const { rgb, size } = fitted;
  return { ...(await child.run(spec, rgb, size)), rgb, size };
}

async function measure(graph: OpenGraph): Promise<Probe> {
  const { child, loaded, spec } = graph;
  const { inputWidth: width, inputHeight: height } = spec;
  const runs: Run[] = [];
  try {
    runs.push(await runPicture(graph));
    child.allowFurtherRuns(runs[0]!);
    runs.push(await runPicture(graph));
  } catch (error) {
    if (!(error instanceof RunFailed)) throw error;
    throw refusal(`it does not run at ${width}x${height}: ${error.message}`);
  }
  const [run] = runs as [Run];
  const matte = matteOf(run, graph);
  const mattes = spec.form.trimap ? [SUBJECT, matte] : [matte];
  const shortestSide = await shortestSideOf(graph);
  return {
    graph: graphOf(graph),
    ...(shortestSide !== undefined && { shortestSide }),
    range: run.output.range,
    loadedBytes: loaded.loadedBytes,
    peakBytes: Math.max(...runs.map(({ peakBytes }) => peakBytes)),
    seconds: Math.min(...runs.map(({ seconds }) => seconds)),
    provider: 'cpu',
    cutout: await cutOut(SHOWN, mattes),
  };
}

function refusal(why: string, cause?: unknown): ModelError {
  return new ModelError('prepare', why, cause);
}

/** An answer with a smaller relative range counts as constant: the range is rounding. */
const CONSTANT_WITHIN = 1e-5;

/** @throws ModelError if the answer has no numbers, is constant, or has no matte's shape */
function matteOf({ output, values, rgb, size }: Run, { loaded, picture, spec }: OpenGraph) {
  const { notFinite, range } = output;
  if (notFinite) throw refusal('the graph answers with values that are not numbers');
  const tensor = loaded.outputs.find(({ name }) => name === spec.outputName);
  const io = formIo(spec, spec.form, { input: picture.input, output: tensor! });
  // Sets the picture's placement, which `answer` reads.
  io.input(rgb, size);
  const [least, most] = range;
  try {
    const answer = io.answer({ [spec.outputName]: { ...output, data: values } });
    if (most - least > CONSTANT_WITHIN * Math.max(1, Math.abs(most))) {
      const role: RoleMatte['role'] = spec.form.trimap ? 'refine' : 'subject';
      return { alpha: answer.alpha, ...answer.size, role };
    }
  } catch (error) {
    throw refusal((error as Error).message, error);
  }
  const shown = least.toPrecision(3);
  throw refusal(`its output is ${shown} everywhere; check the mean, the std and the output`);
}

/**
 * The shortest side that runs together with the longest, in both orientations, since a layer may be
 * larger than a narrow picture. Only the fit short-side has such inputs.
 */
async function shortestSideOf(graph: OpenGraph): Promise<number | undefined> {
  const { multipleOf = 1, spec } = graph;
  if (spec.form.fit !== 'short-side') return undefined;
  const { inputWidth: side } = spec;
  const long = longestSide(side, multipleOf);
  for (let short = multipleOf; short < side; short *= 2) {
    const lying = { inputWidth: long, inputHeight: short };
    const standing = { inputWidth: short, inputHeight: long };
    if ((await runsAt(graph, lying)) && (await runsAt(graph, standing))) return short;
  }
  return side;
}

async function runsAt(
  graph: OpenGraph,
  sides: Pick<FormSpec, 'inputWidth' | 'inputHeight'>,
): Promise<boolean> {
  const form = { ...graph.spec.form, fit: 'stretch' } as const;
  try {
    await runPicture({ ...graph, spec: { ...graph.spec, ...sides, form } });
    return true;
  } catch (error) {
    if (error instanceof RunFailed) return false;
    throw error;
  }
}

function graphOf({ spec, picture, loaded, multipleOf }: OpenGraph): Probe['graph'] {
  const { inputName, outputName, inputWidth, inputHeight, form } = spec;
  const { type: inputType, layout, width, height } = picture;
  const dynamic = (width === null || height === null) && multipleOf !== undefined;
  const tensors = { inputName, outputName, inputWidth, inputHeight, inputType, layout, dynamic };
  const precision = loaded.halves ? 'fp16' : 'fp32';
  return { ...tensors, ...(form.trimap && { trimap: true }), precision };
}

function sizeText({ width, height }: Size): string {
  return `${width}x${height}`;
}
