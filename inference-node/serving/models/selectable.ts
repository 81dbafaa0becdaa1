/** A node serves, and a request may name, a selectable: a plan, or a model alone. */

import { createHash } from 'node:crypto';
import type { CommercialUse, UseTerms } from './licence.ts';
import type { Plan, PlanModel } from './prepared-model.ts';

export interface Selectable {
  readonly name: string;
  readonly kind: 'plan' | 'model';
  /** May be empty. */
  readonly goodFor: string;
  readonly models: readonly PlanModel[];
  readonly sha256: string;
}

export function selectableOf({ name, models }: Plan, goodFor = ''): Selectable {
  const isModel = models.length === 1 && models[0]?.model.model === name;
  const kind = isModel ? 'model' : 'plan';
  return { name, kind, goodFor, models, sha256: sumOf({ models }) };
}

/**
 * Hash, hexadecimal, of all facts that decide the mattes. Nodes of other providers, precisions and
 * releases have the same hash.
 */
export function sumOf({ models }: Pick<Selectable, 'models'>): string {
  const deciding = models.map(({ model, role }) => [
    ...[role, model.weights, model.inputWidth, model.inputHeight],
    ...[model.normalisation.mean, model.normalisation.std, model.colourOrder],
    ...[model.activation, model.outputName, model.form],
  ]);
  return createHash('sha256').update(JSON.stringify(deciding)).digest('hex');
}

/** The strictest first. */
const STRICTNESS: readonly CommercialUse[] = ['no', 'unclear', 'yes'];

export function termsOf({ models }: Pick<Selectable, 'models'>) {
  const strictest = (of: 'weights' | 'trainingData'): UseTerms | undefined =>
    models
      .map(({ model }) => model.licence[of])
      .toSorted((one, other) => strictness(one) - strictness(other))[0];
  return { weights: strictest('weights'), trainingData: strictest('trainingData') };
}

function strictness({ commercialUse }: UseTerms): number {
  return STRICTNESS.indexOf(commercialUse);
}
