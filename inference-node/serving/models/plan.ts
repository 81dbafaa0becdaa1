/**
 * models/plans.json has models, input sizes and roles of plans. A single model is a plan of its
 * name.
 */

import { join } from 'node:path';
import { ConfigError, type EnvProblem } from '@matting/program/config-error.ts';
import { SELECTABLE_NAME, SELECTABLE_NAME_FORM } from '@matting/proto/contract/selectable-names.ts';
import { ParsedFiles, statOrNull } from './cache-files.ts';
import {
  fieldError,
  fields,
  list,
  mapOf,
  oneOf,
  parseChecked,
  SHARE,
  text,
  wholeNumber,
} from './checked-json.ts';
import type { UseTerms } from './licence.ts';
import { listManifests, loadManifest, MANIFEST_DIRECTORY, type ModelManifest } from './manifest.ts';
import { ModelError } from './model-error.ts';
import type { CommercialUseGate, ModelSettings } from './model-settings.ts';
import {
  EXTRA_INPUTS,
  type ExtraRun,
  INPUT_SIDE_MAX,
  MATTE_ROLES,
  type MatteRole,
  MODEL_NAME,
} from './prepared-model.ts';

export interface PlanEntry {
  readonly model: string;
  /** Side of the square, pixels. Undefined: the manifest's default. */
  readonly inputSize?: number | undefined;
  readonly role: MatteRole;
  readonly extraRuns?: readonly ExtraRun[] | undefined;
}

export interface PlanOutline {
  readonly name: string;
  /** For people. Absent: the manifest of a single model may have it. */
  readonly goodFor?: string | undefined;
  readonly entries: readonly PlanEntry[];
}

const PLANS_FILE = 'plans.json';
/** A control plane takes SELECTABLES_MAX names of a node, models and plans together. */
const PLANS_MAX = 64;
/** Each model has its own engines on a node. */
const MODELS_MAX = 4;
const SCHEMA = mapOf(
  fields<PlanRow>({
    goodFor: text(),
    models: {
      ...list(
        fields<PlanEntry>(
          {
            model: text(MODEL_NAME),
            inputSize: wholeNumber(1, INPUT_SIDE_MAX),
            role: oneOf(MATTE_ROLES),
            extraRuns: list(fields<ExtraRun>({ input: oneOf(EXTRA_INPUTS), unsureFrom: SHARE })),
          },
          ['inputSize', 'extraRuns'],
        ),
      ),
      maxItems: MODELS_MAX,
      description: `a list of 1 to ${MODELS_MAX} models`,
    },
  }),
);

interface PlanRow {
  readonly goodFor: string;
  readonly models: readonly PlanEntry[];
}

/** @throws ModelError; ConfigError if a precision is set for a plan */
export async function outlineOf(settings: ModelSettings): Promise<PlanOutline> {
  const { model, precision, quality, addedModelsDir } = settings;
  const isNamed = ({ name }: PlanOutline) => name === (model ?? quality);
  const plan =
    (await loadPlanOutlines()).find(isNamed) ??
    (await loadAddedPlans(addedModelsDir)).find(isNamed);
  if (model === undefined) {
    if (plan !== undefined) return plan;
    throw new ModelError('manifest', `${PLANS_FILE} has no plan ${quality}`);
  }
  if (plan === undefined) {
    return { name: model, entries: [{ model, inputSize: undefined, role: 'subject' }] };
  }
  if (precision === 'auto') return plan;
  const expected = `a model where MATTING_PRECISION is set; ${model} is a plan`;
  throw new ConfigError([{ variable: 'MATTING_MODEL', expected }]);
}

/**
 * Plans of the product.
 * @throws ModelError `manifest` or `disk`
 */
export async function loadPlanOutlines(
  directory = MANIFEST_DIRECTORY,
): Promise<readonly PlanOutline[]> {
  const path = join(directory, PLANS_FILE);
  return await PLANS.read(path);
}

/** An operator's own plans, next to the manifests of added models. There may be none. */
export async function loadAddedPlans(directory: string): Promise<readonly PlanOutline[]> {
  const isThere = (await statOrNull(join(directory, PLANS_FILE))) !== null;
  return isThere ? await loadPlanOutlines(directory) : [];
}

export function parsePlanOutlines(json: string, file: string): readonly PlanOutline[] {
  const plans = Object.entries(parseChecked<Record<string, PlanRow>>(json, file, SCHEMA));
  if (plans.length > PLANS_MAX) {
    throw fieldError(file, 'its plans', `must be at most ${PLANS_MAX}, and are ${plans.length}`);
  }
  return plans.map(([name, { goodFor, models: entries }], i) => {
    if (!SELECTABLE_NAME.test(name)) {
      // The error gives the plan's number, since the name may have any characters.
      throw fieldError(file, `the name of plan ${i + 1}`, `must be ${SELECTABLE_NAME_FORM}`);
    }
    if (entries[0]?.role !== 'subject') throw fieldError(file, name, 'must begin with a subject');
    const refining = entries.findIndex(({ role }) => role === 'refine');
    if (refining >= 0 && refining < entries.length - 1) {
      throw fieldError(
        file,
        name,
        'must end with its one refine, which takes what the others make',
      );
    }
    return { name, goodFor, entries };
  });
}

const PLANS = new ParsedFiles(parsePlanOutlines);

const ROLES_IN_WORDS: Readonly<Record<MatteRole, string>> = {
  subject: 'subject',
  secondLook: 'second look',
  surerLook: 'second look',
  opinion: 'second opinion',
  refine: 'refining model',
};

/** @throws ModelError `settings` if the model cannot have the role */
export function requireRole(
  { name, graph }: Pick<ModelManifest, 'name' | 'graph'>,
  role: MatteRole,
  plan: string,
): void {
  if ((graph.trimap === true) === (role === 'refine')) return;
  const is = graph.trimap
    ? `${name} refines another model's matte, and makes none as ${ROLES_IN_WORDS[role]}`
    : `${name} takes a picture without a trimap, and refines no matte`;
  const way = graph.trimap
    ? `name it behind a subject, with the role refine, in a plan of ${PLANS_FILE}`
    : `give it another role in ${PLANS_FILE}, or name a model of four channels`;
  throw new ModelError('settings', `the plan ${plan} cannot run: ${is}; ${way}`);
}

/**
 * Uses that `gate` requires and the terms do not permit; empty: admitted. A refused model is
 * neither fetched nor prepared, and no caller can request it.
 */
export function refusalsOf(
  { licence: { weights, trainingData } }: Pick<ModelManifest, 'licence'>,
  gate: CommercialUseGate | undefined,
): readonly string[] {
  if (gate === undefined) return [];
  const required: (readonly [string, UseTerms])[] = [['weights', weights]];
  if (gate === 'strict') required.push(['training data', trainingData]);
  return required
    .filter(([, { commercialUse }]) => commercialUse !== 'yes')
    .map(([what, { commercialUse, reason, source }]) => {
      const use = commercialUse === 'no' ? 'not permitted' : 'unclear';
      return `commercial use of its ${what} is ${use}: ${reason} ${source}`;
    });
}

/** @throws ConfigError with each refused model, the reason and the admitted models; ModelError */
export async function admittedOutlineOf(settings: ModelSettings): Promise<PlanOutline> {
  const outline = await outlineOf(settings);
  await requireAdmitted(outline.entries, settings);
  let { goodFor } = outline;
  for (const { model, role } of outline.entries) {
    const manifest = await loadManifest(model, MANIFEST_DIRECTORY, settings.addedModelsDir);
    requireRole(manifest, role, outline.name);
    goodFor ??= manifest.goodFor;
  }
  return { ...outline, goodFor };
}

type ManifestGate = Pick<ModelSettings, 'commercialUse' | 'addedModelsDir'>;

export async function requireAdmitted(
  entries: readonly PlanEntry[],
  { commercialUse: gate, addedModelsDir }: ManifestGate,
  directory = MANIFEST_DIRECTORY,
): Promise<void> {
  if (gate === undefined) return;
  const problems: EnvProblem[] = [];
  for (const name of new Set(entries.map(({ model }) => model))) {
    const refusals = refusalsOf(await loadManifest(name, directory, addedModelsDir), gate);
    if (refusals.length === 0) continue;
    const roles = entries.filter(({ model }) => model === name).map(({ role }) => role);
    const words = [...new Set(roles)].map(role => ROLES_IN_WORDS[role]).join(' and ');
    const expected = `met by every model: ${gate} refuses ${name} (${words}); ${refusals.join('; ')}`;
    problems.push({ variable: 'MATTING_COMMERCIAL_USE', expected });
  }
  if (problems.length === 0) return;
  throw new ConfigError([...problems, await describeAdmitted(gate, directory, addedModelsDir)]);
}

async function describeAdmitted(
  gate: CommercialUseGate,
  directory: string,
  added: string,
): Promise<EnvProblem> {
  const models = await listManifests(directory, added);
  const admitted = new Set<string>();
  for (const name of models) {
    const refusals = refusalsOf(await loadManifest(name, directory, added), gate);
    if (refusals.length === 0) admitted.add(name);
  }
  const own = 'a model of your own (models/README.md, "Commercial use")';
  if (admitted.size === 0) {
    const expected = `${own}: ${gate} admits none of ${models.join(', ')}`;
    return { variable: 'MATTING_MODEL', expected };
  }
  const single = `${[...admitted].join(' or ')}, or ${own}`;
  const plans = (await loadPlanOutlines(directory))
    .filter(({ entries }) => entries.every(({ model }) => admitted.has(model)))
    .map(({ name }) => name);
  if (plans.length === 0) return { variable: 'MATTING_MODEL', expected: single };
  const expected = `${plans.join(' or ')}, or MATTING_MODEL ${single}`;
  return { variable: 'MATTING_QUALITY', expected };
}

/** Names each model once, even if the plan has it twice. */
export function describeTerms(
  plan: string,
  models: readonly Pick<ModelManifest, 'name' | 'licence'>[],
): string {
  const licences = new Map(models.map(({ name, licence }) => [name, licence]));
  const each = [...licences].map(([name, { weights, trainingData }]) => {
    return `${name} weights ${weights.commercialUse}, training data ${trainingData.commercialUse}`;
  });
  return `plan ${plan}, commercial use: ${each.join('; ')} (models/README.md)`;
}
