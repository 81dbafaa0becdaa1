/** Nothing else in the program knows a model by name. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { listDirectory, ParsedFiles } from './cache-files.ts';
import {
  byType,
  fieldError,
  fields,
  list,
  NUMBER,
  oneOf,
  parseChecked,
  text,
  tuple,
  wholeNumber,
} from './checked-json.ts';
import { LICENCE_SCHEMA, type Licence } from './licence.ts';
import { ModelError } from './model-error.ts';
import {
  ACTIVATIONS,
  type Activation,
  EXECUTION_PROVIDERS,
  type ExecutionProvider,
  FITS,
  type Fit,
  INPUT_SIDE_MAX,
  INPUT_TYPES,
  type InputType,
  LAYOUTS,
  type Layout,
  MODEL_NAME,
  type Normalisation,
  PRECISIONS,
  type Precision,
} from './prepared-model.ts';

/** A pinned package of the npm registry. Its code is never run nor stored. */
export interface NpmSource {
  readonly type: 'npm';
  readonly package: string;
  readonly version: string;
  readonly integrity: string;
  readonly bytes: number;
}

/** A file at an address. Others of `files` are external data in the same folder. */
export interface AddressSource {
  readonly type: 'address';
  readonly url: string;
  /** With the same bytes, tried in this order. */
  readonly mirrors?: readonly string[];
  readonly revision?: string;
}

/** An operator's own file, which cannot be fetched again. */
interface FileSource {
  readonly type: 'file';
}

export type ModelSource = NpmSource | AddressSource | FileSource;

export interface FilePart {
  readonly path: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface WeightsFile {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
  /** Parts of a package, which make the file when joined in this order. */
  readonly parts?: readonly FilePart[];
}

export interface PackagedFile extends WeightsFile {
  readonly parts: readonly FilePart[];
}

export interface SourceGraph {
  readonly file: string;
  readonly precision: 'fp32' | 'fp16';
  readonly inputName: string;
  readonly outputName: string;
  readonly inputWidth: number;
  readonly inputHeight: number;
  /** Absent: float32. */
  readonly inputType?: InputType;
  /** Absent: nchw. */
  readonly layout?: Layout;
  /**
   * Absent: preparing rewrites the graph, for any size of inputSize. Otherwise its bytes run as
   * they are: `false` at inputWidth x inputHeight alone, `true` at these unless a request wants
   * another size.
   */
  readonly dynamic?: boolean;
  readonly trimap?: true;
}

interface InputSizes {
  /** Side of a square. For a dynamic graph the shorter of inputWidth and inputHeight. */
  readonly default: number;
  /** Measured sizes. Others that the fields below allow run at unknown quality. */
  readonly listed: readonly number[];
  /** Sizes with a ranges file, which int8 needs. Absent: none. */
  readonly int8?: readonly number[];
  readonly multipleOf: number;
  readonly min: number;
  readonly max: number;
}

/** Measured on the machine that added the model, at graph.inputWidth x graph.inputHeight. */
export interface Measured {
  readonly peakBytes: number;
  /** Memory before the first run. */
  readonly loadedBytes: number;
  readonly seconds: number;
  readonly provider: ExecutionProvider;
}

export interface ModelManifest {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly goodFor?: string;
  readonly source: ModelSource;
  readonly files: readonly WeightsFile[];
  readonly graph: SourceGraph;
  readonly precisions: readonly Precision[];
  /** If graph.dynamic is false, the file has none, and this is the graph's own size. */
  readonly inputSize: InputSizes;
  readonly normalisation: Normalisation;
  readonly colourOrder: 'rgb' | 'bgr';
  /**
   * Absent: stretch. Other fits, and the further activations, are for graphs that run as they are.
   */
  readonly fit?: Fit;
  readonly activation: Activation;
  /** The output shows the background. */
  readonly inverted?: true;
  readonly measured?: Measured;
  readonly licence: Licence;
}

export interface PackagedManifest extends ModelManifest {
  readonly source: NpmSource;
  readonly files: readonly PackagedFile[];
}

export function isPackaged(manifest: ModelManifest): manifest is PackagedManifest {
  return manifest.source.type === 'npm';
}

export const MANIFEST_DIRECTORY = fileURLToPath(new URL('../../../models/', import.meta.url));

export const MANIFEST_FILE = 'manifest.json';
const VERSION = text(/^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$/);
const SHA256 = text(/^[0-9a-f]{64}$/);
/** More than any sensible model has. It bounds what a manifest can make a fetch write. */
export const FILE_BYTES_MAX = 2_500_000_000;
const FILE_BYTES = wholeNumber(1, FILE_BYTES_MAX);
export const FILE_NAME_FORM = /^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$/;
const LOOPBACK = String.raw`http:\/\/(localhost|127(\.\d+){3}|\[::1\])(:\d+)?\/`;
const ADDRESS = text(new RegExp(String.raw`^(https:\/\/|${LOOPBACK})\S+$`));
const SIDE = wholeNumber(1, INPUT_SIDE_MAX);
const SIDES = list(SIDE);
const ABOVE_0 = { type: 'number', exclusiveMinimum: 0, description: 'a number above 0' };

/** May have any characters: print it by `printable`. */
const TENSOR_NAME = { type: 'string', minLength: 1, description: 'a string, not empty' };
const TRUE = { const: true, description: 'true, or absent' };
const BYTES = wholeNumber(1, Number.MAX_SAFE_INTEGER);

/** Facts that the catalogue also states, of files that nobody has added yet. */
export const FACT_SCHEMAS = {
  normalisation: fields<Normalisation>({
    mean: tuple(3, NUMBER, 'three numbers, for red, green and blue'),
    std: tuple(3, ABOVE_0, 'three numbers, for red, green and blue'),
  }),
  colourOrder: oneOf(['rgb', 'bgr']),
  fit: oneOf(FITS),
  activation: oneOf(ACTIVATIONS),
  licence: LICENCE_SCHEMA,
} as const;
const { licence, ...GRAPH_FACTS } = FACT_SCHEMAS;

const SCHEMA = fields<ModelManifest>(
  {
    name: text(MODEL_NAME),
    version: VERSION,
    description: text(),
    goodFor: text(),
    source: byType({
      npm: fields<NpmSource>({
        type: text(),
        package: text(/^(@[a-z0-9._-]+\/)?[a-z0-9._-]+$/),
        version: VERSION,
        integrity: text(/^sha512-[A-Za-z0-9+/]{86}==$/),
        bytes: FILE_BYTES,
      }),
      address: fields<AddressSource>(
        { type: text(), url: ADDRESS, mirrors: list(ADDRESS), revision: text() },
        ['mirrors', 'revision'],
      ),
      file: fields<FileSource>({ type: text() }),
    }),
    files: list(
      fields<WeightsFile>(
        {
          name: text(FILE_NAME_FORM),
          bytes: FILE_BYTES,
          sha256: SHA256,
          parts: list(
            fields<FilePart>({
              path: text(/^(?!.*(^|\/)\.\.?(\/|$))[^/\\][^\\]*$/),
              bytes: FILE_BYTES,
              sha256: SHA256,
            }),
          ),
        },
        ['parts'],
      ),
    ),
    graph: fields<SourceGraph>(
      {
        file: text(),
        precision: oneOf(['fp32', 'fp16']),
        inputName: TENSOR_NAME,
        outputName: TENSOR_NAME,
        inputWidth: SIDE,
        inputHeight: SIDE,
        inputType: oneOf(INPUT_TYPES),
        layout: oneOf(LAYOUTS),
        dynamic: { type: 'boolean', description: 'true or false' },
        trimap: TRUE,
      },
      ['inputType', 'layout', 'dynamic', 'trimap'],
    ),
    precisions: {
      ...list(oneOf(PRECISIONS)),
      uniqueItems: true,
      description: 'a list without repetitions, not empty',
    },
    inputSize: fields<InputSizes>(
      { default: SIDE, listed: SIDES, int8: SIDES, multipleOf: SIDE, min: SIDE, max: SIDE },
      ['int8'],
    ),
    ...GRAPH_FACTS,
    inverted: TRUE,
    measured: fields<Measured>({
      peakBytes: BYTES,
      loadedBytes: BYTES,
      seconds: ABOVE_0,
      provider: oneOf(EXECUTION_PROVIDERS),
    }),
    licence,
  },
  ['goodFor', 'inputSize', 'fit', 'inverted', 'measured'],
);

/**
 * From `directory`, or from `added`, the folder of an operator's own models, which replace none.
 * @throws ModelError `settings` (no such model), `manifest` (malformed), `disk`
 */
export async function loadManifest(
  name: string,
  directory = MANIFEST_DIRECTORY,
  added?: string,
): Promise<ModelManifest> {
  const own = added !== undefined && !(await hasModel(directory, name)) ? added : directory;
  if (!(await hasModel(own, name))) {
    const names = await listManifests(directory, added);
    const known = names.length > 0 ? names.join(', ') : `none in ${directory}`;
    throw new ModelError('settings', `there is no model ${JSON.stringify(name)}: ${known}`);
  }
  const path = join(own, name, MANIFEST_FILE);
  const manifest = await MANIFESTS.read(path);
  if (manifest.name !== name) {
    throw new ModelError('manifest', `${path}: name must be its directory's name, ${name}`);
  }
  return manifest;
}

export async function listManifests(
  directory = MANIFEST_DIRECTORY,
  added?: string,
): Promise<readonly string[]> {
  const shipped = await namesIn(directory);
  const own = added === undefined ? [] : await namesIn(added);
  return [...new Set([...shipped, ...own])].sort();
}

/** The manifest is written last and removed first, so it stands for the model. */
async function namesIn(directory: string): Promise<readonly string[]> {
  const names: string[] = [];
  for (const name of await listDirectory(directory)) {
    if (await hasModel(directory, name)) names.push(name);
  }
  return names;
}

/** True if the system cannot tell: loading this model then fails, and others still load. */
async function hasModel(directory: string, name: string): Promise<boolean> {
  if (!MODEL_NAME.test(name)) return false;
  try {
    await stat(join(directory, name, MANIFEST_FILE));
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code !== 'ENOENT' && code !== 'ENOTDIR';
  }
}

type WrittenManifest = Omit<ModelManifest, 'inputSize'> & { readonly inputSize?: InputSizes };

function onlySize({ inputWidth, inputHeight }: SourceGraph): InputSizes {
  const min = Math.min(inputWidth, inputHeight);
  const max = Math.max(inputWidth, inputHeight);
  return { default: min, listed: [min], multipleOf: 1, min, max };
}

export function parseManifest(json: string, file: string): ModelManifest {
  const given = parseChecked<WrittenManifest>(json, file, SCHEMA);
  const inputSize = given.inputSize ?? onlySize(given.graph);
  const manifest = { ...given, inputSize };
  requireConsistent(manifest, given.inputSize !== undefined, (field, expected) => {
    throw fieldError(file, field, expected);
  });
  return manifest;
}

const MANIFESTS = new ParsedFiles(parseManifest);

type Refuse = (field: string, expected: string) => never;

function requireConsistent(manifest: ModelManifest, hasSizes: boolean, refuse: Refuse): void {
  const { source, files, graph, precisions, inputSize } = manifest;
  for (const [index, { bytes, parts }] of files.entries()) {
    if ((parts !== undefined) !== (source.type === 'npm')) {
      refuse(`files[${index}].parts`, 'must be there where the source is npm, and only there');
    }
    const joined = parts?.reduce((sum, part) => sum + part.bytes, 0) ?? bytes;
    if (joined !== bytes)
      refuse(`files[${index}].bytes`, `must be the sum of its parts, ${joined}`);
  }
  const names = files.map(({ name }) => name);
  if (!names.includes(graph.file)) refuse('graph.file', `must be one of ${names.join(', ')}`);
  if (hasSizes !== (graph.dynamic !== false)) {
    refuse('inputSize', hasSizes ? 'must be absent where graph.dynamic is false' : 'is missing');
  }
  requireSizes(inputSize, refuse);
  if (precisions.includes('int8') !== (inputSize.int8 !== undefined)) {
    refuse('precisions', 'must list int8 where inputSize.int8 has sizes, and only there');
  }
  if (graph.dynamic === undefined) requireRewritable(manifest, refuse);
  else requireAsItIs(manifest, refuse);
}

function requireSizes(inputSize: InputSizes, refuse: Refuse): void {
  const { default: side, listed, int8, multipleOf, min, max } = inputSize;
  if (min < multipleOf) refuse('inputSize.min', `must be at least multipleOf, ${multipleOf}`);
  if (max < min) refuse('inputSize.max', `must be at least min, ${min}`);
  const odd = listed.find(size => size < min || size > max || size % multipleOf !== 0);
  if (odd !== undefined) {
    refuse('inputSize.listed', `has ${odd}, not a multiple of ${multipleOf} from ${min} to ${max}`);
  }
  const unlisted = int8?.find(size => !listed.includes(size));
  if (unlisted !== undefined) refuse('inputSize.int8', `has ${unlisted}, not one of listed`);
  if (!listed.includes(side)) refuse('inputSize.default', 'must be one of listed');
}

function requireRewritable(manifest: ModelManifest, refuse: Refuse): void {
  const { graph, fit = 'stretch', activation, inverted } = manifest;
  const { inputType = 'float32', layout = 'nchw', trimap } = graph;
  const plain = {
    ...{ inputType: 'float32', layout: 'nchw', fit: 'stretch' },
    ...{ inverted: undefined, trimap: undefined },
  };
  const given = { inputType, layout, fit, inverted, trimap };
  for (const [field, value] of Object.entries(plain)) {
    if (given[field as keyof typeof plain] === value) continue;
    const rest = value === undefined ? '' : ` but ${value}`;
    refuse('graph.dynamic', `is missing: a graph that is rewritten has no ${field}${rest}`);
  }
  if (activation === 'none' || activation === 'sigmoid') return;
  refuse('graph.dynamic', `is missing: a graph that is rewritten has no activation ${activation}`);
}

function requireAsItIs(manifest: ModelManifest, refuse: Refuse): void {
  const { graph, precisions, inputSize, fit } = manifest;
  if (precisions.join() !== graph.precision) {
    refuse('precisions', `must be ${graph.precision} alone, as graph.precision`);
  }
  const { dynamic, inputWidth, inputHeight } = graph;
  const shorter = Math.min(inputWidth, inputHeight);
  if (shorter !== inputSize.default) refuse('inputSize.default', `must be ${shorter}`);
  for (const [field, pixels] of Object.entries({ inputWidth, inputHeight })) {
    const { multipleOf, min, max } = inputSize;
    if (pixels % multipleOf === 0 && pixels >= min && pixels <= max) continue;
    refuse(`graph.${field}`, `must be a multiple of ${multipleOf} from ${min} to ${max}`);
  }
  if (fit !== 'short-side') return;
  if (!dynamic) refuse('fit', 'must be another where graph.dynamic is false');
  if (inputWidth === inputHeight) return;
  refuse('graph.inputHeight', `must be inputWidth, ${inputWidth}, where fit is short-side`);
}

function ownInputSize({ graph, inputSize }: ModelManifest): Size {
  const { dynamic, inputWidth, inputHeight } = graph;
  if (dynamic !== undefined) return { width: inputWidth, height: inputHeight };
  return { width: inputSize.default, height: inputSize.default };
}

/** @throws ModelError `settings` if the model does not take the size */
export function requireInputSize(manifest: ModelManifest, wanted?: Size): Size {
  const { listed, multipleOf, min, max } = manifest.inputSize;
  const own = ownInputSize(manifest);
  const { width, height } = wanted ?? own;
  const fits = (pixels: number) =>
    Number.isInteger(pixels) && pixels % multipleOf === 0 && pixels >= min && pixels <= max;
  const refuse = (sides: string) => {
    const what = `${manifest.name} cannot take an input of ${width}x${height} pixels`;
    return new ModelError('settings', `${what} (inputSize of its plan): ${sides}`);
  };
  if (manifest.graph.dynamic === false) {
    if (width === own.width && height === own.height) return own;
    throw refuse(`its graph takes ${own.width}x${own.height} alone`);
  }
  if (manifest.fit === 'short-side' && width !== height) {
    throw refuse('by its fit, short-side, it takes the length of one side');
  }
  if (fits(width) && fits(height)) return { width, height };
  throw refuse(
    `its sides are multiples of ${multipleOf} from ${min} to ${max}, measured are ${listed.join(', ')}`,
  );
}
