/**
 * The operator lists the names, the default first; else the nodes' default plan is the only one.
 * Reports are remembered, so that a node's restart removes no name.
 */

import type { KeyPolicy } from '@matting/accounts/keys/key-policy.ts';
import {
  commonDefault,
  NO_SELECTABLES,
  type Selectable,
  type Selectables,
} from '@matting/nodes/selectable.ts';
import { ContractError, invalidParameter } from '@matting/proto/contract/errors.ts';
import { SELECTABLE_NAME } from '@matting/proto/contract/selectable-names.ts';

interface OfferingNode {
  readonly models?: Selectables;
  readonly registeredAtMs?: number;
  readonly enginesReady: number;
}

interface OfferedModelsOptions {
  /** The operator's list; empty: only the nodes' default plan. */
  readonly offered: readonly string[];
  readonly snapshots: () => readonly OfferingNode[];
  /** Gets only offered names, so that no other becomes a label. */
  readonly onJob?: (name: string, ms: number) => void;
}

export class OfferedModels {
  readonly #options: OfferedModelsOptions;
  readonly #paces = new Map<string, number[]>();
  readonly #reports = new Map<string, Selectable>();
  #default: string | undefined;

  constructor(options: OfferedModelsOptions) {
    this.#options = options;
  }

  /**
   * If the operator lists no name and no node was seen, it allows any name.
   * @throws ContractError INVALID_PARAMETER; KEY_NOT_ALLOWED: offered, but not to this key
   */
  require(name: string | undefined, policy: Pick<KeyPolicy, 'models'> = {}): void {
    if (name === undefined) return;
    const names = this.#names();
    const isUnknown = names.length > 0 ? !names.includes(name) : !SELECTABLE_NAME.test(name);
    if (isUnknown) {
      const more = 'the operator offers others by MATTING_MODELS_OFFERED';
      const offered =
        names.length > 0 ? `one of ${names.join(', ')}; ${more}` : 'a name of GET /v1/models';
      throw invalidParameter('model', `must be ${offered}`);
    }
    if (policy.models === undefined || policy.models.includes(name)) return;
    throw new ContractError(
      'KEY_NOT_ALLOWED',
      `The API key does not allow the model ${name}. GET /v1/models lists the models it allows.`,
    );
  }

  /** A model that no node has now appears as last reported. */
  list({ models: allowed }: Pick<KeyPolicy, 'models'> = {}) {
    const names = this.#names();
    const nodes = this.#options.snapshots();
    const models = names
      .filter(name => allowed === undefined || allowed.includes(name))
      .map(name => {
        const report = this.#reports.get(name);
        return {
          name,
          kind: report?.kind ?? null,
          default: name === this.#default,
          loaded: nodes.some(({ models: of, enginesReady }) => of?.has(name) && enginesReady > 0),
          good_for: report?.goodFor || null,
          seconds_p50: this.#medianSeconds(name),
          licence: report === undefined ? null : licenceOf(report),
        };
      });
    return { models };
  }

  /** @param ms from a node's admission until the result is stored */
  noteJob(name: string, ms: number): void {
    if (!this.#isOffered(name)) return;
    const last = this.#paces.get(name) ?? [];
    last.push(ms);
    if (last.length > PACE_JOBS) last.shift();
    this.#paces.set(name, last);
    this.#options.onJob?.(name, ms);
  }

  #isOffered(name: string): boolean {
    const { offered } = this.#options;
    if (offered.length > 0) return offered.includes(name);
    return name === this.#default || this.#names().includes(name);
  }

  #names(): readonly string[] {
    const { offered, snapshots } = this.#options;
    const nodes = snapshots();
    this.#default = offered[0] ?? commonDefault(nodes.map(voterOf)) ?? this.#default;
    const names = offered.length > 0 || this.#default === undefined ? offered : [this.#default];
    for (const name of names) {
      const report = nodes.find(({ models }) => models?.has(name))?.models?.get(name);
      if (report !== undefined) this.#reports.set(name, report);
    }
    return names;
  }

  #medianSeconds(name: string): number | null {
    const last = this.#paces.get(name) ?? [];
    if (last.length < PACE_JOBS_MIN) return null;
    const middle = last.toSorted((a, b) => a - b)[Math.floor(last.length / 2)] ?? 0;
    return Math.round(middle) / 1000;
  }
}

const PACE_JOBS = 100;
const PACE_JOBS_MIN = 10;

function voterOf({ models = NO_SELECTABLES, registeredAtMs = 0 }: OfferingNode) {
  return { models, registeredAtMs };
}

function licenceOf({ weights, trainingData }: Selectable) {
  return { weights: termsOf(weights), training_data: termsOf(trainingData) };
}

function termsOf({ commercialUse, reason, source }: Selectable['weights']) {
  return { commercial_use: commercialUse, reason, source };
}
