/**
 * Which models make a matte. A plan is data beside the manifests: models/plans.json lists the models
 * of each plan, their input sizes and their roles. A single model is a plan of its own name.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  fieldError,
  fields,
  list,
  mapOf,
  oneOf,
  parseChecked,
  text,
  wholeNumber,
} from './checked-json.ts';
import { MANIFEST_DIRECTORY } from './manifest.ts';
import { ModelError } from './model-error.ts';
import type { ModelSettings } from './model-settings.ts';
import { INPUT_SIDE_MAX, MATTE_ROLES, type MatteRole, MODEL_NAME } from './prepared-model.ts';

/** One model's part in a plan. */
export interface PlanEntry {
  /** A manifest's name. */
  readonly model: string;
  /** Side of the square in pixels; the manifest's default when undefined. */
  readonly inputSize: number | undefined;
  readonly role: MatteRole;
}

export interface PlanOutline {
  readonly name: string;
  /** The first is a subject. */
  readonly entries: readonly PlanEntry[];
}

const PLANS_FILE = 'plans.json';
/** Each model has its own engines on a node. */
const MODELS_MAX = 4;
const SCHEMA = mapOf({
  ...list(
    fields<PlanEntry>({
      model: text(MODEL_NAME),
      inputSize: wholeNumber(1, INPUT_SIDE_MAX),
      role: oneOf(MATTE_ROLES),
    }),
  ),
  maxItems: MODELS_MAX,
  description: `a list of 1 to ${MODELS_MAX} models`,
});

/** The plan that the settings ask for: a quality's, or a single model. Throws ModelError. */
export async function outlineOf(settings: ModelSettings): Promise<PlanOutline> {
  const { model, inputSize, quality } = settings;
  if (model !== undefined) {
    return { name: model, entries: [{ model, inputSize, role: 'subject' }] };
  }
  const outlines = await loadPlanOutlines();
  const found = outlines.find(({ name }) => name === quality);
  if (found === undefined) throw new ModelError('manifest', `${PLANS_FILE} has no plan ${quality}`);
  return found;
}

/** Every plan that comes with the product. Throws ModelError `manifest`, with file and field. */
export async function loadPlanOutlines(
  directory = MANIFEST_DIRECTORY,
): Promise<readonly PlanOutline[]> {
  const path = join(directory, PLANS_FILE);
  return parsePlanOutlines(await readFile(path, 'utf8'), path);
}

/** `file` is named in errors. */
export function parsePlanOutlines(json: string, file: string): readonly PlanOutline[] {
  const plans = parseChecked<Record<string, readonly PlanEntry[]>>(json, file, SCHEMA);
  return Object.entries(plans).map(([name, entries]) => {
    if (entries[0]?.role !== 'subject') throw fieldError(file, name, 'must begin with a subject');
    return { name, entries };
  });
}
