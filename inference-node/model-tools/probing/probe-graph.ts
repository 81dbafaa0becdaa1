/**
 * Finds out what an ONNX file takes, gives and costs, by running it on pictures of which is known
 * what their subject is. The file is anybody's: a bounded child alone loads it.
 */
import { open } from 'node:fs/promises';
import path from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { FormSpec, TensorFacts } from '@matting/serving/engine/child/form-ends.ts';
import {
  type GraphRun,
  type LoadedGraph,
  ProbeProcess,
  RunFailed,
} from '@matting/serving/engine/probe/probe-process.ts';
import { diskError, ModelError, printable } from '@matting/serving/models/model-error.ts';
import type { GraphForm, MatteRole } from '@matting/serving/models/prepared-model.ts';
import {
  cutOut,
  type FittedPicture,
  fitToInput,
  fitWithTrimap,
  type RoleMatte,
} from '@matting/serving/picture/in-process.ts';
import { type CheckPicture, checkPictures } from './check-pictures.ts';
import {
  describeTensor,
  matteOutputs,
  openSides,
  type PictureInput,
  pictureInput,
  sizeText,
} from './ends.ts';
import { judge, type KnownGraph, matteOf, type PictureRun } from './judge.ts';
import { openMendedCopy } from './mended-copy.ts';
import { HEAD_BYTES, whatElseItIs } from './not-onnx.ts';
import {
  longestSide,
  type NamedNormalisation,
  NORMALISATIONS,
  type Probe,
  type ProbeLimits,
  type ProbeWishes,
} from './probe.ts';
import { createSheet, type Matte } from './sheet.ts';
import { chooseOutput } from './verdict.ts';

/** A probe's process loads the graph for it. */
const PROVIDER = 'cpu';

/** @throws ModelError `prepare` with what the file is or does, `settings` where wishes do not fit */
export async function probeGraph(
  file: string,
  wishes: ProbeWishes = {},
  limits: ProbeLimits = {},
): Promise<Probe> {
  await requireOnnx(file);
  const whole = path.resolve(file);
  const found = limits.asItIs ? undefined : await probeMended(whole, wishes, limits);
  return found ?? (await probeFile(whole, wishes, limits));
}

/**
 * Undefined where nothing of the file is mended, or the mended graph does not run: preparing falls
 * back to the file itself then, and so does the probe.
 */
async function probeMended(
  whole: string,
  wishes: ProbeWishes,
  limits: ProbeLimits,
): Promise<Probe | undefined> {
  await using copy = await openMendedCopy(whole);
  if (!copy.isMended) return undefined;
  try {
    return { ...(await probeFile(copy.path, wishes, limits)), mended: true };
  } catch (error) {
    limits.signal?.throwIfAborted();
    if (error instanceof ModelError && error.kind === 'prepare') return undefined;
    throw error;
  }
}

async function probeFile(file: string, wishes: ProbeWishes, limits: ProbeLimits): Promise<Probe> {
  const child = new ProbeProcess(limits);
  try {
    const loaded = await child.load(file);
    const graph = await settleChannels(openGraph(child, loaded, wishes));
    return await measure(await chooseMatte(graph));
  } finally {
    await child.close();
  }
}

async function requireOnnx(file: string): Promise<void> {
  const head = Buffer.alloc(HEAD_BYTES);
  try {
    const handle = await open(file);
    const { bytesRead } = await handle.read(head, 0, HEAD_BYTES, 0);
    await handle.close();
    const other = whatElseItIs(head.subarray(0, bytesRead));
    if (other === undefined) return;
    throw new ModelError('prepare', `${path.basename(file)} is not an ONNX file, but ${other}`);
  } catch (error) {
    throw diskError(error, 'read', file);
  }
}

interface OpenGraph extends KnownGraph {
  readonly child: ProbeProcess;
  readonly loaded: LoadedGraph;
  readonly picture: PictureInput;
  /** The one that was wished for comes first. */
  readonly normalisations: readonly [NamedNormalisation, ...NamedNormalisation[]];
  /** More than one: which is the matte is not known yet. */
  readonly outputs: readonly [TensorFacts, ...TensorFacts[]];
  readonly warnings: string[];
}

function openGraph(child: ProbeProcess, loaded: LoadedGraph, wishes: ProbeWishes): OpenGraph {
  const { input, ...picture } = pictureInput(loaded.inputs, wishes.size);
  const outputs = matteOutputs(loaded.outputs, wishes.output);
  const normalisations = normalisationsOf(wishes, picture);
  const form = formOf(picture, wishes);
  const spec: FormSpec = {
    ...{ form, inputName: input.name, outputName: outputs[0].name, activation: 'none' },
    ...{ inputWidth: picture.size.width, inputHeight: picture.size.height },
    ...{ normalisation: normalisations[0], colourOrder: wishes.colourOrder ?? 'rgb' },
  };
  const ends = { input, output: outputs[0], outputs, picture };
  return { child, loaded, wishes, form, spec, normalisations, ...ends, warnings: [] };
}

function formOf(
  { type, layout, size, dynamic, channels }: PictureInput,
  { fit }: ProbeWishes,
): GraphForm {
  const form = {
    ...{ inputType: type, layout, fit: fit ?? 'stretch', inverted: false },
    ...(channels === 4 && { trimap: true as const }),
  };
  if (fit !== 'short-side') return form;
  if (!dynamic || size.width !== size.height) {
    const why = 'a fit by the short side takes a graph of any size, and one side';
    throw new ModelError('settings', `${why}: this one is for ${sizeText(size)}`);
  }
  return { ...form, sides: { multipleOf: 1, max: size.width } };
}

function normalisationsOf(
  { mean, std }: ProbeWishes,
  { type }: PictureInput,
): OpenGraph['normalisations'] {
  const [first, ...others] = NORMALISATIONS;
  // A graph of bytes gets one that is without effect.
  const rest = type === 'uint8' ? [] : others;
  if (mean === undefined || std === undefined) return [first, ...rest];
  return [{ of: 'what was asked for', mean, std }, ...(type === 'uint8' ? [] : NORMALISATIONS)];
}

type Run = PictureRun & GraphRun;

/** A graph that takes a trimap refines this matte. */
type Shown = Pick<CheckPicture, 'picture'> & Partial<Pick<CheckPicture, 'matte'>>;

function inputOf(
  { form }: OpenGraph,
  { picture, matte }: Shown,
  terms: Size & Partial<Pick<GraphForm, 'fit' | 'sides'>>,
): FittedPicture {
  if (!form.trimap) return fitToInput(picture, terms);
  const subject = matte && roleMatte('subject', { ...picture, alpha: matte });
  const input = subject && fitWithTrimap(picture, [subject], terms);
  if (input !== undefined) return input;
  const why = 'the graph refines a matte, and of a picture of your own there is none';
  throw new ModelError('settings', `${why}; leave out --image`);
}

function roleMatte(role: MatteRole, { alpha, width, height }: Matte): RoleMatte {
  return { alpha, width, height, role };
}

/** Gives the mattes that a node would have. */
function mattesOf({ form }: OpenGraph, { picture, matte }: Shown, answer: Matte): RoleMatte[] {
  if (!form.trimap || matte === undefined) return [roleMatte('subject', answer)];
  return [roleMatte('subject', { ...picture, alpha: matte }), roleMatte('refine', answer)];
}

/** Takes three channels where the graph leaves them open, unless four alone run. */
async function settleChannels(graph: OpenGraph): Promise<OpenGraph> {
  if (graph.picture.channels !== null) return graph;
  const form = { ...graph.form, trimap: true } as const;
  for (const tried of [graph, { ...graph, form, spec: { ...graph.spec, form } }]) {
    try {
      await runPicture(tried, checkPictures()[0], tried.normalisations[0]);
      return tried;
    } catch (error) {
      if (!(error instanceof RunFailed)) throw error;
    }
  }
  return graph;
}

async function runPicture(
  graph: OpenGraph,
  shown: Shown,
  normalisation: NamedNormalisation,
): Promise<Run> {
  const { child, spec, outputs } = graph;
  const { inputWidth: width, inputHeight: height, form } = spec;
  const { rgb, size } = inputOf(graph, shown, { width, height, ...form });
  const names = outputs.map(({ name }) => name);
  const ran = await child.run({ ...spec, normalisation }, names, rgb, size);
  return { ...ran, normalisation, output: ran.outputs[0], rgb, size };
}

/** Chooses one of several outputs by their values. */
async function chooseMatte(graph: OpenGraph): Promise<OpenGraph> {
  const { outputs, warnings, spec } = graph;
  const names = outputs.map(({ name }) => name);
  const [person] = checkPictures();
  const { outputs: all } = await firstRun(graph, person);
  const chosen = outputs.find(({ name }) => name === chooseOutput(all)?.name);
  if (chosen === undefined) {
    const given = all.map(({ name, type, dims }) => `${name}: ${type} [${dims.join(', ')}]`);
    throw new ModelError('prepare', `no output of the graph is a matte: ${given.join('; ')}`);
  }
  if (names.length === 1) return graph;
  warnings.push(`of the outputs ${names.join(', ')} the matte is ${chosen.name} (--output)`);
  return {
    ...{ ...graph, output: chosen, outputs: [chosen] },
    spec: { ...spec, outputName: chosen.name },
  };
}

/** A graph of an open size that fails may run with other sides. */
async function firstRun(graph: OpenGraph, shown: Shown): Promise<Run> {
  try {
    return await runPicture(graph, shown, graph.normalisations[0]);
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

/** These are in use; powers of two, as networks halve their maps. */
const MULTIPLES = [1, 2, 4, 8, 16, 32, 64, 128];
const TRIED_ABOVE_PX = 256;

/** The least that runs, with sides that differ; undefined: none. */
async function findMultiple(graph: OpenGraph) {
  const { child, spec, form, input, output } = graph;
  const [person] = checkPictures();
  const stretched = { ...form, fit: 'stretch' } as const;
  for (const multiple of MULTIPLES) {
    const size = openSides(input, form.layout, {
      width: TRIED_ABOVE_PX + multiple,
      height: TRIED_ABOVE_PX + 3 * multiple,
    });
    const sized = {
      ...{ ...spec, form: stretched },
      ...{ inputWidth: size.width, inputHeight: size.height },
    };
    try {
      await child.run(sized, [output.name], inputOf(graph, person, size).rgb, size);
      return multiple;
    } catch (error) {
      if (!(error instanceof RunFailed)) throw error;
    }
  }
  return undefined;
}

/**
 * The least side that runs beside the longest, lying and standing: a layer may be larger than what
 * a narrow picture leaves of it. Not above the side that was measured; undefined: not even that.
 */
async function findShortest(graph: OpenGraph, multipleOf: number): Promise<number | undefined> {
  const { child, spec, form, output, picture } = graph;
  const [person] = checkPictures();
  const { width: side } = picture.size;
  const long = longestSide(side, multipleOf);
  const stretched = { ...spec, form: { ...form, fit: 'stretch' } as const };
  for (let short = multipleOf; short <= side; short *= 2) {
    try {
      for (const [width, height] of [
        [long, short],
        [short, long],
      ] as const) {
        const sized = { ...stretched, inputWidth: width, inputHeight: height };
        const size = { width, height };
        await child.run(sized, [output.name], inputOf(graph, person, size).rgb, size);
      }
      return short;
    } catch (error) {
      if (!(error instanceof RunFailed)) throw error;
    }
  }
  return undefined;
}

/** A run begins only with time for so many more, so that sizes and files are not left out. */
const RUNS_IN_RESERVE = 3;
/** A graph that made a matte within the bound is not endless: it has time for further ones. */
const FURTHER_RUNS = 8;

async function measure(graph: OpenGraph): Promise<Probe> {
  const { wishes, child, loaded, normalisations, picture: input } = graph;
  const [person, fruit, bottle] = checkPictures();
  const [asked, ...others] = normalisations;
  const first = await firstRun(graph, person);
  child.allow(FURTHER_RUNS * 1000 * first.seconds);
  const second = await runPicture(graph, fruit, asked);
  const seconds = Math.min(first.seconds, second.seconds);
  const hasTime = () => child.remainingMs > RUNS_IN_RESERVE * 1000 * seconds;
  const seen: Shown = wishes.picture === undefined ? person : { picture: wishes.picture };
  const own = seen === person ? first : await runPicture(graph, seen, asked);
  const shown = [own];
  for (const normalisation of others) {
    if (hasTime()) shown.push(await runPicture(graph, seen, normalisation));
  }
  const checked = [
    { check: person, run: first },
    { check: fruit, run: second },
  ];
  if (hasTime()) {
    checked.push({ check: bottle, run: await runPicture(graph, bottle, asked) });
  }
  const verdict = judge(graph, checked, shown);
  const sides = input.dynamic && hasTime() ? await findMultiple(graph) : 1;
  const { peakBytes } = second;
  const narrow = await measureNarrow(graph, sides, hasTime);
  const mattes = (run: PictureRun) => mattesOf(graph, seen, matteOf(graph, run, verdict));
  const left =
    shown.length < normalisations.length ? ['there was no time for all of the sheet'] : [];
  const squares = sides === undefined ? ['it takes squares alone'] : [];
  return {
    ...{ ...verdict, graph: factsOf(graph), multipleOf: sides ?? 1, ...narrow.found },
    inputs: loaded.inputs.map(describeTensor).map(printable),
    outputs: loaded.outputs.map(describeTensor).map(printable),
    ...{ peakBytes, seconds, loadedBytes: loaded.loadedBytes, provider: PROVIDER },
    warnings: [...graph.warnings, ...verdict.warnings, ...squares, ...narrow.warnings, ...left].map(
      printable,
    ),
    shown: shown.map(({ normalisation: { of } }) => of),
    sheet: await createSheet(seen.picture, shown.map(mattes)),
    cutout: await cutOut(seen.picture, mattes(own)),
  };
}

/** Pictures of other proportions have other sides by fit short-side alone. */
async function measureNarrow(
  graph: OpenGraph,
  multipleOf: number | undefined,
  hasTime: () => boolean,
): Promise<{ readonly found?: { readonly shortestSide: number }; readonly warnings: string[] }> {
  const { fit } = graph.form;
  if (fit !== 'short-side' || multipleOf === undefined) return { warnings: [] };
  if (!hasTime()) return { warnings: ['there was no time to try pictures that are narrow'] };
  const shortestSide = await findShortest(graph, multipleOf);
  if (shortestSide !== undefined) return { found: { shortestSide }, warnings: [] };
  const { width: side } = graph.picture.size;
  const why = 'it fails with narrow pictures: the service refuses them';
  return { found: { shortestSide: side }, warnings: [why] };
}

function factsOf({ spec, form, picture, loaded }: OpenGraph): Probe['graph'] {
  const { inputName, outputName, inputWidth, inputHeight } = spec;
  const { type: inputType, layout, dynamic } = picture;
  const ends = { inputName, outputName, inputWidth, inputHeight, inputType, layout, dynamic };
  const precision = loaded.halves ? 'fp16' : 'fp32';
  return { ...ends, ...(form.trimap && { trimap: true }), precision };
}
