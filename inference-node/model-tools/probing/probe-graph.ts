/**
 * Finds out what an ONNX file takes, gives and costs, by running it on pictures of which is known
 * what their subject is. The file is anybody's: a bounded child alone loads it.
 */
import path from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type FormSpec,
  formEnds,
  type TensorFacts,
} from '@matting/serving/engine/child/form-ends.ts';
import {
  type GraphRun,
  type LoadedGraph,
  type OutputValues,
  ProbeProcess,
  RunFailed,
} from '@matting/serving/engine/probe/probe-process.ts';
import { ModelError, printable } from '@matting/serving/models/model-error.ts';
import type { Activation, GraphForm } from '@matting/serving/models/prepared-model.ts';
import {
  cutOut,
  fitToInput,
  fitWithTrimap,
  type RoleMatte,
} from '@matting/serving/picture/in-process.ts';
import { type CheckPicture, checkPictures, meansOf } from './check-pictures.ts';
import {
  describeTensor,
  describeTensors,
  matteOutputs,
  openSides,
  type PictureInput,
  pictureInput,
  sizeText,
} from './ends.ts';
import { openMendedCopy } from './mended-copy.ts';
import { requireOnnx } from './not-onnx.ts';
import {
  longestSide,
  type NamedNormalisation,
  NORMALISATIONS,
  type Probe,
  type ProbeLimits,
  type ProbeWishes,
} from './probe.ts';
import {
  activationOf,
  chooseOutput,
  classesOf,
  isConstant,
  isInverted,
  rangeOf,
  rangeText,
} from './verdict.ts';

/** @throws ModelError `prepare` with what the file is or does, `settings` where wishes do not fit */
export async function probeGraph(
  file: string,
  wishes: ProbeWishes = {},
  limits: ProbeLimits = {},
): Promise<Probe> {
  const whole = path.resolve(file);
  await requireOnnx(whole, 'prepare');
  if (limits.asItIs) return await probeFile(whole, wishes, limits);
  await using copy = await openMendedCopy(whole);
  try {
    const found = await probeFile(copy.path, wishes, limits);
    return copy.isMended ? { ...found, mended: true } : found;
  } catch (error) {
    limits.signal?.throwIfAborted();
    const isOwn = !copy.isMended || !(error instanceof ModelError) || error.kind !== 'prepare';
    if (isOwn) throw error;
    // Preparing falls back to the file itself too, where the mended graph does not run.
    return await probeFile(whole, wishes, limits);
  }
}

async function probeFile(file: string, wishes: ProbeWishes, limits: ProbeLimits): Promise<Probe> {
  await using child = new ProbeProcess(limits);
  const graph = openGraph(child, await child.load(file), wishes);
  return await measure(await settleChannels(graph));
}

interface OpenGraph {
  readonly child: ProbeProcess;
  readonly loaded: LoadedGraph;
  readonly wishes: ProbeWishes;
  readonly picture: PictureInput;
  readonly spec: FormSpec;
  /** The wish alone, or those that a person chooses from. */
  readonly normalisations: readonly [NamedNormalisation, ...NamedNormalisation[]];
  /** More than one: which is the matte is not known yet. */
  readonly outputs: readonly [TensorFacts, ...TensorFacts[]];
  readonly warnings: string[];
}

function openGraph(child: ProbeProcess, loaded: LoadedGraph, wishes: ProbeWishes): OpenGraph {
  const picture = pictureInput(loaded.inputs, wishes.size);
  const outputs = matteOutputs(loaded.outputs, wishes.output);
  const { normalisation: asked, colourOrder = 'rgb' } = wishes;
  const [first, ...others] = NORMALISATIONS;
  // A graph of bytes gets one that is without effect.
  const [normalisation, ...rest]: OpenGraph['normalisations'] = asked
    ? [{ of: 'what was asked for', ...asked }]
    : [first, ...(picture.type === 'uint8' ? [] : others)];
  const spec: FormSpec = {
    ...{ form: formOf(picture, wishes), inputName: picture.input.name, activation: 'none' },
    ...{ outputName: outputs[0].name, normalisation, colourOrder },
    ...{ inputWidth: picture.size.width, inputHeight: picture.size.height },
  };
  const warnings =
    asked && picture.type === 'uint8'
      ? ['the graph normalises by itself: --mean and --std are without effect']
      : [];
  const normalisations = [normalisation, ...rest] as const;
  return { child, loaded, wishes, picture, spec, normalisations, outputs, warnings };
}

function formOf({ type, layout, size, dynamic, channels }: PictureInput, wishes: ProbeWishes) {
  const { fit = 'stretch' } = wishes;
  const form: GraphForm = {
    ...{ inputType: type, layout, fit, inverted: false },
    ...(channels === 4 && { trimap: true as const }),
  };
  if (fit !== 'short-side') return form;
  if (dynamic && size.width === size.height) {
    return { ...form, sides: { multipleOf: 1, max: size.width } };
  }
  const why = 'a fit by the short side takes a graph of any size, and one side';
  throw new ModelError('settings', `${why}: this one is for ${sizeText(size)}`);
}

/** Takes three channels where the graph leaves them open, unless four alone run. */
async function settleChannels(graph: OpenGraph): Promise<OpenGraph> {
  const { picture, spec } = graph;
  if (picture.channels !== null || (await runsAt(graph, picture.size))) return graph;
  const form = { ...spec.form, trimap: true } as const;
  const refining = { ...graph, spec: { ...spec, form } };
  return (await runsAt(refining, picture.size)) ? refining : graph;
}

/** Tells whether it runs with a picture of each of these sizes. */
async function runsAt(graph: OpenGraph, ...sizes: readonly Size[]): Promise<boolean> {
  for (const { width: inputWidth, height: inputHeight } of sizes) {
    const form = { ...graph.spec.form, fit: 'stretch' } as const;
    const spec = { ...graph.spec, form, inputWidth, inputHeight };
    try {
      await runPicture({ ...graph, spec }, checkPictures()[0]);
    } catch (error) {
      if (error instanceof RunFailed) return false;
      throw error;
    }
  }
  return true;
}

/** A graph that takes a trimap refines this matte. */
type Shown = Pick<CheckPicture, 'picture'> & Partial<Pick<CheckPicture, 'matte'>>;

type Matte = Pick<RoleMatte, 'alpha' | 'width' | 'height'>;

interface Run extends GraphRun {
  readonly shown: Shown;
  readonly output: OutputValues;
  /** The matte that the values are by an activation; an empty one where some are no numbers. */
  readonly matteBy: (activation: Activation, inverted?: boolean) => Matte;
}

async function runPicture(
  { child, spec, picture, outputs }: OpenGraph,
  shown: Shown,
  normalisation = spec.normalisation,
): Promise<Run> {
  const { inputWidth: width, inputHeight: height, form } = spec;
  const terms = { width, height, ...form };
  const fitted = form.trimap
    ? shown.matte && fitWithTrimap(shown.picture, [subjectOf(shown, shown.matte)], terms)
    : fitToInput(shown.picture, terms);
  if (fitted === undefined) {
    const why = 'the graph refines a matte, and of a picture of your own there is none';
    throw new ModelError('settings', `${why}; leave out --image`);
  }
  const { rgb, size } = fitted;
  const names = outputs.map(({ name }) => name);
  const ran = await child.run({ ...spec, normalisation }, names, rgb, size);
  const [output] = ran.outputs;
  if (output === undefined) throw new Error('a run without outputs');
  const matteBy = (activation: Activation, inverted = false) => {
    if (output.notFinite) return { alpha: new Uint8Array(1), width: 1, height: 1 };
    const tensors = { input: picture.input, output: outputs[0] };
    const ends = formEnds({ ...spec, activation }, { ...form, inverted }, tensors);
    // Tells the reader of the answer where in the input the picture is.
    ends.input(rgb, size);
    const answer = ends.answer({ [output.name]: { ...output, data: ran.values } });
    return { alpha: answer.alpha, ...answer.size };
  };
  return { ...ran, shown, output, matteBy };
}

function subjectOf({ picture: { width, height } }: Shown, alpha: Uint8Array): RoleMatte {
  return { alpha, width, height, role: 'subject' };
}

/** Gives the mattes that a node would have. */
function mattesOf({ shown }: Run, { form }: FormSpec, answer: Matte): RoleMatte[] {
  if (!form.trimap || shown.matte === undefined) return [{ ...answer, role: 'subject' }];
  return [subjectOf(shown, shown.matte), { ...answer, role: 'refine' }];
}

/** A graph of an open size that fails may run with other sides. */
async function runFirst(graph: OpenGraph): Promise<Run> {
  try {
    const run = await runPicture(graph, checkPictures()[0]);
    graph.child.allowFurtherRuns(run);
    return run;
  } catch (error) {
    if (!(error instanceof RunFailed)) throw error;
    const { size, dynamic } = graph.picture;
    const said = `it does not run at ${sizeText(size)}: ${error.message}`;
    const multipleOf = dynamic ? await findMultiple(graph) : undefined;
    const fits = [size.width, size.height].every(side => side % (multipleOf ?? 1) === 0);
    if (fits) throw new ModelError('prepare', said);
    throw new ModelError('settings', `its sides must be multiples of ${multipleOf}: ${said}`);
  }
}

/** Chooses one of several outputs by their values. */
function chooseMatte(graph: OpenGraph, { outputs: ran }: GraphRun): OpenGraph {
  const { outputs, spec } = graph;
  const chosen = outputs.find(({ name }) => name === chooseOutput(ran)?.name);
  if (chosen === undefined) {
    const given = ran.map(({ dims: shape, ...other }) => ({ ...other, shape, isTensor: true }));
    const why = `no output of the graph is a matte: ${describeTensors(given)}`;
    throw new ModelError('prepare', why);
  }
  if (outputs.length > 1) {
    const names = outputs.map(({ name }) => name).join(', ');
    graph.warnings.push(`of the outputs ${names} the matte is ${chosen.name} (--output)`);
  }
  return { ...graph, outputs: [chosen], spec: { ...spec, outputName: chosen.name } };
}

async function measure(candidates: OpenGraph): Promise<Probe> {
  const any = await runFirst(candidates);
  const graph = chooseMatte(candidates, any);
  const { wishes, loaded, spec, normalisations, warnings } = graph;
  // The first of check pictures has been run already, with one output.
  const checked = candidates.outputs.length === 1 ? [any] : [];
  for (const picture of checkPictures().slice(checked.length)) {
    checked.push(await runPicture(graph, picture));
  }
  const seconds = Math.min(...checked.map(run => run.seconds));
  const peakBytes = Math.max(...checked.map(run => run.peakBytes));
  const [person] = checked as [Run];
  const own = wishes.picture ? await runPicture(graph, { picture: wishes.picture }) : person;
  const others: Run[] = [];
  for (const other of normalisations.slice(1)) {
    others.push(await runPicture(graph, own.shown, other));
  }
  const { activation, inverted, ...verdict } = judge(graph, checked, [own, ...others]);
  const cutOutBy = (run: Run) => {
    const answer = run.matteBy(activation ?? 'none', inverted);
    return cutOut(run.shown.picture, mattesOf(run, spec, answer));
  };
  const cutouts: [Buffer, ...Buffer[]] = [await cutOutBy(own)];
  for (const run of others) cutouts.push(await cutOutBy(run));
  const sides = await measureSides(graph);
  return {
    ...verdict,
    ...(activation && { activation }),
    ...(inverted && { inverted }),
    ...sides,
    graph: factsOf(graph),
    inputs: loaded.inputs.map(describeTensor).map(printable),
    outputs: loaded.outputs.map(describeTensor).map(printable),
    ...{ peakBytes, seconds, loadedBytes: loaded.loadedBytes, provider: 'cpu' },
    warnings: warnings.map(printable),
    shown: normalisations.map(({ of }) => of),
    cutouts,
  };
}

/**
 * @param checked by the wished normalisation @param shown one picture by each normalisation
 * @throws ModelError `prepare` where there are no numbers to judge
 */
function judge({ wishes, picture, warnings }: OpenGraph, checked: readonly Run[], shown: Run[]) {
  const own = checked.map(({ output }) => output);
  const [first] = own as [OutputValues];
  if (own.some(({ notFinite }) => notFinite)) {
    throw new ModelError('prepare', 'the graph answers with values that are not numbers');
  }
  const finite = shown.map(({ output }) => output).filter(({ notFinite }) => !notFinite);
  const range = rangeOf(wishes.normalisation === undefined ? [...own, ...finite] : own);
  const constant = isConstant(range);
  const measured = activationOf(range, classesOf(first, picture));
  const activation = wishes.activation ?? measured;
  if (measured !== undefined && activation !== measured) {
    const fits = `values from ${rangeText(range)} fit ${measured}`;
    warnings.push(`--activation ${activation} stands as asked for, but ${fits}`);
  }
  if (constant) warnings.push(`its output is ${range[0].toPrecision(3)} everywhere: no matte`);
  const inverted =
    activation !== undefined &&
    !constant &&
    isInverted(checked.map(run => meansOf(run.matteBy(activation), run.shown as CheckPicture)));
  if (inverted === undefined) {
    warnings.push('it does not clearly separate the subjects of the drawn pictures');
  }
  return { range, constant, activation, inverted };
}

/** Multiples in use; powers of two, as networks halve their maps. */
const MULTIPLES = [1, 2, 4, 8, 16, 32, 64, 128];
const TRIED_ABOVE_PX = 256;

/** The least that runs, with sides that differ; undefined: none. */
async function findMultiple(graph: OpenGraph): Promise<number | undefined> {
  for (const multiple of MULTIPLES) {
    const [width, height] = [TRIED_ABOVE_PX + multiple, TRIED_ABOVE_PX + 3 * multiple];
    if (await runsAt(graph, openSides(graph.picture, { width, height }))) return multiple;
  }
  return undefined;
}

/**
 * Sides of an open size, and the least that runs beside the longest, lying and standing: a layer
 * may be larger than what a narrow picture leaves of it. Not above the side that was measured.
 * Pictures have such sides by fit short-side alone.
 */
async function measureSides(graph: OpenGraph): Promise<Pick<Probe, 'multipleOf' | 'shortestSide'>> {
  const { picture, spec, warnings } = graph;
  const multipleOf = picture.dynamic ? await findMultiple(graph) : 1;
  if (multipleOf === undefined) {
    warnings.push('it takes squares alone');
    return { multipleOf: 1 };
  }
  if (spec.form.fit !== 'short-side') return { multipleOf };
  const { width: side } = picture.size;
  const long = longestSide(side, multipleOf);
  for (let short = multipleOf; short <= side; short *= 2) {
    const [lying, standing] = [
      { width: long, height: short },
      { width: short, height: long },
    ];
    if (await runsAt(graph, lying, standing)) return { multipleOf, shortestSide: short };
  }
  warnings.push('it fails with narrow pictures: the service refuses them');
  return { multipleOf, shortestSide: side };
}

function factsOf({ spec, picture, loaded }: OpenGraph): Probe['graph'] {
  const { inputName, outputName, inputWidth, inputHeight, form } = spec;
  const { type: inputType, layout, dynamic } = picture;
  const ends = { inputName, outputName, inputWidth, inputHeight, inputType, layout, dynamic };
  const precision = loaded.halves ? 'fp16' : 'fp32';
  return { ...ends, ...(form.trimap && { trimap: true }), precision };
}
