import {
  type ModelManifest,
  type ModelSource,
  parseManifest,
  type WeightsFile,
} from '@matting/serving/models/manifest.ts';
import { type Facts, longestSide, NO_NORMALISATION, type Probe } from '../probing/probe-types.ts';
import type { CatalogueModel } from './catalogue.ts';

type Licence = ModelManifest['licence'];
type UseTerms = Licence['weights'];
type CommercialUse = UseTerms['commercialUse'];

export interface StatedLicence {
  readonly weights?: string | undefined;
  /** Begins with yes or no if commercial use is known. */
  readonly data?: string | undefined;
}

export interface Described {
  readonly name: string;
  readonly version: string;
  readonly source: ModelSource;
  /** The graph first. */
  readonly files: readonly [WeightsFile, ...WeightsFile[]];
  readonly row: CatalogueModel | undefined;
  readonly licence: Licence;
  readonly facts: Facts;
  readonly probe: Probe;
}

export function describeAdded(described: Described): { manifest: ModelManifest; json: string } {
  const { name, version, source, files, row, licence, facts, probe } = described;
  const { graph, peakBytes, loadedBytes, seconds, provider } = probe;
  const written = {
    ...{ name, version, description: row?.title ?? `Added from ${hostOrFile(source)}` },
    ...(row !== undefined && { goodFor: row.goodFor }),
    ...{ source, files, graph: { file: files[0].name, ...graph }, precisions: [graph.precision] },
    ...(graph.dynamic && { inputSize: sizesOf(probe, facts) }),
    normalisation: facts.normalisation ?? NO_NORMALISATION,
    colourOrder: facts.colourOrder ?? 'rgb',
    ...(facts.fit !== undefined && { fit: facts.fit }),
    activation: facts.activation,
    ...(facts.inverted && { inverted: true }),
    measured: { peakBytes, loadedBytes, seconds, provider },
    licence,
  };
  const json = `${JSON.stringify(written, null, 2)}\n`;
  return { manifest: parseManifest(json, `the manifest of ${name}`), json };
}

function hostOrFile(source: ModelSource): string {
  return source.type === 'address' ? new URL(source.url).hostname : 'a file';
}

function sizesOf({ graph, shortestSide = 1 }: Probe, { multipleOf = 1 }: Facts) {
  const { inputWidth, inputHeight } = graph;
  const side = Math.min(inputWidth, inputHeight);
  const max = Math.max(longestSide(side, multipleOf), inputWidth, inputHeight);
  const min = multipleOf * Math.max(1, Math.ceil(shortestSide / multipleOf));
  return { default: side, listed: [side], multipleOf, min, max };
}

const PERMISSIVE: ReadonlySet<string> = new Set([
  '0BSD',
  'Apache-2.0',
  'BSD-2-Clause',
  'BSD-3-Clause',
  'BSL-1.0',
  'CC-BY-4.0',
  'CC0-1.0',
  'ISC',
  'MIT',
  'Unlicense',
]);

/** Options replace parts of `whole`, a manifest's or the catalogue's licence. */
export function licenceOf(
  { weights, data }: StatedLicence,
  whole: Licence | undefined,
  origin: string,
): Licence {
  const unknown: UseTerms = {
    ...{ commercialUse: 'unclear', source: 'unknown' },
    reason: 'unknown: not stated when the model was added.',
  };
  const stated = whole ?? {
    spdx: 'unknown',
    origin,
    weights: unknown,
    trainingData: unknown,
  };
  return {
    ...stated,
    ...(weights !== undefined && {
      spdx: weights,
      weights: termsOf(useOfWeights(weights), weights, origin),
    }),
    ...(data !== undefined && { trainingData: termsOf(useOfData(data), data, origin) }),
  };
}

function termsOf(commercialUse: CommercialUse, text: string, source: string): UseTerms {
  return { commercialUse, reason: `${text}, as whoever added it stated.`, source };
}

function useOfWeights(spdx: string): CommercialUse {
  if (PERMISSIVE.has(spdx)) return 'yes';
  return /-NC\b|non-?commercial/i.test(spdx) ? 'no' : 'unclear';
}

function useOfData(text: string): CommercialUse {
  const [, word = ''] = /^(yes|no)\b/i.exec(text) ?? [];
  return word === '' ? 'unclear' : (word.toLowerCase() as CommercialUse);
}
