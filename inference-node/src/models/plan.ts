/**
 * Which models make a matte. A plan is data, beside the manifests: models/plans.json names for each
 * plan its models, their input sizes, and what each of them is to the others. A single model is a
 * plan of its own name.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { loadManifest, MANIFEST_DIRECTORY } from './manifest.ts';
import { FieldReader } from './manifest-fields.ts';
import { ModelError } from './model-error.ts';
import type { ModelSettings } from './model-settings.ts';
import { MATTE_ROLES, type MatteRole, type Plan, type PlanModel } from './prepared-model.ts';
import { type PrepareOptions, type PrepareProgress, prepareModel } from './preparing/prepare.ts';

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

export interface PlanOptions extends Omit<PrepareOptions, 'manifest' | 'onProgress' | 'inputSize'> {
  readonly outline: PlanOutline;
  readonly onProgress?: (model: string, progress: PrepareProgress) => void;
}

const PLANS_FILE = 'plans.json';
const MODEL_NAME = /^[a-z0-9][a-z0-9-]{0,63}$/;
const INPUT_SIZE_MAX = 8192;
/** Each has engines of its own on a node. */
const MODELS_MAX = 4;

/** Prepares every model of the plan. Throws ModelError as loadManifest and prepareModel do. */
export async function buildPlan(options: PlanOptions): Promise<Plan> {
  const { outline, onProgress, ...preparation } = options;
  const models: PlanModel[] = [];
  for (const { model: name, inputSize: side, role } of outline.entries) {
    const manifest = await loadManifest(name, options.manifestDirectory);
    const model = await prepareModel({
      ...preparation,
      manifest,
      inputSize: side === undefined ? undefined : { width: side, height: side },
      onProgress: progress => onProgress?.(name, progress),
    });
    models.push({ model, role });
  }
  return { name: outline.name, models };
}

/** What the settings ask for: the plan of a quality, or one model alone. Throws ModelError. */
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
export function parsePlanOutlines(text: string, file: string): readonly PlanOutline[] {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new ModelError('manifest', `${file}: not JSON: ${(error as Error).message}`, error);
  }
  const fields = new FieldReader(json, file, '');
  return Object.keys(json as object).map(name => {
    const entries = fields.list(name, readEntry);
    if (entries[0]?.role !== 'subject') fields.fail(name, 'must begin with a subject');
    if (entries.length > MODELS_MAX) fields.fail(name, `must have at most ${MODELS_MAX} models`);
    return { name, entries };
  });
}

function readEntry(fields: FieldReader): PlanEntry {
  const entry: PlanEntry = {
    model: fields.text('model', MODEL_NAME),
    inputSize: fields.integer('inputSize', 1, INPUT_SIZE_MAX),
    role: fields.choice('role', MATTE_ROLES),
  };
  fields.end();
  return entry;
}
