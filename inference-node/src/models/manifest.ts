/**
 * A model's manifest: where its weights come from, how they are proven, and all that preprocessing
 * and engines must know of its graph. It is data (models/<name>/manifest.json) and is checked field
 * by field when read; nothing else in the program knows a model by name.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isMissing } from './cache-files.ts';
import { FieldReader } from './manifest-fields.ts';
import { ModelError } from './model-error.ts';
import { type Normalisation, PRECISIONS, type Precision } from './prepared-model.ts';

/** A package of the npm registry, pinned to its bytes. Its code is never run nor stored. */
export interface NpmSource {
  readonly type: 'npm';
  readonly package: string;
  readonly version: string;
  /** Of the tarball, as the registry and lock files write it: sha512-<Base64>. */
  readonly integrity: string;
  /** Of the tarball. */
  readonly bytes: number;
}

/** A piece of a weights file: one file inside the package. */
export interface FilePart {
  /** Inside the package, without the leading `package/`. */
  readonly path: string;
  readonly bytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

export interface WeightsFile {
  /** In the cache. */
  readonly name: string;
  readonly bytes: number;
  /** Of the whole file, hexadecimal. */
  readonly sha256: string;
  /** Joined in this order they are the file. */
  readonly parts: readonly FilePart[];
}

/** The graph as its makers exported it. */
export interface SourceGraph {
  /** Which of the files it is. */
  readonly file: string;
  /** Of its weights. */
  readonly precision: 'fp32' | 'fp16';
  readonly inputName: string;
  /** The matte; other outputs are pruned. */
  readonly outputName: string;
  /** Pixels it was exported for. */
  readonly inputWidth: number;
  readonly inputHeight: number;
}

/** Input sizes in pixels, of a square. */
export interface InputSizes {
  readonly default: number;
  /**
   * Sizes that were measured. Others that satisfy the rule below run, their quality is not known.
   */
  readonly listed: readonly number[];
  /** Sizes with a ranges file, those it can be prepared for in int8; absent: none. */
  readonly int8?: readonly number[];
  readonly multipleOf: number;
  readonly min: number;
  readonly max: number;
}

export interface Licence {
  /** SPDX expression of what the weights' makers published them under. */
  readonly spdx: string;
  /** Where the makers published them. */
  readonly origin: string;
  /** Who says so, and what is not said. */
  readonly statement: string;
  /** What it was trained on, and on what terms that data is given. */
  readonly trainingData: string;
}

export interface ModelManifest {
  readonly name: string;
  /** Of the weights and the graph; changes when they do. */
  readonly version: string;
  readonly description: string;
  readonly source: NpmSource;
  readonly files: readonly WeightsFile[];
  readonly graph: SourceGraph;
  /** What it can be prepared in. */
  readonly precisions: readonly Precision[];
  readonly inputSize: InputSizes;
  readonly normalisation: Normalisation;
  readonly colourOrder: 'rgb' | 'bgr';
  readonly activation: 'none' | 'sigmoid';
  readonly licence: Licence;
}

/** The manifests that come with the product. */
export const MANIFEST_DIRECTORY = fileURLToPath(new URL('../../../models/', import.meta.url));

const FILE_NAME = 'manifest.json';
const MODEL_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;
const VERSION = /^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$/;
const CACHED_NAME = /^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$/;
const PACKAGE_NAME = /^(@[a-z0-9._-]+\/)?[a-z0-9._-]+$/;
const PACKAGE_PATH = /^(?!.*(^|\/)\.\.?(\/|$))[^/\\][^\\]*$/;
const SHA256 = /^[0-9a-f]{64}$/;
const SHA512_INTEGRITY = /^sha512-[A-Za-z0-9+/]{86}==$/;
/** Larger than any model that makes sense here; what a manifest can make a fetch write. */
const FILE_BYTES_MAX = 2 * 1024 ** 3;
const SIDE_MAX = 8192;

/**
 * Reads and checks `<directory>/<name>/manifest.json`. Throws ModelError: `settings` when there is
 * no such model (it names those there are), `manifest` with file and field when it is malformed.
 */
export async function loadManifest(
  name: string,
  directory = MANIFEST_DIRECTORY,
): Promise<ModelManifest> {
  const names = await listManifests(directory);
  if (!names.includes(name)) {
    const known = names.length > 0 ? names.join(', ') : `none in ${directory}`;
    throw new ModelError('settings', `there is no model ${JSON.stringify(name)}: ${known}`);
  }
  const path = join(directory, name, FILE_NAME);
  const manifest = parseManifest(await readFile(path, 'utf8'), path);
  if (manifest.name !== name) {
    throw new ModelError('manifest', `${path}: name must be its directory's name, ${name}`);
  }
  return manifest;
}

/** The names of the models that have a manifest, sorted. */
export async function listManifests(directory = MANIFEST_DIRECTORY): Promise<readonly string[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    return entries
      .filter(entry => entry.isDirectory() && MODEL_NAME.test(entry.name))
      .map(entry => entry.name)
      .sort();
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** `file` is named in errors. */
export function parseManifest(text: string, file: string): ModelManifest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new ModelError('manifest', `${file}: not JSON: ${(error as Error).message}`, error);
  }
  const root = new FieldReader(json, file, '');
  const files = root.list('files', readFileEntry);
  const manifest: ModelManifest = {
    name: root.text('name', MODEL_NAME),
    version: root.text('version', VERSION),
    description: root.text('description'),
    source: readSource(root.object('source')),
    files,
    graph: readGraph(root.object('graph'), files),
    precisions: root.choices('precisions', PRECISIONS),
    inputSize: readInputSizes(root.object('inputSize')),
    normalisation: readNormalisation(root.object('normalisation')),
    colourOrder: root.choice('colourOrder', ['rgb', 'bgr']),
    activation: root.choice('activation', ['none', 'sigmoid']),
    licence: readLicence(root.object('licence')),
  };
  const listsInt8 = manifest.precisions.includes('int8');
  if (listsInt8 !== (manifest.inputSize.int8 !== undefined)) {
    root.fail('precisions', 'must list int8 where inputSize.int8 has sizes, and only there');
  }
  root.end();
  return manifest;
}

function readSource(fields: FieldReader): NpmSource {
  const source: NpmSource = {
    type: fields.choice('type', ['npm']),
    package: fields.text('package', PACKAGE_NAME),
    version: fields.text('version', VERSION),
    integrity: fields.text('integrity', SHA512_INTEGRITY),
    bytes: fields.integer('bytes', 1, FILE_BYTES_MAX),
  };
  fields.end();
  return source;
}

function readFileEntry(fields: FieldReader): WeightsFile {
  const file: WeightsFile = {
    name: fields.text('name', CACHED_NAME),
    bytes: fields.integer('bytes', 1, FILE_BYTES_MAX),
    sha256: fields.text('sha256', SHA256),
    parts: fields.list('parts', part => {
      const entry: FilePart = {
        path: part.text('path', PACKAGE_PATH),
        bytes: part.integer('bytes', 1, FILE_BYTES_MAX),
        sha256: part.text('sha256', SHA256),
      };
      part.end();
      return entry;
    }),
  };
  const joined = file.parts.reduce((sum, part) => sum + part.bytes, 0);
  if (joined !== file.bytes) fields.fail('bytes', `must be the sum of its parts, ${joined}`);
  fields.end();
  return file;
}

function readGraph(fields: FieldReader, files: readonly WeightsFile[]): SourceGraph {
  const graph: SourceGraph = {
    file: fields.choice(
      'file',
      files.map(file => file.name),
    ),
    precision: fields.choice('precision', ['fp32', 'fp16']),
    inputName: fields.text('inputName'),
    outputName: fields.text('outputName'),
    inputWidth: fields.integer('inputWidth', 1, SIDE_MAX),
    inputHeight: fields.integer('inputHeight', 1, SIDE_MAX),
  };
  fields.end();
  return graph;
}

function readInputSizes(fields: FieldReader): InputSizes {
  const multipleOf = fields.integer('multipleOf', 1, SIDE_MAX);
  const min = fields.integer('min', multipleOf, SIDE_MAX);
  const max = fields.integer('max', min, SIDE_MAX);
  const sizes: InputSizes = {
    default: fields.integer('default', min, max),
    listed: fields.integers('listed', min, max),
    ...(fields.has('int8') ? { int8: fields.integers('int8', min, max) } : {}),
    multipleOf,
    min,
    max,
  };
  for (const size of sizes.listed) {
    if (size % multipleOf !== 0) fields.fail('listed', `${size} is no multiple of ${multipleOf}`);
  }
  for (const size of sizes.int8 ?? []) {
    if (!sizes.listed.includes(size)) fields.fail('int8', `${size} must be one of listed`);
  }
  if (!sizes.listed.includes(sizes.default)) fields.fail('default', 'must be one of listed');
  fields.end();
  return sizes;
}

function readNormalisation(fields: FieldReader): Normalisation {
  const normalisation: Normalisation = {
    mean: fields.triple('mean'),
    std: fields.triple('std'),
  };
  if (normalisation.std.some(value => value <= 0)) fields.fail('std', 'must be above 0');
  fields.end();
  return normalisation;
}

function readLicence(fields: FieldReader): Licence {
  const licence: Licence = {
    spdx: fields.text('spdx'),
    origin: fields.text('origin', /^https:\/\/\S+$/),
    statement: fields.text('statement'),
    trainingData: fields.text('trainingData'),
  };
  fields.end();
  return licence;
}
