/** The manifest of an added model, of what is stated and what was measured. Pure. */

import {
  type ModelManifest,
  type ModelSource,
  parseManifest,
  type WeightsFile,
} from '@matting/serving/models/manifest.ts';
import { longestSide, type Probe } from '../probing/probe.ts';
import type { CatalogueModel } from './catalogue.ts';
import type { Facts } from './facts.ts';

type Licence = ModelManifest['licence'];
type UseTerms = Licence['weights'];
type CommercialUse = UseTerms['commercialUse'];

export interface StatedLicence {
  /** An SPDX expression. */
  readonly weights?: string | undefined;
  /** Begins with yes or no where that is known. */
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

/** Gives the manifest and the text of its file. @throws ModelError `manifest` */
export function describeAdded(described: Described): { manifest: ModelManifest; json: string } {
  const { name, version, source, files, row, licence, facts, probe } = described;
  const { graph, activation, inverted, peakBytes, loadedBytes, seconds, provider } = probe;
  const written = {
    ...{ name, version, description: row?.title ?? `Added from ${placeOf(source)}` },
    ...(row !== undefined && { goodFor: row.goodFor }),
    ...{ source, files, graph: { file: files[0].name, ...graph }, precisions: [graph.precision] },
    ...(graph.dynamic && { inputSize: sizesOf(probe, facts) }),
    normalisation: facts.normalisation ?? NO_NORMALISATION,
    colourOrder: facts.colourOrder ?? 'rgb',
    ...(facts.fit !== undefined && { fit: facts.fit }),
    activation,
    ...(inverted !== undefined && { inverted }),
    measured: { peakBytes, loadedBytes, seconds, provider },
    licence,
  };
  const json = `${JSON.stringify(written, null, 2)}\n`;
  return { manifest: parseManifest(json, `the manifest of ${name}`), json };
}

/** A graph that normalises its input itself gets these. */
const NO_NORMALISATION = { mean: [0, 0, 0], std: [1, 1, 1] };

function placeOf(source: ModelSource): string {
  return source.type === 'address' ? new URL(source.url).hostname : 'a file';
}

function sizesOf(
  { graph, multipleOf: measured, shortestSide = 1 }: Probe,
  { multipleOf: stated }: Facts,
) {
  const { inputWidth, inputHeight } = graph;
  const side = Math.min(inputWidth, inputHeight);
  const fits = (of: number) => inputWidth % of === 0 && inputHeight % of === 0;
  const multipleOf = [stated, measured].find(of => of !== undefined && fits(of)) ?? 1;
  const max = Math.max(longestSide(side, multipleOf), inputWidth, inputHeight);
  const min = multipleOf * Math.max(1, Math.ceil(shortestSide / multipleOf));
  return { default: side, listed: [side], multipleOf, min, max };
}

/** Licences that let anybody sell with what they cover. */
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

/** The operator's statement beats the catalogue's; terms that nobody states are unclear. */
export function licenceOf(
  { weights, data }: StatedLicence,
  row: CatalogueModel | undefined,
  origin: string,
): Licence {
  const unknown: UseTerms = {
    ...{ commercialUse: 'unclear', source: 'unknown' },
    reason: 'unknown: not stated when the model was added.',
  };
  const stated = row?.licence ?? {
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
