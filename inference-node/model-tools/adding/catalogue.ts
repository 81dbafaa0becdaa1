/**
 * Models that an operator adds by name: models/catalogue.json. A row states only what its sources
 * prove about a published file; `models add` needs the rest as options.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  fields,
  list,
  oneOf,
  parseChecked,
  text,
  wholeNumber,
} from '@matting/serving/models/checked-json.ts';
import {
  FACT_SCHEMAS,
  MANIFEST_DIRECTORY,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import {
  type Activation,
  type Fit,
  INPUT_SIDE_MAX,
  MODEL_NAME,
  type Normalisation,
} from '@matting/serving/models/prepared-model.ts';
import type { Facts } from '../probing/probe-types.ts';

interface CatalogueFile {
  /** Name in the cache. For external data the name by which the graph reads it. */
  readonly name: string;
  /** May name a branch, as `/resolve/main/` does. Adding pins it to a commit. */
  readonly url: string;
  readonly mirrors?: readonly string[];
  readonly bytes?: number;
  /** Absent: no source states it. The first use pins it. */
  readonly sha256?: string;
}

interface CatalogueSize extends Size {
  /** Any multiple fits the graph. Absent: no other size does. */
  readonly multipleOf?: number;
}

/** refine: takes the picture with a trimap, and improves another model's matte. */
const ROLES = ['subject', 'refine'] as const;

export interface CatalogueModel {
  readonly name: string;
  readonly title: string;
  readonly role: (typeof ROLES)[number];
  readonly goodFor: string;
  /** The graph, then its external data. */
  readonly files: readonly CatalogueFile[];
  /** Absent: the first output that can be a matte. */
  readonly outputName?: string;
  readonly size?: CatalogueSize;
  readonly fit?: Fit;
  readonly normalisation?: Normalisation;
  readonly colourOrder?: 'rgb' | 'bgr';
  readonly activation?: Activation;
  readonly licence: ModelManifest['licence'];
  readonly verified: boolean;
  readonly measuredBy?: string;
}

const HTTPS = text(/^https:\/\/\S+$/);
const SIDE = wholeNumber(1, INPUT_SIDE_MAX);

const FILE = fields<CatalogueFile>(
  {
    name: text(/^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$/),
    url: HTTPS,
    mirrors: list(HTTPS),
    bytes: wholeNumber(1, 2 * 1024 ** 3),
    sha256: text(/^[0-9a-f]{64}$/),
  },
  ['mirrors', 'bytes', 'sha256'],
);

const SCHEMA = list(
  fields<CatalogueModel>(
    {
      name: text(MODEL_NAME),
      title: text(),
      role: oneOf(ROLES),
      goodFor: text(),
      files: list(FILE),
      outputName: text(),
      size: fields<CatalogueSize>({ width: SIDE, height: SIDE, multipleOf: SIDE }, ['multipleOf']),
      ...FACT_SCHEMAS,
      verified: { type: 'boolean', description: 'true or false' },
      measuredBy: text(),
    },
    ['outputName', 'size', 'fit', 'normalisation', 'colourOrder', 'activation', 'measuredBy'],
  ),
);

export async function loadCatalogue(
  file = join(MANIFEST_DIRECTORY, 'catalogue.json'),
): Promise<readonly CatalogueModel[]> {
  return parseCatalogue(await readFile(file, 'utf8'), file);
}

export function parseCatalogue(json: string, file: string): readonly CatalogueModel[] {
  return parseChecked<readonly CatalogueModel[]>(json, file, SCHEMA);
}

export function findByName(
  catalogue: readonly CatalogueModel[],
  name: string,
): CatalogueModel | undefined {
  return catalogue.find(model => model.name === name);
}

export function findBySum(
  catalogue: readonly CatalogueModel[],
  sha256: string,
): CatalogueModel | undefined {
  return catalogue.find(({ files: [graph] }) => graph?.sha256 === sha256);
}

export function factsOfCatalogue(model: CatalogueModel): Facts {
  const { role, size, outputName: output, normalisation, fit, activation, colourOrder } = model;
  const { multipleOf, ...sides } = size ?? {};
  const stated = { normalisation, fit, activation, colourOrder, output, multipleOf };
  return {
    ...Object.fromEntries(Object.entries(stated).filter(([, value]) => value !== undefined)),
    ...(size !== undefined && { size: sides as Size }),
    ...(output === undefined && { firstOutput: true }),
    ...(role === 'refine' && { trimap: true }),
  };
}
